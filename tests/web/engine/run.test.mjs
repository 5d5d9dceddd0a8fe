// A trained translator: the same logits and translations as PyTorch, and how long a translation takes.
//
// ENGINE_RUN names the folder of the run; without it and without runs/demo, the test is skipped.

import assert from "node:assert/strict";
import {existsSync, readFileSync} from "node:fs";
import {join} from "node:path";
import {test} from "node:test";
import {fileURLToPath} from "node:url";

import {buildModel} from "../../../src/cutaway/explore/page/engine/build.js";
import {TranslationStepper} from "../../../src/cutaway/explore/page/engine/stepper.js";
import {Tensor} from "../../../src/cutaway/explore/page/engine/tensor.js";
import {readWeights} from "../../../src/cutaway/explore/page/engine/weights.js";
import {deviation} from "./comparing.mjs";
import {dump} from "./fixtures.mjs";

const RUN = process.env.ENGINE_RUN ?? fileURLToPath(new URL("../../../runs/demo", import.meta.url));

test("a trained run", {skip: !existsSync(RUN) && "there is no trained run"}, async (context) => {
  const folder = dump("dump_run.py", RUN), bytes = Uint8Array.from(readFileSync(join(folder, "run.bin")));
  const values = new Float64Array(bytes.buffer);
  const {bos, eos, vocab_size: V, sentences} = JSON.parse(readFileSync(join(folder, "run.json"), "utf-8"));
  const {model: table} = JSON.parse(readFileSync(join(RUN, "config.json"), "utf-8"));
  const weights = await readWeights(readFileSync(join(RUN, "model.safetensors")), {mustBeSealed: true});
  const model = buildModel(table, weights);

  await context.test("the same logits", () => {
    let worst = 0;
    for (const {source, target, start} of sentences) {
      const logits = model.forward([source], [[bos, ...target]]), shape = [1, target.length + 1, V];
      const by = deviation(logits, {shape, data: values.subarray(start, start + logits.data.length)});
      assert.ok(by < 1e-4, `logits of ${source} differ by ${by}`);
      worst = Math.max(worst, by);
    }
    console.log(`${sentences.length} sentences, greatest deviation of the logits ${worst.toExponential(1)}`);
  });

  await context.test("the same greedy translations", () => {
    for (const {source, target} of sentences) {
      assert.deepEqual(greedy(model, source, bos, 40, eos), target);
    }
  });

  await context.test("a translation of 30 tokens is fast", () => {
    const source = [...sentences.flatMap(({source}) => source.slice(0, -1)).slice(0, 30), eos], times = [];
    for (let i = 0; i < 8; i++) {
      const start = performance.now();
      assert.equal(greedy(model, source, bos, 30).length, 30);
      times.push(performance.now() - start);
    }
    const best = Math.min(...times);
    console.log(`30 tokens from ${source.length}: first ${times[0].toFixed(0)} ms, best ${best.toFixed(0)} ms`);
    assert.ok(best < 300);
  });
});

function greedy(model, source, bos, maxLength, eos = null) {
  const stepper = new TranslationStepper(model, [source]), tokens = [];
  for (let token = bos; tokens.length < maxLength; tokens.push(token)) {
    const [logits] = stepper.step([token]);
    token = logits.indexOf(Math.max(...logits));
    if (token === eos) break;
  }
  return tokens;
}
