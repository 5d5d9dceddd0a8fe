// Check a web export of the demo in Chromium and Firefox, opened from files: make test-web.
//   node tests/web/check_export.mjs CUTAWAY RUN      CUTAWAY: the command, such as .venv/bin/cutaway

import assert from "node:assert/strict";
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { addWatch, launch, open, run as runCommand } from "./browsers.mjs";

const SENTENCES = [
  "The small cat sleeps under the table.", "We think that he dances on the small beach.", "Is she in the village?",
  "The old king does not like the red apples because he is sick.", "",
];
const LONGEST_FRAME = 50; // milliseconds
const [cutaway, run] = process.argv.slice(2);
if (!run) throw new Error("Usage: node check_export.mjs CUTAWAY RUN");
const folder = mkdtempSync(join(tmpdir(), "cutaway-web-"));
const lines = [];

const command = (...words) => runCommand(cutaway, ...words);
const addressOf = (path) => pathToFileURL(join(path, "index.html")).href;
const outputOf = (page) => page.$eval("output", (output) => output.textContent);
const waitForOutput = (page, wanted) =>
  page.waitForFunction((text) => document.querySelector("output").textContent === text, { timeout: 30_000 }, wanted);

/** Measured in the page: loading, and translations. */
async function measure(text) {
  const start = performance.now(), model = await Cutaway.load(), load = performance.now() - start;
  const { result: times, longest } = await watch(async () => {
    const found = [];
    for (let i = 0; i < 5; i++) {
      const before = performance.now();
      await model.translate(text, { strategy: "greedy", minLength: 30, maxLength: 30 });
      found.push(performance.now() - before);
    }
    return found;
  });
  model.close();
  return { load, first: times[0], best: Math.min(...times), longest };
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
        const { page, reports } = await open(browser, addressOf(path));
        await waitForOutput(page, "");
        for (const [i, text] of SENTENCES.entries()) {
          await page.$eval("textarea", (area, value) => { area.value = value; }, text);
          await page.$eval("output", (output) => { output.textContent = "waiting"; });
          await page.click("button");
          if (dtype === "float16") await waitForOutput(page, expected[i]);
          else await page.waitForFunction(() => document.querySelector("output").textContent !== "waiting");
        }
        assert.deepEqual(reports, [], `${name}, ${dtype}`);
        await addWatch(page);
        const { load, first, best, longest } = await page.evaluate(measure, SENTENCES[3]);
        lines.push(`${name}, ${dtype}: load ${Math.round(load)} ms, 30 tokens ${Math.round(first)} ms, then ${Math.round(best)} ms, ` +
          `the page waited at most ${Math.round(longest)} ms`);
        if (!process.env.CI) assert.ok(longest < LONGEST_FRAME, `${name}: the page waited ${longest} ms`);
        await page.close();
      }
      const { page } = await open(browser, addressOf(damaged));
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
