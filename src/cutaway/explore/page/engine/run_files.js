// The files of a run or of its web export: from a folder on a server, from an object, or from model.js.

import {CutawayError, damageError, RunError} from "./errors.js";
import {verifyChecksum} from "./sha256.js";
import {otherWork} from "./slices.js";

const NAMES = ["config.json", "tokenizer.json", "tokenizer_config.json", "labels.json", "model.safetensors"];
const CHECKSUMS = "checksums.json"; // file name -> SHA-256 in hexadecimal; every web export has it
const KINDS = 'the URL of a folder, such as "./", or an object {"config.json": ..., "model.safetensors": ...}';

/**
 * File name -> content. The contents are not checked here.
 * @param {object | undefined} source undefined: what model.js has set
 * @returns {Object<string, string | string[] | Uint8Array | ArrayBuffer>}
 */
export function givenFiles(source) {
  if (source !== null && typeof source === "object" && !Array.isArray(source)) return source;
  if (source !== undefined) throw new RunError(`load() got ${JSON.stringify(source)}; expected ${KINDS}.`);
  if (globalThis.CutawayModel) return globalThis.CutawayModel;
  if (globalThis.document?.querySelector('script[src*="model.js"]')) {
    throw new RunError("model.js is missing, damaged or incomplete. Restore it from a copy.");
  }
  throw new RunError('load() got no source, and there is no model.js. Put <script src="model.js"><\/script> into the '
    + `page, or give ${KINDS}.`);
}

/** The files of a folder on a server: name -> bytes. */
export async function fetchFolder(folder) {
  const page = globalThis.document?.baseURI, address = folder.endsWith("/") ? folder : `${folder}/`;
  if (!URL.canParse(address, page)) throw new RunError(`load() got '${folder}'; expected ${KINDS}.`);
  const base = new URL(address, page), checksums = await fetchFile(base, CHECKSUMS);
  const names = checksums ? NAMES.filter((name) => name in parseJson(checksums, CHECKSUMS)) : NAMES;
  const contents = await Promise.all(names.map((name) => fetchFile(base, name)));
  const found = [...names.map((name, i) => [name, contents[i]]), [CHECKSUMS, checksums]];
  return Object.fromEntries(found.filter(([, content]) => content));
}

/** The bytes of a file, or null if there is none. */
async function fetchFile(base, name) {
  const url = new URL(name, base);
  let response;
  try {
    response = await fetch(url);
    if (response.ok) return new Uint8Array(await response.arrayBuffer());
  } catch (error) {
    throw new RunError(`${url} cannot be read: ${error.message}. ` + (url.protocol === "file:"
      ? 'A page opened from a file cannot read other files: put <script src="model.js"><\/script> into it, and call '
        + "load() without a folder. Or start a server: python3 -m http.server."
      : "Check the address and the connection."));
  }
  if (response.status === 404) return null;
  throw new RunError(`${url} cannot be read: the server answered ${response.status}. Check the address and the `
    + "rights.");
}

/** The contents as bytes, after their checksums have been compared. Texts of model.safetensors are base64. */
export async function readFiles(files) {
  const contents = new Map();
  for (const name of [...NAMES, CHECKSUMS]) {
    if (files[name] === undefined || files[name] === null) continue;
    contents.set(name, toBytes(files[name], name));
    await otherWork();
  }
  for (const name of ["config.json", "model.safetensors"]) {
    if (!contents.has(name)) {
      throw new RunError(`there is no ${name}. Found: ${[...contents.keys()].join(", ") || "no file of a run"}. Give `
        + "the folder of a run or of a web export.");
    }
  }
  const expected = {...parseJson(contents.get("config.json"), "config.json").seal};
  delete expected["config.json"]; // its own checksum is not that of the file
  if (contents.has(CHECKSUMS)) Object.assign(expected, parseJson(contents.get(CHECKSUMS), CHECKSUMS));
  for (const name of NAMES.filter((name) => name in expected)) {
    if (!contents.has(name)) throw new RunError(`${name} is missing. Restore it from a copy.`);
    await verifyChecksum(contents.get(name), expected[name], name);
  }
  return contents;
}

/** The bytes of a file that may be given as a text, or as the pieces of one: base64 for weights. */
export function toBytes(content, name) {
  if (Array.isArray(content)) return concatenate(content.map((piece) => toBytes(piece, name)));
  if (typeof content === "string") {
    return name.endsWith(".safetensors") ? fromBase64(content, name) : new TextEncoder().encode(content);
  }
  if (content instanceof ArrayBuffer) return new Uint8Array(content);
  if (content instanceof Uint8Array) return content;
  throw new RunError(`${name} is ${typeof content}; expected its text, or its bytes as a Uint8Array or ArrayBuffer.`);
}

/** Pieces of bytes, one after the other. */
export function concatenate(pieces) {
  const bytes = new Uint8Array(pieces.reduce((length, piece) => length + piece.length, 0));
  let end = 0;
  for (const piece of pieces) {
    bytes.set(piece, end);
    end += piece.length;
  }
  return bytes;
}

function fromBase64(text, name) {
  try {
    const binary = atob(text), bytes = new Uint8Array(binary.length);
    for (let i = 0; i < bytes.length; i++) bytes[i] = binary.charCodeAt(i);
    return bytes;
  } catch {
    throw new RunError(`${name} is damaged: it is a text, but not in base64. Restore it from a copy, or give its `
      + "bytes.");
  }
}

/** The text of a file. */
export function toText(bytes, name) {
  try {
    return new TextDecoder("utf-8", {fatal: true}).decode(bytes);
  } catch {
    throw damageError(name, "it is not a text in UTF-8");
  }
}

/** The object or list in a file. */
export function parseJson(bytes, name) {
  try {
    const value = JSON.parse(toText(bytes, name));
    if (value !== null && typeof value === "object") return value;
  } catch (error) {
    if (error instanceof CutawayError) throw error;
  }
  throw damageError(name, "it is not JSON");
}
