// SentencePiece's character map (NFKC and more), the normalizer Precompiled of T5 and Marian.
//
//     4 bytes: the length of the trie    the trie: a double array, 4 bytes for each unit    texts, each ended by a zero
//
// The trie is read byte by byte. Each unit has the label of its byte, the offset of its children, and a mark if a text
// ends there; then the first child has the position of the replacement among the texts (Yata et al., darts-clone).

import {DataError} from "./errors.js";

const MAX_BYTES = 5; // longer graphemes are replaced character by character

/** @param {string} base64 -> a function NormalizedText -> NormalizedText */
export function readCharsmap(base64) {
  const replacement = readTrie(Uint8Array.from(atob(base64), (byte) => byte.charCodeAt(0)));
  const graphemes = new Intl.Segmenter("en", {granularity: "grapheme"});
  const known = new Map(); // the trie needs UTF-8, which takes long to make
  const replace = (part) => {
    if (!known.has(part)) known.set(part, replacement(part));
    return known.get(part);
  };
  return (text) => {
    const changes = [];
    let isChanged = false;
    const add = (part) => {
      const replaced = replace(part);
      if (replaced === null) return false;
      addReplacement(changes, part, replaced);
      return (isChanged = true);
    };
    for (const {segment} of graphemes.segment(text.text)) {
      if (utf8.encode(segment).length <= MAX_BYTES && add(segment)) continue;
      for (const character of segment) add(character) || changes.push([character, 0]);
    }
    return isChanged ? text.transform(changes) : text;
  };
}

const utf8 = new TextEncoder();

/** -> a function from a text to its replacement, or null. As in `tokenizers`, the shortest prefix counts. */
function readTrie(bytes) {
  const view = new DataView(bytes.buffer);
  const nUnits = bytes.length < 4 ? 0 : Math.floor(view.getUint32(0, true) / 4);
  if (!nUnits || bytes.length < 4 + 4 * nUnits) {
    throw new DataError("the tokenizer's precompiled_charsmap is cut off. Download the tokenizer again.");
  }
  const unit = (i) => (i < nUnits ? view.getUint32(4 + 4 * i, true) : 0);
  const offset = (u) => (u >>> 10) << ((u & (1 << 9)) >>> 6);
  const texts = bytes.subarray(4 + 4 * nUnits);
  const textAt = (start) => {
    const end = texts.indexOf(0, start);
    return new TextDecoder("utf-8", {ignoreBOM: true}).decode(texts.subarray(start, end < 0 ? texts.length : end));
  };
  return (key) => {
    let at = offset(unit(0));
    for (const byte of utf8.encode(key)) {
      if (byte === 0) return null;
      at ^= byte;
      const u = unit(at);
      if ((u & 0x800000FF) >>> 0 !== byte) return null;
      at ^= offset(u);
      if ((u >>> 8) & 1) return textAt(unit(at) & 0x7FFFFFFF);
    }
    return null;
  };
}

/** The changes that replace `part` by `replaced`. What is added comes last; what is removed belongs to the last one. */
function addReplacement(changes, part, replaced) {
  const characters = [...replaced], difference = characters.length - [...part].length;
  characters.forEach((character, i) => changes.push([character, i < characters.length - difference ? 0 : 1]));
  if (difference < 0 && changes.length) changes.at(-1)[1] += difference;
}
