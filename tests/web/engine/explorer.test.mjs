// The explorer in the browser answers as the one in Python: every request, for a tiny run of each task.

import assert from "node:assert/strict";
import {readFileSync} from "node:fs";
import {join} from "node:path";
import {after, test} from "node:test";

import {Explorer} from "../../../src/cutaway/explore/page/live/explorer.js";
import {dump, readJson} from "./fixtures.mjs";

const FOLDER = dump("dump_explorer.py"), RUNS = readJson(FOLDER, "explorer.json");
const ROUNDING = 1.5e-4; // Python rounds most values to four decimals
const VOLATILE = new Set(["milliseconds"]);
let compared = 0;

after(() => console.log(`${Object.keys(RUNS).length} runs, ${compared} answers compared`));

/** An explorer with this run and its snapshots. */
async function explorerOf(name) {
  const {info, description} = RUNS[name], weights = (...path) => readFileSync(join(FOLDER, name, ...path));
  const files = {...description.files, "model.safetensors": weights("model.safetensors")};
  delete files["checksums.json"]; // those of the file with other number formats
  const explorer = new Explorer();
  await explorer.addRun({number: 0, description: {info, ...description, files}});
  for (const step of info.snapshots) {
    const file = `step_${String(step).padStart(6, "0")}.safetensors`;
    await explorer.addSnapshot({number: 0, step, weights: weights("snapshots", file)});
  }
  return explorer;
}

/** Patching with changes of the margin instead of shares, because shares of a small difference are not exact. */
function inNats({margin, other_margin: otherMargin, grids, parts, sentence}) {
  const others = Math.abs(otherMargin - margin) < 0.02 ? {} : {sentence};
  const change = (share) => share * (otherMargin - margin);
  return {...others, margin, otherMargin, parts: parts.map((part) => ({...part, share: change(part.share)})),
          grids: grids.map((grid) => ({...grid, shares: grid.shares.flat().map(change)}))};
}

async function answer(explorer, method, request) {
  const lines = [];
  const result = await explorer[method](request, {onToken: (line) => lines.push(line)});
  return method === "snapshots" ? lines : result;
}

function assertSame(found, expected, path) {
  if (typeof expected === "number" && typeof found === "number") {
    assert.ok(Math.abs(found - expected) <= ROUNDING * Math.max(1, Math.abs(expected)), `${path}: ${found}, ${expected}`);
  } else if (path.endsWith(".sentence")) {
    const words = (text) => text.replace(/[+-]?\d+(\.\d+)?(?=%| nats|\.| instead)/g, "#");
    assert.equal(words(found), words(expected), path); // the last digit of a number may differ
  } else if (path.endsWith(".tail")) {
    assertSameTail(found, expected, path);
  } else if (Array.isArray(expected)) {
    assert.ok(Array.isArray(found), `${path} is not a list`);
    assert.equal(found.length, expected.length, `length of ${path}`);
    expected.forEach((value, i) => assertSame(found[i], value, `${path}[${i}]`));
  } else if (expected !== null && typeof expected === "object") {
    assert.ok(found !== null && typeof found === "object", `${path} is ${found}`);
    const names = (value) => Object.keys(value).filter((name) => !VOLATILE.has(name) && value[name] !== undefined).sort();
    assert.deepEqual(names(found), names(expected), path);
    for (const name of names(expected)) assertSame(found[name], expected[name], `${path}.${name}`);
  } else {
    assert.equal(found ?? null, expected, path);
  }
}

/** A logit at the border of two bins may be in either. The number of candidates and their probability stay. */
function assertSameTail(found, expected, path) {
  const count = (bins) => bins.reduce((sum, [, n]) => sum + n, 0);
  const mass = (bins) => bins.reduce((sum, [logit, n]) => sum + n * Math.exp(logit), 0);
  assert.equal(count(found), count(expected), path);
  assert.ok(Math.abs(mass(found) - mass(expected)) <= 1e-3 * mass(expected), path);
}

for (const [name, {calls}] of Object.entries(RUNS)) {
  test(name, async () => {
    const explorer = await explorerOf(name);
    for (const {method, request, answer: {result, error, message}} of calls) {
      const context = `${name}: ${method} ${JSON.stringify(request).slice(0, 120)}`;
      if (error) {
        await assert.rejects(answer(explorer, method, request), {name: error}, `${context}: ${message}`);
      } else {
        const found = await answer(explorer, method, request);
        if (method === "patching") assertSame(inNats(found), inNats(result), context);
        else assertSame(found, result, context);
      }
      compared++;
    }
  });
}

test("requests are answered one after the other", async () => {
  const explorer = await explorerOf("words"), [text] = RUNS.words.info.examples;
  const off = [RUNS.words.info.switches[0].id];
  const alone = [await explorer.trace({text}), await explorer.trace({text, off})];
  const together = await Promise.all([explorer.trace({text}), explorer.trace({text, off})]);
  together.forEach((found, i) => assertSame(found, alone[i], `request ${i}`));
});

test("a request can be stopped", async () => {
  const explorer = await explorerOf("words"), [text] = RUNS.words.info.examples, controller = new AbortController();
  const stopped = explorer.ablations({text}, {signal: controller.signal}), next = explorer.trace({text});
  controller.abort();
  await assert.rejects(stopped, {name: "AbortError"});
  assertSame(await next, await explorer.trace({text}), "the next request");
});
