// Compare values of the engine with those of Python. The browser check uses this module too.

import {buildModel} from "../../../src/cutaway/explore/page/engine/build.js";
import {recordActivations} from "../../../src/cutaway/explore/page/engine/probe.js";
import {Tensor} from "../../../src/cutaway/explore/page/engine/tensor.js";
import {readWeights} from "../../../src/cutaway/explore/page/engine/weights.js";

export const TOLERANCE = 1e-4;

/** The arguments of `model.forward`. */
export function inputsOf(fixture) {
  return Object.entries(fixture.inputs).map(([name, value]) =>
    ["images", "memory"].includes(name) ? toTensor(value) : value);
}

/** Probe name -> {shape, data}, as PyTorch computed it in double precision, in the order of computation. */
export function expectedOf(fixture, bytes) {
  const values = new Float64Array(bytes.slice().buffer);
  return new Map(fixture.probes.map(({name, shape, start}) => {
    const n = shape.reduce((product, length) => product * length, 1);
    return [name, {shape, data: values.subarray(start, start + n)}];
  }));
}

/**
 * Run the model of a case. -> [name of a probe, its deviation], and the result of a run without probes
 * @param {Uint8Array} weights
 * @param {Uint8Array} expectedBytes
 */
export async function compareProbes(fixture, weights, expectedBytes) {
  const model = buildModel(fixture.config, await readWeights(weights));
  const expected = expectedOf(fixture, expectedBytes), recorded = recordActivations(model), inputs = inputsOf(fixture);
  model.forward(...inputs);
  recorded.stop();
  const [found, wanted] = [recorded, expected].map((values) => [...values.keys()].sort().join(" "));
  if (found !== wanted) throw new Error(`${fixture.name}: the probes are ${found} instead of ${wanted}`);
  const rows = [...recorded].map(([name, value]) => [name, deviation(value, expected.get(name))]);
  const result = model.forward(...inputs); // without probes, linear attention computes sums
  return [...rows, ["the result", deviation(result, [...expected].at(-1)[1])]];
}

/** Nested lists as a tensor. */
export function toTensor(lists) {
  const shape = [];
  for (let inner = lists; Array.isArray(inner); inner = inner[0]) shape.push(inner.length);
  return new Tensor(shape, Float32Array.from(lists.flat(Infinity)));
}

/** The largest difference, as a share of the largest expected number. */
export function deviation(found, expected) {
  if (String(found.shape) !== String(expected.shape)) return Infinity;
  let largest = 0, difference = 0;
  for (let i = 0; i < expected.data.length; i++) {
    const distance = Math.abs(found.data[i] - expected.data[i]);
    if (Number.isNaN(distance)) return NaN;
    difference = Math.max(difference, distance);
    largest = Math.max(largest, Math.abs(expected.data[i]));
  }
  return largest ? difference / largest : difference;
}
