// Regular expressions of a tokenizer.json. The library `tokenizers` reads them with Oniguruma, in Ruby's syntax. They
// are translated to JavaScript; syntax without a counterpart is refused.

import {DataError} from "./errors.js";
import {WHITE_SPACE, WORD} from "./unicode.js";

/**
 * All of a text in pieces [start, end, isMatch], in order.
 * @param {RegExp} pattern with the flag g
 */
export function findMatches(pattern, text) {
  const pieces = [];
  let before = 0;
  for (const match of text.matchAll(pattern)) {
    const end = match.index + match[0].length;
    if (end === match.index) throw new DataError(`the tokenizer's pattern ${pattern.source} matches an empty text.`);
    if (before < match.index) pieces.push([before, match.index, false]);
    pieces.push([match.index, end, true]);
    before = end;
  }
  if (before < text.length) pieces.push([before, text.length, false]);
  return pieces;
}

/** The pattern of a Split or Replace: {"String": "..."} or {"Regex": "..."} */
export function readPattern(pattern) {
  if (pattern.Regex !== undefined) return translate(pattern.Regex);
  if (pattern.String) return new RegExp(escape(pattern.String), "gu");
  throw new DataError(`the tokenizer has the pattern ${JSON.stringify(pattern)}. Expected a text or an expression.`);
}

/** A pattern that matches exactly this text. */
export function escape(text) {
  return text.replace(/[\\^$.*+?()[\]{}|/]/g, "\\$&");
}

const ONIGURUMA_WORD = `${WORD}\\xB2\\xB3\\xB9\\xBC-\\xBE`; // with ² ³ ¹ ¼ ½ ¾
const SCRIPTS = ["Han", "Hiragana", "Katakana", "Hangul", "Latin", "Cyrillic", "Greek", "Arabic", "Hebrew", "Thai"];
const SHORTHANDS = {
  s: WHITE_SPACE, S: "\\P{White_Space}", d: "\\p{Nd}", D: "\\P{Nd}", n: "\\n", r: "\\r", t: "\\t",
};
const keep = ([part]) => part;

// [part of an expression, its translation]. Syntax that is not here, such as possessive quantifiers, is refused.
const COMMON = [
  [/\\([pP])\{(\^?)([A-Za-z]+)\}/uy, property],
  [/\\([sSdDnrt])/uy, ([, letter]) => SHORTHANDS[letter]],
  [/\\([^A-Za-z0-9])/suy, ([, character]) => escape(character)],
];
const OUTSIDE_CLASS = [
  ...COMMON,
  [/\\w/uy, () => `[${ONIGURUMA_WORD}]`],
  [/\(\?i:((?:'(?:s|t|re|ve|m|ll|d)\|?)+)\)/uy, ([, words]) => `(?:${words.replace(/[a-z]/g, anyCase)})`],
  [/\((?:\?(?:[:=!]|<[=!])|(?!\?))|[)|]/uy, keep],
  [/(?:[*+?]\??|\{\d+(?:,\d*)?\})(?![*+?])/uy, keep],
  [/\./uy, () => "[^\\n]"],
  [/[^\\^$.*+?()[\]{}|]/suy, ([character]) => escape(character)],
];
const IN_CLASS = [
  ...COMMON.slice(0, 2),
  [/\\w/uy, () => ONIGURUMA_WORD],
  [/\\([^A-Za-z0-9])/suy, ([, character]) => (character === "-" ? "\\-" : escape(character))],
  [/-/uy, keep],
  [/&(?!&)|[^\\[\]&]/suy, ([character]) => escape(character)],
];
const CLASS_START = /\[\^?(?!\])/uy;

/** Translate an expression. */
export function translate(source) {
  let at = 0, result = "", isInClass = false;
  const read = (part) => {
    part.lastIndex = at;
    const found = part.exec(source);
    if (found) at = part.lastIndex;
    return found;
  };
  while (at < source.length) {
    const start = read(isInClass ? /\]/uy : CLASS_START);
    if (start) {
      result += start[0];
      isInClass = !isInClass;
      continue;
    }
    let found = null;
    const [, translated] = (isInClass ? IN_CLASS : OUTSIDE_CLASS).find(([part]) => (found = read(part))) ?? [];
    if (!found) throw patternError(source, `the part ${source.slice(at, at + 8)}`);
    result += translated(found);
  }
  try {
    return new RegExp(result, "gu");
  } catch {
    throw patternError(source, "syntax");
  }
}

function patternError(source, part) {
  return new DataError(`the tokenizer's pattern ${source} has ${part} that this engine cannot read. Use Python.`);
}

function property([part, letter, not, name]) {
  if (SCRIPTS.includes(name)) name = `Script=${name}`;
  else if (!/^[LMNPSZC][a-z]?$/.test(name)) throw patternError(part, "a property");
  const isNegated = (letter === "P") !== (not === "^");
  return `\\${isNegated ? "P" : "p"}{${name}}`;
}

/** A letter of the English contractions in both cases. The long s is another lower case of S. */
function anyCase(letter) {
  return letter === "s" ? "[sS\u017F]" : `[${letter}${letter.toUpperCase()}]`;
}
