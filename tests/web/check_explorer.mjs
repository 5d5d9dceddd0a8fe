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
import { addWatch, findAccessibilityProblems, launch, open, run as runCommand, serveFolders } from "./browsers.mjs";
import { playForward, readAbouts, readNumbers, takeTour } from "./first_screen.mjs";
import { assertSameView, checkWhy, expectedWhy } from "./why.mjs";

const SENTENCES = [
  "The small cat sleeps under the table.", "We think that he dances on the small beach.",
  "The old king does not like the red apples because he is sick.", "Is she in the village?",
];
const VIEWS = ["map", "attention", "writing", "lens", "why", "experiments", "compare", "timelapse", "heads"];
const LIMITS = { int8: 3e6, float16: 6e6 }; // bytes of a page without snapshots
const SCREENS = [["light", 1280], ["dark", 1280], ["light", 390]];
const STATES = ["attention&look=lines&all=1", "map&part=decoder.layers.0.cross_attention", // more addresses for axe
  "attention&kind=cross&layer=0&head=1&token=2&at=2", "map&tour=2",
  "experiments&off=[\"decoder.layers.0.cross_attention\"]"];
const TRIES = 3; // other work on the machine makes single times longer
const FIRST_ANSWER = 2000, LONGEST_FRAME = 50; // milliseconds
const WEIGHTS_DAMAGED = /^model\.safetensors is damaged: .*\. Restore it from a copy\.$/;
const PAGE_DAMAGED = /^This page is damaged\. Copy it again\.$/;
const INCOMPLETE = /^This file is incomplete: its end is missing\. Copy or download it again\.$/;
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
  await page.waitForSelector("textarea");
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
  let least = SENTENCES.map(() => Infinity); // of the tries, for each sentence
  for (let i = 0; i < TRIES && Math.max(...least) >= LONGEST_FRAME; i++) {
    if (i) await page.reload(); // the page keeps its answers
    await firstAnswer(page);
    await addWatch(page);
    await show(page, "attention");
    const found = await page.evaluate(measureFrames, SENTENCES.toReversed());
    least = least.map((one, text) => Math.min(one, found[text]));
  }
  return Math.max(...least);
}

/** In the page: for each text, the longest time that the page was busy until it had the answer. */
async function measureFrames(texts) {
  const found = [], outputOf = () => document.querySelector(".result .output").textContent;
  for (const text of texts) {
    const before = outputOf(), pause = (time) => new Promise((resolve) => setTimeout(resolve, time));
    document.querySelector("textarea").value = text;
    const { longest } = await watch(async () => {
      [...document.querySelectorAll(".input button")].find(({ textContent }) => textContent === "Run").click();
      for (let i = 0; i < 100 && outputOf() === before; i++) await pause(100);
      await pause(300); // it draws the view
    });
    if (outputOf() === before) throw new Error(`no answer in 10 s: ${text}`);
    found.push(longest);
  }
  return found;
}

/** Open a view of the server's page. */
async function visit(page, view) {
  await page.goto("about:blank"); // otherwise a new address would only change the hash
  await page.goto(`${server.address}#view=${view}`);
  await page.waitForSelector("[role=tabpanel]:not([hidden])", { timeout: 60_000 });
  await page.waitForNetworkIdle({ idleTime: 200 });
  await settle(page);
}

/** axe finds nothing serious in any view: light, dark, and as wide as a phone. */
async function checkAccessibility(browser) {
  const page = await browser.newPage(), found = [];
  for (const [scheme, width] of SCREENS) {
    await page.setViewport({ width, height: 900 });
    await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: scheme }]);
    await visit(page, "map");
    const views = await page.$$eval("[role=tab]", (tabs) => tabs.map(({ id }) => id.replace("tab-", "")));
    for (const view of [...views, ...STATES]) {
      await visit(page, view);
      if (view === STATES.at(-1)) { // with the numbers on the buttons
        await page.evaluate(() => document.querySelector(".measure button").click());
        await page.waitForSelector(".legend .scale-of", { timeout: 60_000 });
      }
      const problems = await findAccessibilityProblems(page);
      found.push(...problems.map(({ id, count, first, why }) => `${scheme}, ${width} px, ${view}: ${id}: ${count}, first ${first}: ${why}`));
    }
  }
  await page.close();
  assert.deepEqual(found, []);
}

