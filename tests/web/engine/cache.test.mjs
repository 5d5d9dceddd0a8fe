// Decoding with a cache gives the same as without; the steppers, too, when rows are dropped, repeated and reordered.

import assert from "node:assert/strict";
import {after, test} from "node:test";

import {recordActivations} from "../../../src/cutaway/explore/page/engine/probe.js";
import {TextStepper, TranslationStepper} from "../../../src/cutaway/explore/page/engine/stepper.js";
import {Tensor} from "../../../src/cutaway/explore/page/engine/tensor.js";
import {deviation, inputsOf} from "./comparing.mjs";
import {CASES, modelOf} from "./models.mjs";

const TOLERANCE = 1e-5;
const IDS = [[4, 9, 5, 5, 8, 10, 7], [6, 6, 4, 10, 9, 4, 8], [7, 5, 10, 4, 4, 6, 9]];
const SOURCE = [[8, 4, 7, 10, 9], [5, 6, 9, 0, 0], [10, 0, 0, 0, 0]];
const SOURCE_MASK = SOURCE.map((row) => row.map((id) => id > 0));
const WRITERS = CASES.filter(({config}) => ["encoder_decoder", "decoder"].includes(config.family));
let worst = 0;

after(() => console.log(`${WRITERS.length} models, greatest deviation ${worst.toExponential(1)}`));

function compare(found, expected, name) {
  const by = deviation(found, expected);
  assert.ok(by < TOLERANCE, `${name} differs by ${by}`);
  worst = Math.max(worst, by);
}

/** x [B,T,D] of the ids, with a cache or without. */
function decoderOf(fixture, model) {
  if (fixture.config.family === "encoder_decoder") {
    const memory = model.encode(SOURCE, SOURCE_MASK);
    return (ids, cache) => model.decode(ids, memory, SOURCE_MASK, null, cache);
  }
  const [, , memory = null, memoryMask = null] = inputsOf(fixture);
  return (ids, cache) => model.decode(ids, null, memory, memoryMask, cache);
}

for (const fixture of WRITERS) {
  test(`cached equals uncached: ${fixture.name}`, async () => {
    const model = await modelOf(fixture), decode = decoderOf(fixture, model), cache = model.newCache();
    const whole = decode(IDS), D = whole.shape[2];
    let start = 0;
    for (const length of [2, 1, 3, 1]) {
      const part = decode(IDS.map((row) => row.slice(start, start + length)), cache);
      IDS.forEach((_, b) => compare(new Tensor([length, D], part.matrix(b)),
        new Tensor([length, D], whole.matrix(b).subarray(start * D, (start + length) * D)), `text ${b}, ${start}`));
      start += length;
      assert.equal(cache.length, start);
    }
  });

  test(`a forward that fails does not advance the cache: ${fixture.name}`, async () => {
    const model = await modelOf(fixture), decode = decoderOf(fixture, model), cache = model.newCache();
    decode(IDS, cache);
    assert.throws(() => decode(IDS.map(() => [99]), cache), {name: "DataError"});
    assert.equal(cache.length, 7);
  });

  if (fixture.config.cross_attention) continue;
  test(`rows of a stepper: ${fixture.name}`, async () => {
    const model = await modelOf(fixture), isTranslator = fixture.config.family === "encoder_decoder";
    const prompts = [[4, 5, 6], [7, 8, 9], [10, 4, 10]];
    const stepper = isTranslator ? new TranslationStepper(model, SOURCE, SOURCE_MASK) : new TextStepper(model, prompts);
    let texts = isTranslator ? [[], [], []] : prompts.map((prompt) => prompt.slice(0, -1)), sources = [0, 1, 2];
    const follow = (tokens) => {
      const logits = stepper.step(tokens);
      texts = texts.map((text, row) => [...text, tokens[row]]);
      texts.forEach((text, row) => {
        const whole = isTranslator
          ? model.forward([SOURCE[sources[row]]], [text], [SOURCE_MASK[sources[row]]]) : model.forward([text]);
        const V = whole.shape[2];
        compare(new Tensor([V], logits[row]), new Tensor([V], whole.row(text.length - 1)), `row ${row} of ${texts}`);
      });
    };
    const keep = (rows) => {
      stepper.keep(rows);
      [texts, sources] = [rows.map((row) => texts[row]), rows.map((row) => sources[row])];
    };
    follow(prompts.map((prompt) => prompt.at(-1)));
    follow([4, 4, 4]);
    keep([2, 0, 0, 1]); // reordered and repeated
    follow([5, 6, 7, 8]);
    keep([3, 1]); // dropped
    for (let i = 0; i < 14; i++) follow([4 + i % 7, 10 - i % 7]); // beyond the first buffers
    keep([1]);
    follow([5]);
  });
}

test("a stepper reports where the last layer attends to in the source", async () => {
  const model = await modelOf(CASES.find(({name}) => name === "paper"));
  const stepper = new TranslationStepper(model, SOURCE, SOURCE_MASK, true);
  stepper.step([4, 4, 4]);
  stepper.keep([1, 0]);
  const recorded = recordActivations(model, "decoder.layers.1.cross_attention.weights");
  stepper.step([5, 6]);
  recorded.stop();
  const [[, weights]] = recorded, [N, H, , S] = weights.shape;
  for (let n = 0; n < N; n++) {
    for (let s = 0; s < S; s++) {
      const mean = Array.from({length: H}, (_, h) => weights.row(n * H + h)[s]).reduce((a, b) => a + b) / H;
      assert.ok(Math.abs(stepper.sourceWeights[n][s] - mean) < 1e-7);
    }
  }
  assert.ok(stepper.sourceWeights[0].slice(3).every((weight) => weight === 0)); // padding of SOURCE[1]
  assert.ok(!model.decoder.layers[1].crossAttention.weights.isWatched);
});
