// The models that dump_models.py wrote, for the tests.
//
// ENGINE_FIXTURES names the folder. Without it, the script runs first and writes to a temporary folder.

import {execFileSync} from "node:child_process";
import {existsSync, mkdtempSync, readFileSync} from "node:fs";
import {tmpdir} from "node:os";
import {join} from "node:path";
import {fileURLToPath} from "node:url";

import {buildModel} from "../../../src/cutaway/explore/page/engine/build.js";
import {Tensor} from "../../../src/cutaway/explore/page/engine/tensor.js";
import {readWeights} from "../../../src/cutaway/explore/page/engine/weights.js";

const HERE = fileURLToPath(new URL(".", import.meta.url));
const ROOT = fileURLToPath(new URL("../../../", import.meta.url));

export const FOLDER = process.env.ENGINE_FIXTURES ?? dump("dump_models.py");
export const CASES = readJson("cases.json");

/** Run a script that writes fixtures. -> the folder */
export function dump(script, ...args) {
  const folder = mkdtempSync(join(tmpdir(), "engine-"));
  const python = process.env.PYTHON ?? (existsSync(`${ROOT}.venv/bin/python`) ? `${ROOT}.venv/bin/python` : "python3");
  execFileSync(python, [join(HERE, script), ...args, folder], {stdio: "inherit"});
  return folder;
}

export function readBytes(name) {
  return new Uint8Array(readFileSync(join(FOLDER, name)));
}

export function readJson(name) {
  return JSON.parse(readFileSync(join(FOLDER, name), "utf-8"));
}

/** The model of a case. */
export async function modelOf(fixture) {
  return buildModel(fixture.config, await readWeights(readBytes(`${CASES.indexOf(fixture)}.safetensors`)));
}

/** The arguments of `model.forward`. */
export function inputsOf(fixture) {
  return Object.entries(fixture.inputs).map(([name, value]) =>
    ["images", "memory"].includes(name) ? toTensor(value) : value);
}

/** Probe name -> {shape, data}, as PyTorch computed it in double precision, in the order of computation. */
export function expectedOf(fixture) {
  const {buffer} = Uint8Array.from(readBytes(`${CASES.indexOf(fixture)}.bin`)), values = new Float64Array(buffer);
  return new Map(fixture.probes.map(({name, shape, start}) => {
    const n = shape.reduce((product, length) => product * length, 1);
    return [name, {shape, data: values.subarray(start, start + n)}];
  }));
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
