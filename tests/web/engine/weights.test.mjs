// Weights files: number formats, checksums, and what is said of damaged files.

import assert from "node:assert/strict";
import {test} from "node:test";

import {buildModel} from "../../../src/cutaway/explore/page/engine/build.js";
import {readWeights} from "../../../src/cutaway/explore/page/engine/weights.js";
import {CASES, readBytes, readFixture} from "./models.mjs";

for (const format of ["F32", "F16", "BF16", "I8"]) {
  test(`the numbers of ${format}`, async () => {
    const found = await readWeights(readBytes(`${format}.safetensors`)), expected = readFixture(`${format}.json`);
    assert.deepEqual([...found.keys()].sort(), Object.keys(expected).sort());
    for (const [name, {shape, data}] of Object.entries(expected)) {
      assert.deepEqual(found.get(name).shape, shape);
      assert.deepEqual(found.get(name).data, Float32Array.from(data, Number), name);
    }
  });
}

test("other formats are refused by name", async () => {
  await assert.rejects(readWeights(readBytes("F64.safetensors"), {where: "x.safetensors"}),
    {name: "RunError", message: /^x.safetensors: the numbers of x have the type F64; .* supports F32, F16, BF16, I8/});
});

test("8-bit numbers need their scales", async () => {
  const file = withHeader({w: {dtype: "I8", shape: [1, 2], data_offsets: [0, 2]}}, Uint8Array.of(1, 2));
  await assert.rejects(readWeights(file),
    {name: "RunError", message: /w has 8-bit numbers, but no w.scale with 1 numbers/});
});

test("a file may start anywhere in a buffer", async () => {
  const bytes = readBytes("F32.safetensors"), buffer = new Uint8Array(bytes.length + 3);
  buffer.set(bytes, 3);
  const expected = await readWeights(bytes);
  for (const same of [buffer.subarray(3), bytes.slice().buffer, Buffer.from(buffer.buffer, 3)]) {
    assert.deepEqual(await readWeights(same), expected);
  }
});

test("a cut file is refused, wherever it is cut", async () => {
  const bytes = readBytes("0.safetensors"), cuts = [0, 1, 7, 8, 9, 100];
  for (let length = 200; length < bytes.length; length += 331) cuts.push(length);
  for (const length of [...cuts, bytes.length - 1]) {
    await assert.rejects(readWeights(bytes.subarray(0, length), {where: "model.safetensors"}), {
      name: "RunError",
      message: /^model.safetensors is damaged: it(s header| has \d+ bytes).*\. Restore it from a copy\.$/,
    });
  }
});

test("a changed file is refused, wherever it is changed", async () => {
  const bytes = readBytes("0.safetensors");
  for (let at = 0; at < bytes.length; at += 61) {
    const changed = bytes.slice();
    changed[at] ^= 4;
    await assert.rejects(readWeights(changed, {mustBeSealed: true}), (error) => {
      assert.equal(error.name, "RunError", `${at}: ${error.stack}`);
      return true;
    });
  }
});

test("a given checksum is compared with that of the file", async () => {
  const bytes = readBytes("0.safetensors"), digest = new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
  const sha256 = Buffer.from(digest).toString("hex");
  await readWeights(bytes, {sha256});
  await assert.rejects(readWeights(bytes, {sha256: sha256.replace(/./, (digit) => digit === "0" ? "1" : "0")}),
    {name: "RunError", message: /its checksum differs from the one it was written with/});
});

test("headers that make no sense are refused", async () => {
  const entry = {dtype: "F32", shape: [1], data_offsets: [0, 4]};
  for (const header of [null, [], 5, "x", {w: null}, {w: {}}, {w: {...entry, shape: [2]}}, {w: {...entry, shape: null}},
                        {w: {...entry, data_offsets: [4, 0]}}, {w: {...entry, data_offsets: [-4, 4]}},
                        {w: {...entry, shape: [-1]}}, {w: {...entry, dtype: "toString"}},
                        {__metadata__: 3, w: {...entry, shape: [2]}}]) {
    const file = withHeader(header, new Uint8Array(4));
    await assert.rejects(readWeights(file), {name: "RunError"}, JSON.stringify(header));
  }
});

test("weights that do not fit are named", async () => {
  const {config} = CASES.find(({name}) => name === "paper");
  const weights = await readWeights(readBytes(`${CASES.findIndex(({name}) => name === "paper")}.safetensors`));
  const refused = (table, given, message) =>
    assert.throws(() => buildModel(table, given, "w.safetensors"), {name: "RunError", message});
  refused({...config, vocab_size: 12}, weights,
    /^w.safetensors does not fit the model: source_embedding.tokens.weight has the shape \[11,8\] instead of \[12,8\]/);
  refused({...config, embeddings: "separate"}, weights,
    /missing head.weight, target_embedding.tokens.weight, unknown nothing. Check that config.json belongs/);
  refused(config, new Map([...weights, ["x", weights.get("encoder.layers.0.self_attention.key.bias")]]), /unknown x\./);
  refused(config, new Map(), /missing decoder.layers.*, .*, .* and \d+ more, unknown nothing/);
});

/** A weights file with any header. */
function withHeader(header, data) {
  const text = new TextEncoder().encode(JSON.stringify(header)), bytes = new Uint8Array(8 + text.length + data.length);
  new DataView(bytes.buffer).setBigUint64(0, BigInt(text.length), true);
  bytes.set(text, 8);
  bytes.set(data, 8 + text.length);
  return bytes;
}
