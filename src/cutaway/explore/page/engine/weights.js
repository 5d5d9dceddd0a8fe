// Weights files in the safetensors format:
//
//     length of the header (8 bytes) │ header: JSON │ numbers of all tensors
//
// The header has an entry for each tensor: {"dtype": "F32", "shape": [128, 512], "data_offsets": [0, 262144]}.
// Cutaway adds a SHA-256 of the content to the header, in "__metadata__" (runs/weights.py).

import {damageError, RunError} from "./errors.js";
import {concatenate} from "./run_files.js";
import {verifyChecksum} from "./sha256.js";
import {size, Tensor} from "./tensor.js";

// dtype -> bytes of a number, and a function from bytes to a Float32Array
const DTYPES = {
  F32: [4, (bytes) => new Float32Array(bytes)],
  F16: [2, fromFloat16],
  BF16: [2, fromBfloat16],
  I8: [1, (bytes) => new Float32Array(new Int8Array(bytes))], // to be multiplied by a scale
};

/**
 * Read a weights file and check its length and checksums.
 *
 * An 8-bit matrix NAME [O,I] needs a scale for each row: NAME.scale [O], of type F32.
 *
 * @param {Uint8Array | ArrayBuffer} content
 * @param {string} options.where the name of the file, for errors
 * @param {string | null} options.sha256 the expected checksum of the whole file, in hexadecimal
 * @param {boolean} options.mustBeSealed whether a file without a checksum in its header is damaged
 * @returns {Promise<Map<string, Tensor>>} all numbers with 32 bits, matrices of 8 bits multiplied by their scales
 */
export async function readWeights(content, options = {}) {
  const {where = "model.safetensors", sha256 = null, mustBeSealed = false} = options;
  // a Uint8Array of its own also for Node's Buffer, whose `slice` does not copy
  const bytes = new Uint8Array(content.buffer ?? content, content.byteOffset ?? 0, content.byteLength);
  const {header, data} = split(bytes, where);
  if (sha256) await verifyChecksum(bytes, sha256, where);
  const {__metadata__: metadata = {}, ...entries} = header;
  if (mustBeSealed && !metadata.sha256) {
    throw damageError(where, "it has no checksum, but all other files of this run do");
  }
  if (metadata.sha256) await verifyChecksum(concatenate([sealedText(header), data]), metadata.sha256, where);
  const tensors = new Map(Object.entries(entries).map(([name, entry]) => [name, readTensor(name, entry, data, where)]));
  for (const [name, {dtype}] of Object.entries(entries)) {
    if (dtype !== "I8") continue;
    multiplyRows(tensors.get(name), tensors.get(`${name}.scale`), name, where);
    tensors.delete(`${name}.scale`);
  }
  return tensors;
}

/** -> the header, and the bytes of all tensors. The length of the file must be the one in the header. */
function split(bytes, where) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const length = bytes.length >= 8 ? Number(view.getBigUint64(0, true)) : 0;
  let header;
  try {
    header = JSON.parse(new TextDecoder("utf-8", {fatal: true}).decode(bytes.subarray(8, 8 + length)));
  } catch {
    throw damageError(where, "its header is incomplete or cannot be read");
  }
  const data = bytes.subarray(8 + length);
  let expected = 0;
  for (const [name, entry] of Object.entries(header ?? {})) {
    if (name === "__metadata__") continue;
    const [start, end] = entry?.data_offsets ?? [];
    const numbers = [start, end, ...(Array.isArray(entry?.shape) ? entry.shape : [null])];
    if (!numbers.every((n) => Number.isInteger(n) && n >= 0) || start > end) {
      throw damageError(where, "its header is incomplete or cannot be read");
    }
    expected = Math.max(expected, end);
  }
  if (data.length === expected) return {header, data};
  throw damageError(where, `it has ${data.length} bytes of weights instead of ${expected}`);
}

function readTensor(name, {dtype, shape, data_offsets: [start, end]}, data, where) {
  if (!Object.hasOwn(DTYPES, dtype)) {
    throw new RunError(`${where}: the numbers of ${name} have the type ${dtype}; the JavaScript engine supports `
      + `${Object.keys(DTYPES).join(", ")}. Save the weights in one of these types.`);
  }
  const [width, convert] = DTYPES[dtype];
  if (end - start !== width * size(shape)) {
    throw damageError(where, `${name} has ${end - start} bytes instead of ${width * size(shape)}`);
  }
  return new Tensor(shape, convert(data.slice(start, end).buffer)); // a copy, because the bytes may not be aligned
}

function multiplyRows(matrix, scale, name, where) {
  const [O, I] = matrix.shape;
  if (scale?.shape.length !== 1 || scale.shape[0] !== O) {
    throw new RunError(`${where}: ${name} has 8-bit numbers, but no ${name}.scale with ${O} numbers. Save it again.`);
  }
  for (let i = 0; i < matrix.data.length; i++) matrix.data[i] *= scale.data[Math.floor(i / I)];
}

let float16Values = null; // of all 65,536 patterns of 16 bits; computing each number of a large model takes seconds

function fromFloat16(bytes) {
  float16Values ??= Float32Array.from({length: 2 ** 16}, (_, bits) => float16Value(bits));
  return new Float32Array(new Uint16Array(bytes)).map((bits) => float16Values[bits]);
}

/** Sign, 5 bits of exponent, 10 bits of fraction */
function float16Value(bits) {
  const sign = bits >> 15 ? -1 : 1, exponent = (bits >> 10) & 31, fraction = bits & 1023;
  if (exponent === 0) return sign * fraction * 2 ** -24;
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  return sign * (1 + fraction / 1024) * 2 ** (exponent - 15);
}

/** The upper half of a 32-bit number */
function fromBfloat16(bytes) {
  return new Float32Array(Uint32Array.from(new Uint16Array(bytes), (bits) => bits << 16).buffer);
}

/** The header without the checksum, as Python's json.dumps(header, sort_keys=True) writes it. */
function sealedText({__metadata__: {sha256, ...metadata}, ...entries}) {
  return new TextEncoder().encode(
    pythonJson(Object.keys(metadata).length ? {...entries, __metadata__: metadata} : entries));
}

function pythonJson(value) {
  if (Array.isArray(value)) return `[${value.map(pythonJson).join(", ")}]`;
  if (typeof value === "object" && value !== null) {
    return `{${Object.keys(value).sort().map((key) => `${pythonJson(key)}: ${pythonJson(value[key])}`).join(", ")}}`;
  }
  return JSON.stringify(value).replace(/[\u007f-\uffff]/g, (character) =>
    `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`);
}