/** What a page shows of a refused text, a long text, a part that is off, a beam search, and a small probability. */
async function checkDetails(browser) {
  const page = await browser.newPage();
  const styleOf = (selector, name) => page.$$eval(selector, (all, key) => all.map((one) => getComputedStyle(one)[key]), name);
  await visit(page, "attention");
  const before = (await resultOf(page)).output;
  await type(page, "cat ".repeat(300));
  await page.waitForSelector(".banner");
  assert.equal((await resultOf(page)).output, before, "the last result stays after a refused text");
  assert.ok(await page.$("[role=tabpanel]:not([hidden])"), "a view stays after a refused text");

  await page.setViewport({ width: 390, height: 844 });
  await visit(page, `attention&text=${"The+cat+sleeps.+".repeat(25)}`);
  const isSeen = (one) => { const { top, bottom } = one.getBoundingClientRect(); return top >= 0 && bottom <= innerHeight; };
  assert.ok(await page.$eval(".result .tokens", isSeen), "the answer to a long text is on the first screen of a phone");
  await page.setViewport({ width: 1280, height: 900 });
  await visit(page, `attention&kind=encoder&text=${"The+cat+sleeps.+".repeat(14)}`);
  const excess = await page.$eval(".heatmap-box", (box) => box.scrollWidth - box.clientWidth);
  assert.ok(excess <= 0, `the labels of 57 tokens are cut by ${excess} pixels`);

  await visit(page, "experiments&off=[\"decoder.layers.0.cross_attention\"]");
  const heads = await page.$$eval("[data-id^='decoder.layers.0.cross_attention.heads']", (all) =>
    all.map((one) => `${one.getAttribute("aria-pressed")} ${one.getAttribute("aria-disabled")}`));
  assert.deepEqual(new Set(heads), new Set(["true true"]), "the heads of a sub-layer that is off are off");

  await visit(page, "writing");
  await page.waitForSelector(".node.found");
  assert.deepEqual(new Set(await styleOf(".node.found", "marginTop")), new Set(["0px"]), "finished texts are at their place");
  const rows = await page.$$eval(".candidates tbody tr", (all) => all.map((row) =>
    [row.querySelector(".model-p .bar-fill").style.width, row.querySelector(".figure").textContent].map(parseFloat)));
  for (const [width, percent] of rows) assert.ok(Math.abs(width - percent) <= 1, `a bar of ${width} % for ${percent} %`);

  await visit(page, "map");
  const below = await page.$eval(".drawing", (box) => box.scrollHeight - box.clientHeight - box.scrollTop);
  assert.ok(below <= 1, "the map opens at the input, at its lower end");
  await page.close();
}

/** Pages that lost a part or were changed: {name: [page, the sentence that it shows]}. */
function damagedPages(page) {
  const weights = page.indexOf('id="weights-0">') + 100_000, live = page.indexOf('id="live">') + 10_000;
  const engine = page.indexOf("<script>// Cutaway: the Transformer in JavaScript") + 100_000;
  const change = (at) => page.slice(0, at) + (page[at] === "A" ? "B" : "A") + page.slice(at + 1);
  const cuts = { "cut in the weights": weights, "cut in the engine": engine, "cut in the page's modules": 100_000,
    "cut 200 bytes before the end": page.length - 200 };
  return {
    "changed weights": [change(weights), WEIGHTS_DAMAGED],
    "shorter weights": [page.slice(0, weights) + page.slice(weights + 100_000), WEIGHTS_DAMAGED],
    "no weights": [page.replace('id="weights-0"', 'id="other"'), PAGE_DAMAGED],
    "changed description": [change(live), PAGE_DAMAGED],
    "no engine": [page.replace("globalThis.CutawayExplorer = engine;", "return;"), PAGE_DAMAGED],
    ...Object.fromEntries(Object.entries(cuts).map(([name, at]) => [name, [page.slice(0, at), INCOMPLETE]])),
  };
}

async function checkDamage(browser, name, damaged) {
  for (const [kind, [page, sentence]] of Object.entries(damaged)) {
    writeFileSync(join(folder, "damaged.html"), page);
    const { page: opened, reports } = await open(browser, fileOf("damaged.html"));
    await opened.waitForSelector(".banner", { timeout: 60_000 });
    const message = await opened.$eval(".banner", (banner) => (banner.querySelector("p") ?? banner).textContent);
    assert.match(message, sentence, `${name}, ${kind}`);
    const ownReports = reports.filter((text) => !text.startsWith("Failed to read data from the ReadableStream")); // Firefox's
    assert.deepEqual(ownReports, [], `${name}, ${kind}`);
    lines.push(`${name}, ${kind}: ${message}`);
    await opened.close();
  }
}

