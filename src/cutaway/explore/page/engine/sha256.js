// SHA-256 (FIPS 180-4), for pages in which the browser's own is missing: those from http, except localhost.

import {damageError} from "./errors.js";

const PRIMES = firstPrimes(64);
const ROUND_CONSTANTS = Uint32Array.from(PRIMES, (prime) => fractionBits(Math.cbrt(prime)));
const START = Uint32Array.from(PRIMES.slice(0, 8), (prime) => fractionBits(Math.sqrt(prime)));

/** The checksum of a file in hexadecimal. */
async function sha256(bytes) {
  const subtle = globalThis.crypto?.subtle;
  const digest = subtle ? new Uint8Array(await subtle.digest("SHA-256", bytes)) : sha256Digest(bytes);
  return Array.from(digest, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** Throw a RunError if the file has another checksum. */
export async function verifyChecksum(bytes, expected, name) {
  if (await sha256(bytes) === expected) return;
  throw damageError(name, "its checksum differs from the one it was written with");
}

/** The 32 bytes of the checksum. */
export function sha256Digest(bytes) {
  const state = START.slice(), words = new Uint32Array(64), whole = bytes.length - bytes.length % 64;
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  for (let at = 0; at < whole; at += 64) addChunk(state, words, view, at);
  const end = padLastChunk(bytes.subarray(whole), bytes.length);
  for (let at = 0; at < end.byteLength; at += 64) addChunk(state, words, end, at);
  const digest = new DataView(new ArrayBuffer(32));
  state.forEach((word, i) => digest.setUint32(4 * i, word));
  return new Uint8Array(digest.buffer);
}

/** The last bytes, a bit 1, zeros, and the number of bits in the whole file: one or two chunks of 64 bytes. */
function padLastChunk(last, length) {
  const end = new Uint8Array(last.length < 56 ? 64 : 128), view = new DataView(end.buffer);
  end.set(last);
  end[last.length] = 0x80;
  view.setBigUint64(end.length - 8, 8n * BigInt(length));
  return view;
}

/** Change the state by the 64 bytes at `at`. */
function addChunk(state, words, view, at) {
  for (let i = 0; i < 16; i++) words[i] = view.getUint32(at + 4 * i);
  for (let i = 16; i < 64; i++) {
    const x = words[i - 15], y = words[i - 2];
    words[i] = words[i - 16] + words[i - 7] + (rotate(x, 7) ^ rotate(x, 18) ^ (x >>> 3))
      + (rotate(y, 17) ^ rotate(y, 19) ^ (y >>> 10));
  }
  let [a, b, c, d, e, f, g, h] = state;
  for (let i = 0; i < 64; i++) {
    const sumE = rotate(e, 6) ^ rotate(e, 11) ^ rotate(e, 25), choice = (e & f) ^ (~e & g);
    const sumA = rotate(a, 2) ^ rotate(a, 13) ^ rotate(a, 22), majority = (a & b) ^ (a & c) ^ (b & c);
    const next = (h + sumE + choice + ROUND_CONSTANTS[i] + words[i]) | 0;
    h = g; g = f; f = e; e = (d + next) | 0;
    d = c; c = b; b = a; a = (next + sumA + majority) | 0;
  }
  [a, b, c, d, e, f, g, h].forEach((word, i) => {
    state[i] += word;
  });
}

function rotate(word, by) {
  return (word >>> by) | (word << (32 - by));
}

function firstPrimes(count) {
  const primes = [];
  for (let n = 2; primes.length < count; n++) if (primes.every((prime) => n % prime)) primes.push(n);
  return primes;
}

/** The first 32 bits after the point. */
function fractionBits(x) {
  return Math.floor((x - Math.floor(x)) * 2 ** 32);
}
