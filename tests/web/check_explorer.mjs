// Check the explorer whose page has the model in it, in Chromium and Firefox: make test-web.
//   node tests/web/check_explorer.mjs CUTAWAY RUN [SCREENSHOTS]      CUTAWAY: the command, such as .venv/bin/cutaway
//
// The exported page, from a file and from a server; a damaged one; and the served page with the engine of the browser.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { addWatch, launch, open, run as runCommand, serveFolders } from "./browsers.mjs";

const SENTENCES = [
  "The small cat sleeps under the table.", "We think that he dances on the small beach.",
  "The old king does not like the red apples because he is sick.", "Is she in the village?",
];
const VIEWS = ["map", "attention", "writing", "lens", "experiments", "compare", "timelapse", "heads"];
const LIMITS = { int8: 3e6, float16: 6e6 }; // bytes of a page without snapshots
const FIRST_ANSWER = 2000, LONGEST_FRAME = 50; // milliseconds
const [cutaway, run, screenshots] = process.argv.slice(2);
if (!run) throw new Error("Usage: node check_explorer.mjs CUTAWAY RUN [SCREENSHOTS]");
const isTimed = !process.env.CI; // other work on the machine makes times useless
const folder = mkdtempSync(join(tmpdir(), "cutaway-explorer-"));
if (screenshots) mkdirSync(screenshots, { recursive: true });

const command = (...words) => runCommand(cutaway, ...words);
const fileOf = (name) => pathToFileURL(join(folder, name)).href;
const waitForOutput = (page, wanted) => page.waitForFunction(
  (text) => document.querySelector(".result .output")?.textContent === text, { timeout: 60_000 }, wanted);
const settle = (page) => page.waitForFunction(() => !document.querySelector("[aria-busy=true]"), { timeout: 60_000 });
const resultOf = (page) => page.$eval(".result", (result) => ({
  output: result.querySelector(".output").textContent,
  tokens: [...result.querySelectorAll("[title^=probability]")].map((chip) => chip.title),
}));

async function type(page, text) {
  await page.$eval("textarea", (area, value) => { area.value = value; }, text);
  await page.evaluate(() => [...document.querySelectorAll(".input button")].find(({ textContent }) => textContent === "Run").click());
}

async function show(page, view) {
  await page.click(`#tab-${view}`);
  await settle(page);
  await page.waitForSelector(`#panel-${view}:not([hidden])`);
}

/** Milliseconds from the start of loading to the first answer. */
async function firstAnswer(page) {
  await page.waitForSelector(".result .output", { timeout: 60_000 });
  return page.evaluate(() => performance.now());
}

/** Every view, with another text, a part that is off, and an earlier snapshot. */
async function tryEverything(page, name, expected) {
  for (const [i, text] of SENTENCES.entries()) {
    await type(page, text);
    await waitForOutput(page, expected[i]);
  }
  for (const view of VIEWS) {
    await show(page, view);
    await page.waitForFunction((id) => !document.querySelector(`#panel-${id} .waiting-line`), { timeout: 60_000 }, view);
    await new Promise((resolve) => setTimeout(resolve, 300));
    if (screenshots) await page.screenshot({ path: join(screenshots, `${name}-${view}.png`) });
    assert.equal(await page.$$eval(`#panel-${view} [role=alert]`, (found) => found.length), 0, `${name}: ${view}`);
  }
  await show(page, "experiments");
  await page.evaluate(() =>
    [...document.querySelectorAll("button")].find(({ textContent }) => textContent === "Measure each part").click());
  await page.waitForFunction(() => document.querySelector(".measure button").disabled
    && !document.querySelector("#panel-experiments .waiting-line"), { timeout: 60_000 });
  await page.evaluate(() => { location.hash = "view=writing&text=The+small+cat+sleeps.&off=[\"decoder.layers.0.feed_forward\"]"; });
  await page.waitForFunction(() => document.querySelector(".changes")?.textContent.startsWith("Switched off"));
}

/** The longest time that the page was busy while the model translated, in milliseconds. */
async function longestFrame(page) {
  await addWatch(page);
  await show(page, "attention");
  const { longest } = await page.evaluate((texts) => watch(async () => {
    for (const text of texts) {
      const before = document.querySelector(".result .output").textContent;
      document.querySelector("textarea").value = text;
      [...document.querySelectorAll(".input button")].find(({ textContent }) => textContent === "Run").click();
      await new Promise((resolve) => setTimeout(resolve, 700));
      if (document.querySelector(".result .output").textContent === before) throw new Error("no answer in 0.7 s");
    }
  }), SENTENCES.toReversed());
  return longest;
}

