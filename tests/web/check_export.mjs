// Check a web export of the demo in Chromium and Firefox, opened from files and from a server: make test-web.
//   node tests/web/check_export.mjs CUTAWAY RUN      CUTAWAY: the command, such as .venv/bin/cutaway

import assert from "node:assert/strict";
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { addWatch, launch, open, run as runCommand, serveFolders } from "./browsers.mjs";

const SENTENCES = [
  "The small cat sleeps under the table.", "We think that he dances on the small beach.", "Is she in the village?",
  "The old king does not like the red apples because he is sick.", "",
];
const LONGEST_FRAME = 50, LONGEST_TRANSLATION = 300; // milliseconds; the translation has 30 tokens
const TRIES = 3; // other work on the machine makes single times longer
const DTYPES = ["float16", "int8"];
const MODULE_PAGE = '<!doctype html><html lang="en"><meta charset="utf-8"><title>Module</title><link rel="icon" href="data:,">'
  + '<script type="module">import {load} from "./engine/index.js"; globalThis.Cutaway = {load: () => load("./")};</script>';
const NO_WORKERS = '<meta http-equiv="Content-Security-Policy" content="worker-src \'none\'">';
const [cutaway, run] = process.argv.slice(2);
if (!run) throw new Error("Usage: node check_export.mjs CUTAWAY RUN");
const isTimed = !process.env.CI; // other work on the machine makes times useless
const folder = mkdtempSync(join(tmpdir(), "cutaway-web-"));
const lines = [];

const command = (...words) => runCommand(cutaway, ...words);
const addressOf = (name) => pathToFileURL(join(folder, name, "index.html")).href;
const waitForOutput = (page, wanted) =>
  page.waitForFunction((text) => document.querySelector("output").textContent === text, { timeout: 30_000 }, wanted);

/** Type each sentence into the example page. `expected` is null for outputs that may differ. */
async function typeSentences(page, expected) {
  await waitForOutput(page, "");
  for (const [i, text] of SENTENCES.entries()) {
    await page.$eval("textarea", (area, value) => { area.value = value; }, text);
    await page.$eval("output", (output) => { output.textContent = "waiting"; });
    await page.click("button");
    if (expected) await waitForOutput(page, expected[i]);
    else await page.waitForFunction(() => document.querySelector("output").textContent !== "waiting");
  }
}

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

async function checkTimes(page, kind) {
  await addWatch(page);
  let found;
  for (let i = 0; i < TRIES && !(found?.longest < LONGEST_FRAME && found.first < LONGEST_TRANSLATION); i++) {
    found = await page.evaluate(measure, SENTENCES[3]);
  }
  const { load, first, best, longest } = found;
  lines.push(`${kind}: load ${Math.round(load)} ms, 30 tokens ${Math.round(first)} ms, then ${Math.round(best)} ms, ` +
    `the page waited at most ${Math.round(longest)} ms`);
  if (!isTimed) return;
  assert.ok(longest < LONGEST_FRAME, `${kind}: the page waited ${longest} ms`);
  assert.ok(first < LONGEST_TRANSLATION, `${kind}: 30 tokens took ${first} ms`);
}

/** A page that imports the engine computes in a worker, which is a module; or in the page, if it may not start workers. */
async function checkModules(browser, name, address, expected) {
  for (const [file, workers] of [["module", [`${address}float16/engine/worker_module.js`]], ["no_workers", []]]) {
    const { page, reports } = await open(browser, `${address}float16/${file}.html`);
    await page.waitForFunction(() => globalThis.Cutaway);
    const found = await page.evaluate(async (texts) => {
      const model = await Cutaway.load();
      return Promise.all(texts.map(async (text) => (await model.translate(text)).text));
    }, SENTENCES);
    assert.deepEqual(found, expected, `${name}, ${file}`);
    assert.deepEqual(page.workers().map((worker) => worker.url()), workers, `${name}, ${file}`);
    if (workers.length) { // without a worker, the page waits longer, and browsers report the refusal
      await checkTimes(page, `${name}, modules over HTTP`);
      assert.deepEqual(reports, [], `${name}, ${file}`);
    }
    await page.close();
  }
}

/** Files that were damaged, cut or lost. Each has its sentence. */
async function checkDamage(browser, name) {
  const sentences = { damaged: /^model\.safetensors is damaged: its checksum differs/ };
  for (const kind of ["cut", "empty", "missing"]) sentences[kind] = /^model\.js is missing, damaged or incomplete\. Restore it/;
  for (const [kind, sentence] of Object.entries(sentences)) {
    const { page } = await open(browser, addressOf(kind));
    await page.waitForFunction(() => !/^(Loading.*)?$/.test(document.querySelector("output").textContent));
    const message = await page.$eval("output", (output) => output.textContent);
    assert.match(message, sentence, `${name}, ${kind}`);
    lines.push(`${name}, ${kind} model.js: ${message}`);
    await page.close();
  }
}

let server = null;
try {
  for (const dtype of DTYPES) command("export", run, join(folder, dtype), "--to", "web", "--dtype", dtype);
  writeFileSync(join(folder, "float16", "module.html"), MODULE_PAGE);
  writeFileSync(join(folder, "float16", "no_workers.html"), MODULE_PAGE.replace("<title>", `${NO_WORKERS}<title>`));
  const translated = command("translate", run, ...SENTENCES.filter(Boolean), "--json").trim().split("\n").map(JSON.parse);
  const expected = SENTENCES.map((text) => (text ? translated.shift().text : ""));
  const script = readFileSync(join(folder, "float16", "model.js"), "utf8"), middle = Math.floor(script.length / 2);
  const damaged = script.slice(0, middle) + (script[middle] === "A" ? "B" : "A") + script.slice(middle + 1);
  for (const [kind, text] of Object.entries({ damaged, cut: script.slice(0, middle), empty: "", missing: null })) {
    cpSync(join(folder, "float16"), join(folder, kind), { recursive: true });
    if (text === null) rmSync(join(folder, kind, "model.js"));
    else writeFileSync(join(folder, kind, "model.js"), text);
  }
  server = await serveFolders({ "/": folder });
  for (const name of ["chromium", "firefox"]) {
    const browser = await launch(name);
    try {
      for (const dtype of DTYPES) {
        const { page, reports } = await open(browser, addressOf(dtype));
        await typeSentences(page, dtype === "float16" ? expected : null);
        assert.deepEqual(reports, [], `${name}, ${dtype}`);
        await checkTimes(page, `${name}, ${dtype}`);
        await page.close();
      }
      const { page, reports } = await open(browser, `${server.address}float16/index.html`);
      await typeSentences(page, expected);
      await checkTimes(page, `${name}, float16 over HTTP`);
      assert.deepEqual(reports, [], `${name}, HTTP`);
      await page.close();
      await checkModules(browser, name, server.address, expected);
      await checkDamage(browser, name);
    } finally {
      await browser.close();
    }
  }
  console.log(lines.join("\n"));
} finally {
  server?.close();
  rmSync(folder, { recursive: true, force: true });
}
