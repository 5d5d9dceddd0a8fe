// Decoders of a tokenizer.json: functions string[] -> string[]. They change the names of tokens to the parts of a text.

import {charactersToText} from "./bytes.js";
import {requireSupported} from "./normalizers.js";
import {findMatches, readPattern} from "./regex.js";

const BUILDERS = {
  Sequence: ({decoders}) => {
    const steps = decoders.map(buildDecoder);
    return (tokens) => steps.reduce((parts, step) => step(parts), tokens);
  },
  ByteLevel: () => (tokens) => [charactersToText(tokens)],
  Fuse: () => (tokens) => [tokens.join("")],
  Strip: ({content, start, stop}) => (tokens) => tokens.map((token) => strip(token, content, start, stop)),
  Replace: ({pattern, content}) => {
    const expression = readPattern(pattern);
    return (tokens) => tokens.map((token) => findMatches(expression, token)
      .map(([start, end, isMatch]) => (isMatch ? content : token.slice(start, end))).join(""));
  },
  Metaspace: ({replacement, prepend_scheme, add_prefix_space = true}) => {
    const first = add_prefix_space && prepend_scheme !== "never" ? "" : " "; // the space before a text disappears
    return (tokens) => tokens.map((token, i) => token.replaceAll(replacement, i === 0 ? first : " "));
  },
  WordPiece: ({prefix, cleanup}) => (tokens) => tokens.map((token, i) => {
    const text = i === 0 ? token : token.startsWith(prefix) ? token.slice(prefix.length) : ` ${token}`;
    return cleanup ? removeSpaces(text) : text;
  }),
  ByteFallback: () => joinBytes,
};

/** @param {object | null} settings the entry of tokenizer.json; null: tokens are words with spaces between them */
export function buildDecoder(settings) {
  if (!settings) return (tokens) => [tokens.join(" ")];
  return requireSupported(BUILDERS, settings.type, "decoder")(settings);
}

/** Remove up to `start` signs from the start of a token, and up to `stop` from its end. */
function strip(token, sign, start, stop) {
  const characters = [...token];
  let first = 0, end = characters.length;
  while (first < start && characters[first] === sign) first += 1;
  while (characters.length - end < stop && characters[end - 1] === sign) end -= 1;
  return characters.slice(first, end).join("");
}

/** The spaces before punctuation and in contractions, in this order. */
const UNWANTED_SPACES = [[" .", "."], [" ?", "?"], [" !", "!"], [" ,", ","], [" ' ", "'"], [" n't", "n't"],
  [" 'm", "'m"], [" do not", " don't"], [" 's", "'s"], [" 've", "'ve"], [" 're", "'re"]];

function removeSpaces(text) {
  return UNWANTED_SPACES.reduce((result, [from, to]) => result.replaceAll(from, to), text);
}

const BYTE_TOKEN = /^<0x([0-9A-Fa-f]{2})>$/;
const strictDecoder = new TextDecoder("utf-8", {fatal: true, ignoreBOM: true});

/** Join runs of tokens such as <0xC3> <0xA9> to text. If a run is not UTF-8, each of its bytes becomes U+FFFD. */
function joinBytes(tokens) {
  const joined = [];
  let bytes = [];
  const addBytes = () => {
    if (bytes.length) joined.push(...decodeRun(bytes));
    bytes = [];
  };
  for (const token of tokens) {
    const byte = BYTE_TOKEN.exec(token);
    if (byte) {
      bytes.push(parseInt(byte[1], 16));
    } else {
      addBytes();
      joined.push(token);
    }
  }
  addBytes();
  return joined;
}

function decodeRun(bytes) {
  try {
    return [strictDecoder.decode(Uint8Array.from(bytes))];
  } catch {
    return bytes.map(() => "\uFFFD");
  }
}