/** A page with recorded answers: no error in any view, and nothing to click that was not recorded. */
async function checkRecorded(browser) {
  const { page, reports } = await open(browser, fileOf("recorded.html"));
  await page.waitForSelector(".result .output", { timeout: 60_000 });
  const visible = (selector) => page.$$eval(selector, (all) => all.filter((one) => one.checkVisibility()).length);
  for (const view of await page.$$eval("[role=tab]", (tabs) => tabs.map(({ id }) => id.replace("tab-", "")))) {
    await show(page, view);
    assert.equal(await visible("[role=alert]"), 0, `recorded: ${view}`);
  }
  assert.equal(await page.$("#tab-why"), null, "causes are not recorded");
  await show(page, "writing");
  assert.equal(await visible(".beam input, .act button"), 0);
  await show(page, "experiments");
  assert.equal(await visible(".preset, .words"), 0);
  await page.click("[data-id='decoder.layers.1.cross_attention']");
  await page.waitForFunction(() => document.querySelector(".changes")?.textContent.startsWith("Switched off"));
  await settle(page);
  assert.equal(await visible(".switch:not([aria-disabled=true])"), 1, "only the same part can be switched");
  assert.deepEqual(reports, []);
  await page.close();
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
  command("explore", run, "--export", join(folder, "recorded.html"), "--recorded", "--text", SENTENCES[0]);
  lines.push(`page with float16 and snapshots: ${(statSync(join(folder, "snapshots.html")).size / 1e6).toFixed(1)} MB`);
  const damaged = damagedPages(readFileSync(join(folder, "float16.html"), "utf8"));
  const expected = command("translate", run, ...SENTENCES, "--json").trim().split("\n").map((line) => JSON.parse(line).text);
  const expectedCauses = expectedWhy(command, run);
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
        await readNumbers(page, "encoder", [2, 1]);
        await checkWhy(page, `${address}#`, expectedCauses, { isExact: false, name: `${name}, ${kind}` });
        assert.deepEqual(reports, [], `${name}, ${kind}`);
        await page.close();
      }
      for (const dtype of Object.keys(LIMITS)) {
        const { page, reports } = await open(browser, fileOf(`${dtype}.html`));
        const first = await firstAnswer(page);
        const longest = await longestFrame(page);
        lines.push(`${name}, ${dtype}: first answer after ${Math.round(first)} ms, the page waited at most ${Math.round(longest)} ms`);
        if (isTimed) {
          assert.ok(first < FIRST_ANSWER, `${name}: the first answer came after ${first} ms`);
          assert.ok(longest < LONGEST_FRAME, `${name}: the page waited ${longest} ms`);
        }
        await show(page, "timelapse");
        assert.match(await page.$eval("#panel-timelapse .note", (note) => note.textContent), /--snapshots/);
        assert.deepEqual(reports, [], `${name}, ${dtype}`);
        await page.close();
      }
      await checkDamage(browser, name, damaged);
      const first = await open(browser, server.address);
      await first.page.setViewport({ width: 1280, height: 1000 });
      await first.page.waitForSelector(".result .output", { timeout: 60_000 });
      await readAbouts(first.page);
      await takeTour(first.page, 8);
      for (const kind of ["cross", "decoder"]) await readNumbers(first.page, kind, [3, 1]);
      await playForward(first.page);
      assert.deepEqual(first.reports, [], `${name}: tour, numbers and animation`);
      await first.page.close();
      const results = [], views = [];
      for (const engine of ["null", "browser"]) {
        const { page, reports } = await open(browser, `${server.address}#view=writing&engine=${engine}`);
        for (const text of SENTENCES) {
          await type(page, text);
          await waitForOutput(page, expected[SENTENCES.indexOf(text)]);
          results.push(await resultOf(page));
        }
        await tryEverything(page, `${name}-served-${engine}`, expected);
        const how = { isExact: true, name: `${name}, engine ${engine}` };
        views.push(await checkWhy(page, `${server.address}#engine=${engine}`, expectedCauses, how));
        assert.deepEqual(reports, [], `${name}, engine ${engine}`);
        await page.close();
      }
      const half = results.length / 2;
      assert.deepEqual(results.slice(half), results.slice(0, half), `${name}: the engines of server and browser agree`);
      assertSameView(views[1], views[0], `${name}: the engines of server and browser agree in “Why”`);
      await checkRecorded(browser);
      await checkDetails(browser);
      if (name === "chromium") { // the other one would find the same
        const start = Date.now();
        await checkAccessibility(browser);
        lines.push(`axe: ${Math.round((Date.now() - start) / 1000)} s`);
      }
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
