// Check a web export of the demo in Chromium and Firefox, opened from files: make test-web.
//   node tests/web/check_export.mjs CUTAWAY RUN      CUTAWAY: the command, such as .venv/bin/cutaway

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { launch } from "./browsers.mjs";

const SENTENCES = [
  "The small cat sleeps under the table.", "We think that he dances on the small beach.", "Is she in the village?",
  "The old king does not like the red apples because he is sick.", "",
];
const LONGEST_FRAME = 50; // milliseconds
const [cutaway, run] = process.argv.slice(2);
if (!run) throw new Error("Usage: node check_export.mjs CUTAWAY RUN");
const folder = mkdtempSync(join(tmpdir(), "cutaway-web-"));
const lines = [];

function command(...words) {
  return execFileSync(cutaway, words, { encoding: "utf8", stdio: ["ignore", "pipe", "ignore"] });
}

/** Open the export; return its page and what was reported. */
async function open(browser, path) {
  const page = await browser.newPage(), reports = [];
  page.on("console", (message) => reports.push(message.text()));
  page.on("pageerror", (error) => reports.push(error.message));
  page.on("request", (request) => {
    if (!/^(file|data|blob):/.test(request.url())) reports.push(`request to ${request.url()}`);
  });
  await page.goto(pathToFileURL(join(path, "index.html")).href);
  return { page, reports };
}

const outputOf = (page) => page.$eval("output", (output) => output.textContent);
const waitForOutput = (page, wanted) =>
  page.waitForFunction((text) => document.querySelector("output").textContent === text, { timeout: 30_000 }, wanted);

/** Measured in the page: loading, a translation, and the longest time between two frames while the model computes. */
function measure(text) {
  return (async () => {
    const start = performance.now(), model = await Cutaway.load();
    const loaded = performance.now();
    let last = performance.now(), longest = 0, isRunning = true;
    const frame = () => {
      const now = performance.now();
      [longest, last] = [Math.max(longest, now - last), now];
      if (isRunning) setTimeout(frame, 0);
    };
    frame();
    const times = [];
    for (let i = 0; i < 5; i++) {
      const before = performance.now();
      await model.translate(text, { strategy: "greedy", minLength: 30, maxLength: 30 });
      times.push(performance.now() - before);
    }
    isRunning = false;
    model.close();
    return { load: loaded - start, first: times[0], best: Math.min(...times), longest };
  })();
}

try {
  const files = Object.fromEntries(["float16", "int8"].map((dtype) => [dtype, join(folder, dtype)]));
  for (const [dtype, path] of Object.entries(files)) command("export", run, path, "--to", "web", "--dtype", dtype);
  const found = command("translate", run, ...SENTENCES.filter(Boolean), "--json").trim().split("\n").map(JSON.parse);
  const expected = SENTENCES.map((text) => (text ? found.shift().text : ""));
  const damaged = join(folder, "damaged"), script = readFileSync(join(files.float16, "model.js"), "utf8");
  cpSync(files.float16, damaged, { recursive: true });
  const middle = Math.floor(script.length / 2), other = script[middle] === "A" ? "B" : "A";
  writeFileSync(join(damaged, "model.js"), script.slice(0, middle) + other + script.slice(middle + 1));
  for (const name of ["chromium", "firefox"]) {
    const browser = await launch(name);
    try {
      for (const [dtype, path] of Object.entries(files)) {
        const { page, reports } = await open(browser, path);
        await waitForOutput(page, "");
        for (const [i, text] of SENTENCES.entries()) {
          await page.$eval("textarea", (area, value) => { area.value = value; }, text);
          await page.$eval("output", (output) => { output.textContent = "waiting"; });
          await page.click("button");
          if (dtype === "float16") await waitForOutput(page, expected[i]);
          else await page.waitForFunction(() => document.querySelector("output").textContent !== "waiting");
        }
        assert.deepEqual(reports, [], `${name}, ${dtype}`);
        const { load, first, best, longest } = await page.evaluate(measure, SENTENCES[3]);
        lines.push(`${name}, ${dtype}: load ${Math.round(load)} ms, 30 tokens ${Math.round(first)} ms, then ${Math.round(best)} ms, ` +
          `the page waited at most ${Math.round(longest)} ms`);
        if (!process.env.CI) assert.ok(longest < LONGEST_FRAME, `${name}: the page waited ${longest} ms`);
        await page.close();
      }
      const { page } = await open(browser, damaged);
      await page.waitForFunction(() => !/^(Loading.*)?$/.test(document.querySelector("output").textContent));
      const message = await outputOf(page);
      assert.match(message, /model\.safetensors.*(damaged|checksum)/s);
      lines.push(`${name}, damaged weights: ${message}`);
    } finally {
      await browser.close();
    }
  }
  console.log(lines.join("\n"));
} finally {
  rmSync(folder, { recursive: true, force: true });
}
