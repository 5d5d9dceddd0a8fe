// A trained translator: the same logits and translations as PyTorch, and how long a translation takes.
//
// ENGINE_RUN names the folder of the run; without it and without runs/demo, the test is skipped.

import assert from "node:assert/strict";
import {existsSync, readFileSync} from "node:fs";
import {join} from "node:path";
import {test} from "node:test";
import {fileURLToPath} from "node:url";

import {load} from "../../../src/cutaway/explore/page/engine/index.js";
import {Run} from "../../../src/cutaway/explore/page/engine/run.js";
import {deviation} from "./comparing.mjs";
import {dump, filesOf, readJson} from "./fixtures.mjs";

const RUN = process.env.ENGINE_RUN ?? fileURLToPath(new URL("../../../runs/demo", import.meta.url));
const TIE = 1e-4; // of two log-probabilities

test("a trained run", {skip: !existsSync(RUN) && "there is no trained run"}, async (context) => {
  const folder = dump("dump_run.py", RUN), bytes = Uint8Array.from(readFileSync(join(folder, "run.bin")));
  const values = new Float64Array(bytes.buffer);
  const {bos, vocab_size: V, beamSize, sentences} = readJson(folder, "run.json"), model = await load(filesOf(RUN));

  await context.test("the same logits", async () => {
    const {model: network} = await Run.load(filesOf(RUN));
    let worst = 0;
    for (const {source, greedy: {tokens}, start} of sentences) {
      const logits = network.forward([source], [[bos, ...tokens]]), shape = [1, tokens.length + 1, V];
      const by = deviation(logits, {shape, data: values.subarray(start, start + logits.data.length)});
      assert.ok(by < 1e-4, `logits of ${source} differ by ${by}`);
      worst = Math.max(worst, by);
    }
    console.log(`${sentences.length} sentences, greatest deviation of the logits ${worst.toExponential(1)}`);
  });

  for (const strategy of ["greedy", "beam"]) {
    await context.test(`the same translations: ${strategy}`, async () => {
      let ties = 0;
      for (const {text, [strategy]: expected} of sentences) {
        const found = await model.translate(text, strategy === "beam" ? {strategy, beamSize} : {strategy});
        if (found.text === expected.text) continue;
        const by = Math.abs(distance(strategy, found, expected));
        assert.ok(by < TIE, `${text}: ${found.text} instead of ${expected.text}, which differs by ${by}`);
        console.log(`a tie (${by.toExponential(1)}): ${text} -> ${found.text} | ${expected.text}`);
        ties += 1;
      }
      console.log(`${strategy}: ${sentences.length} translations as engine torch, ${ties} of them ties`);
    });
  }

  await context.test("a translation of 30 tokens is fast", async () => {
    const text = sentences.map((one) => one.text).join(" ").split(" ").slice(0, 25).join(" "), times = [];
    for (let i = 0; i < 8; i++) {
      const start = performance.now();
      const {ids} = await model.translate(text, {strategy: "greedy", minLength: 30, maxLength: 30});
      times.push(performance.now() - start);
      assert.equal(ids.length, 30);
    }
    const best = Math.min(...times);
    console.log(`30 tokens: first ${times[0].toFixed(0)} ms, best ${best.toFixed(0)} ms`);
    assert.ok(best < 300);
  });
});

/** Of greedy search, the log-probabilities at the first token that differs; of beam search, the scores. */
function distance(strategy, found, expected) {
  if (strategy === "beam") return found.score - expected.score;
  const at = expected.tokens.findIndex((token, i) => token !== found.ids[i]);
  const i = at < 0 ? expected.tokens.length : at; // only one of them ends here
  return found.tokenLogP[i] - expected.token_log_probs[i];
}
