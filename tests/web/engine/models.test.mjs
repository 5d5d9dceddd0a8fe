// Every value that a model computes equals that of the NumPy twin, or of PyTorch in double precision, for all choices
// of its parts.

import assert from "node:assert/strict";
import {after, test} from "node:test";

import {buildModel} from "../../../src/cutaway/explore/page/engine/build.js";
import {erf} from "../../../src/cutaway/explore/page/engine/feedforward.js";
import {lens, streamProbes} from "../../../src/cutaway/explore/page/engine/lens.js";
import {Causal, Mask, SlidingWindow, Span} from "../../../src/cutaway/explore/page/engine/masks.js";
import {editActivations, probes, recordActivations, withoutHead}
  from "../../../src/cutaway/explore/page/engine/probe.js";
import {t5Bucket} from "../../../src/cutaway/explore/page/engine/relative_positions.js";
import {DEFAULTS} from "../../../src/cutaway/explore/page/engine/settings.js";
import {Tensor} from "../../../src/cutaway/explore/page/engine/tensor.js";
import {compareProbes, deviation, inputsOf, TOLERANCE} from "./comparing.mjs";
import {CASES, expectedProbes, modelOf, readBytes, readFixture} from "./models.mjs";

let worst = 0, where = "", compared = 0;

after(() => {
  const byTwin = CASES.filter(({oracle}) => oracle === "twin").length;
  console.log(`${CASES.length} models (${byTwin} compared with the NumPy twin), ${compared} values, greatest deviation `
    + `${worst.toExponential(1)} (${where})`);
});

for (const [i, fixture] of CASES.entries()) {
  test(`every probe: ${fixture.name}`, async () => {
    for (const [name, by] of await compareProbes(fixture, readBytes(`${i}.safetensors`), readBytes(`${i}.bin`))) {
      assert.ok(by < TOLERANCE, `${fixture.name}: ${name} differs by ${by}`);
      compared++;
      if (by > worst) [worst, where] = [by, `${fixture.name}: ${name}`];
    }
  });
}

const find = (name) => CASES.find((fixture) => fixture.name === name);

test("probes are in the order of computation", async () => {
  const fixture = find("paper"), model = await modelOf(fixture), recorded = recordActivations(model);
  model.forward(...inputsOf(fixture));
  assert.deepEqual([...recorded.keys()], [...expectedProbes(fixture).keys()]);
});

test("a recording has the probes that match, and ends", async () => {
  const fixture = find("paper"), model = await modelOf(fixture);
  const recorded = recordActivations(model, "encoder.*.weights", "head.logits");
  model.forward(...inputsOf(fixture));
  recorded.stop();
  const names = ["encoder.layers.0.self_attention.weights", "encoder.layers.1.self_attention.weights", "head.logits"];
  assert.deepEqual([...recorded.keys()], names);
  assert.ok([...probes(model).values()].every((probe) => !probe.isWatched));
  assert.throws(() => recordActivations(model, "encoder.layer"), {name: "ConfigError", message: /no probe matches/});
});

test("recorded values do not change when the model computes further", async () => {
  const fixture = find("paper"), model = await modelOf(fixture), recorded = recordActivations(model);
  const copies = new Map();
  for (const [name, probe] of probes(model)) probe.watch((value) => { copies.set(name, value.data.slice()); });
  model.forward(...inputsOf(fixture));
  for (const [name, value] of recorded) assert.deepEqual(value.data, copies.get(name), name);
});

test("an edit changes the result until it is stopped", async () => {
  const fixture = find("paper"), model = await modelOf(fixture), inputs = inputsOf(fixture);
  const before = model.forward(...inputs), other = recordActivations(model, "encoder.layers.0.*.stream");
  model.forward(inputs[0].map((row) => row.toReversed()), ...inputs.slice(1));
  other.stop();
  for (const edits of [{"decoder.layers.1.self_attention.heads": withoutHead(0)}, Object.fromEntries(other)]) {
    const edit = editActivations(model, edits);
    assert.ok(deviation(model.forward(...inputs), before) > 1e-3);
    edit.stop();
    assert.deepEqual(model.forward(...inputs), before);
  }
  const edit = editActivations(model, {"decoder.layers.*.heads": withoutHead(1)});
  const recorded = recordActivations(model, "decoder.layers.0.cross_attention.heads");
  model.forward(...inputs);
  edit.stop();
  recorded.stop();
  const heads = recorded.get("decoder.layers.0.cross_attention.heads");
  assert.ok(heads.matrix(1).every((x) => x === 0) && heads.matrix(0).some((x) => x !== 0));
  const wrong = editActivations(model, {"encoder.layers.0.self_attention.heads": before});
  assert.throws(() => model.forward(...inputs), {name: "ConfigError", message: /cannot patch a value of shape/});
  wrong.stop();
});