/** Start `cutaway explore`. -> {address, stop} */
async function startServer() {
  const server = spawn(cutaway, ["explore", run, "--no-open", "--port", "0"], { stdio: ["ignore", "pipe", "pipe"] });
  const address = await new Promise((resolve, reject) => {
    let printed = "";
    const read = (data) => {
      printed += data;
      const found = printed.match(/http:\/\/127\.0\.0\.1:\d+\//);
      if (found) resolve(found[0]);
    };
    server.stdout.on("data", read);
    server.stderr.on("data", read);
    server.on("exit", () => reject(new Error(`cutaway explore ended: ${printed}`)));
  });
  return { address, stop: () => server.kill("SIGINT") };
}

const lines = [];
let server = null, files = null;
try {
  for (const [dtype, limit] of Object.entries(LIMITS)) {
    command("explore", run, "--export", join(folder, `${dtype}.html`), "--dtype", dtype);
    const { size } = statSync(join(folder, `${dtype}.html`));
    assert.ok(size <= limit, `the page with ${dtype} has ${size} bytes; at most ${limit}`);
    lines.push(`page with ${dtype}: ${(size / 1e6).toFixed(2)} MB`);
  }
  command("explore", run, "--export", join(folder, "snapshots.html"), "--snapshots", "--text", SENTENCES[0]);
  lines.push(`page with float16 and snapshots: ${(statSync(join(folder, "snapshots.html")).size / 1e6).toFixed(1)} MB`);
  const page = readFileSync(join(folder, "float16.html"), "utf8"), at = page.indexOf('id="weights-0">') + 100_000;
  writeFileSync(join(folder, "damaged.html"), page.slice(0, at) + (page[at] === "A" ? "B" : "A") + page.slice(at + 1));
  writeFileSync(join(folder, "cut.html"), page.slice(0, at) + page.slice(at + 100_000));
  const expected = command("translate", run, ...SENTENCES, "--json").trim().split("\n").map((line) => JSON.parse(line).text);
  server = await startServer();
  files = await serveFolders({ "/": folder });
  for (const name of ["chromium", "firefox"]) {
    const browser = await launch(name);
    try {
      for (const [kind, address] of [["file", fileOf("snapshots.html")], ["http", `${files.address}snapshots.html`]]) {
        const { page, reports } = await open(browser, address);
        await page.setViewport({ width: 1280, height: 1000 });
        await waitForOutput(page, expected[0]);
        await tryEverything(page, `${name}-${kind}`, expected);
        assert.deepEqual(reports, [], `${name}, ${kind}`);
        await page.close();
      }
      for (const dtype of Object.keys(LIMITS)) {
        const { page, reports } = await open(browser, fileOf(`${dtype}.html`));
        const first = await firstAnswer(page), longest = await longestFrame(page);
        lines.push(`${name}, ${dtype}: first answer after ${Math.round(first)} ms, the page waited at most ${Math.round(longest)} ms`);
        if (isTimed) {
          assert.ok(first < FIRST_ANSWER, `${name}: the first answer came after ${first} ms`);
          assert.ok(longest < LONGEST_FRAME, `${name}: the page waited ${longest} ms`);
        }
        assert.equal(await page.$("#tab-timelapse"), null);
        assert.deepEqual(reports, [], `${name}, ${dtype}`);
        await page.close();
      }
      for (const how of ["damaged", "cut"]) {
        const { page, reports } = await open(browser, fileOf(`${how}.html`));
        await page.waitForSelector(".banner", { timeout: 60_000 });
        const message = await page.$eval(".banner p", ({ textContent }) => textContent);
        assert.match(message, /^model\.safetensors is damaged: .*\. Restore it from a copy\.$/);
        assert.deepEqual(reports, [], `${name}, ${how}`);
        lines.push(`${name}, ${how} weights: ${message}`);
        await page.close();
      }
      const results = [];
      for (const engine of ["null", "browser"]) {
        const { page, reports } = await open(browser, `${server.address}#view=writing&engine=${engine}`);
        for (const text of SENTENCES) {
          await type(page, text);
          await waitForOutput(page, expected[SENTENCES.indexOf(text)]);
          results.push(await resultOf(page));
        }
        await tryEverything(page, `${name}-served-${engine}`, expected);
        assert.deepEqual(reports, [], `${name}, engine ${engine}`);
        await page.close();
      }
      const half = results.length / 2;
      assert.deepEqual(results.slice(half), results.slice(0, half), `${name}: the engines of server and browser agree`);
    } finally {
      await browser.close();
    }
  }
  console.log(lines.join("\n"));
} finally {
  server?.stop();
  files?.close();
  rmSync(folder, { recursive: true, force: true });
}