for (const fixture of CASES.filter(({config}) => config.head === "language" || config.head === "classes")) {
  test(`the last row of the lens is the model's prediction: ${fixture.name}`, async () => {
    const model = await modelOf(fixture);
    const inputs = inputsOf(fixture).map((value) => value?.data ? value : value.slice(0, 1));
    if (inputs.some((value) => value.data) || inputs.slice(1).flat(2).includes(false)) return; // one text, no padding
    const recorded = recordActivations(model, ...streamProbes(model).values());
    const logits = model.forward(...inputs);
    recorded.stop();
    const V = logits.shape.at(-1), answers = Array(logits.data.length / V).fill(1);
    const {rows, tokens, p, final} = lens(model, recorded, answers);
    assert.equal(rows.length, 1 + (model.decoder ?? model.encoder).layers.length);
    answers.forEach((answer, n) => {
      const row = logits.row(n), best = row.indexOf(Math.max(...row));
      const sum = row.reduce((total, x) => total + Math.exp(x - row[best]), 0);
      assert.equal(tokens.at(-1)[n], best);
      assert.ok(Math.abs(p.at(-1)[n] - 1 / sum) < 1e-5);
      assert.ok(Math.abs(final.at(-1)[n] - Math.exp(row[answer] - row[best]) / sum) < 1e-5);
    });
  });
}

test("segments are the first by default", async () => {
  const fixture = find("bert"), model = await modelOf(fixture), {ids, mask} = fixture.inputs;
  const first = ids.map((row) => row.map(() => 0));
  assert.deepEqual(model.forward(ids, mask), model.forward(ids, mask, first));
  assert.notDeepEqual(model.forward(ids, mask), model.forward(...inputsOf(fixture)));
});

test("the buckets of long distances", () => {
  for (const {arguments: given, buckets} of readFixture("buckets.json")) {
    assert.deepEqual(buckets.map((_, i) => t5Bucket(i - 1100, ...given)), buckets, String(given));
  }
});

test("the error function", () => { // from Abramowitz and Stegun, table 7.1, and by symmetry
  for (const [x, y] of [[0, 0], [0.5, 0.5204998778], [1, 0.8427007929], [2, 0.9953222650], [5, 1], [7, 1]]) {
    assert.ok(Math.abs(erf(x) - y) < 1e-10);
    assert.equal(erf(-x), -erf(x));
  }
});

test("linear attention refuses other masks", async () => {
  const model = await modelOf(find("four-heads-linear")), span = new Span(0, 2);
  const mask = new Mask(span, span, [new Causal(), new SlidingWindow(2)]);
  assert.throws(() => model.decoder.layers[0].selfAttention.forward(new Tensor([1, 2, 8]), null, mask),
    {name: "ConfigError", message: /linear attention supports only causal and padding masks/});
});

test("the defaults are those of ModelConfig", () => assert.deepEqual(DEFAULTS, readFixture("defaults.json")));

const REFUSED = [
  [{family: "diffusion"}, /does not support model.family = 'diffusion'; it supports encoder_decoder, encoder/],
  [{attention: "ring"}, /does not support model.attention = 'ring'; it supports full, window, sparse, linear/],
  [{attention: "toString"}, /does not support model.attention = 'toString'/],
  [{position: "xpos"}, /does not support model.position = 'xpos'; it supports sinusoidal/],
  [{position: "rope", rope_scaling: "yarn"}, /does not support model.rope_scaling = 'yarn'; it supports none, linear/],
  [{feed_forward: "mish"}, /does not support model.feed_forward = 'mish'/],
  [{norm: "batch"}, /does not support model.norm = 'batch'; it supports layer, rms/],
  [{norm_placement: "deep"}, /does not support model.norm_placement = 'deep'/],
  [{block: "u"}, /does not support model.block = 'u'/],
  [{embeddings: "hashed"}, /does not support model.embeddings = 'hashed'/],
  [{attention_kernel: "flash"}, /does not support model.attention_kernel = 'flash'/],
  [{family: "encoder", head: "spans"}, /does not support model.head = 'spans'/],
  [{attention: "linear", position: "rope"}, /linear attention has no scores, so it cannot use RotaryPosition/],
  [{n_layers: 3}, /does not know the setting model.n_layers = 3/],
  [{d_model: "8"}, /model.d_model = "8" must be a number/],
  [{n_heads: 3}, /the model's head width is 2.6666666666666665, not a whole number/],
  [{n_heads: 4, n_kv_heads: 3}, /the model's group of heads is 1.33/],
];
for (const [changes, message] of REFUSED) {
  test(`refused by name: ${JSON.stringify(changes)}`, () => {
    const table = {...find("paper").config, ...changes};
    assert.throws(() => buildModel(table, new Map()), {name: "ConfigError", message});
  });
}

test("inputs that cannot be used are refused", async () => {
  const model = await modelOf(find("paper")), refused = {name: "DataError"};
  assert.throws(() => model.encode([[4, 11]]), {...refused, message: "the token id 11 is not between 0 and 10."});
  assert.throws(() => model.encode([[4, NaN]]), refused);
  assert.throws(() => model.encode([[4, 5], [4]]), {...refused, message: /have 2, 1 tokens. Pad them/});
  assert.throws(() => model.encode([[]]), refused);
  assert.throws(() => model.encode([]), refused);
  assert.throws(() => model.encode([Array(33).fill(4)]),
    {...refused, message: /33 tokens; this model has positions for 32/});
  const decoder = await modelOf(find("memory"));
  assert.throws(() => decoder.forward([[4]]), {...refused, message: /has cross-attention but got no memory/});
  const vision = await modelOf(find("colour"));
  assert.throws(() => vision.forward(new Tensor([1, 1, 4, 4])),
    {...refused, message: /images have shape \[1,1,4,4\]; this model expects \[batch,3,4,4\]/});
});
