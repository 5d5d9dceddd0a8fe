// Pre-tokenizers of a tokenizer.json: functions NormalizedText -> NormalizedText[]. They split a text into words.

import {bytesToCharacters} from "./bytes.js";
import {requireSupported} from "./normalizers.js";
import {escape, findMatches, readPattern, translate} from "./regex.js";
import {PUNCTUATION, WORD} from "./unicode.js";

const GPT2_WORDS = translate(
  String.raw`'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`);
const SPACE = /\p{White_Space}/gu;
const NUMBER = /\p{N}/gu;
const PUNCTUATION_SIGN = new RegExp(`[${PUNCTUATION}]`, "gu");
const WORDS_OR_PUNCTUATION = new RegExp(`[${WORD}\\u200C\\u200D]+|[^${WORD}\\u200C\\u200D\\p{White_Space}]+`, "gu");

const BUILDERS = {
  Sequence: ({pretokenizers}) => {
    const steps = pretokenizers.map(buildPreTokenizer);
    return (text) => steps.reduce((parts, step) => parts.flatMap(step).filter((part) => part.text), [text]);
  },
  ByteLevel: ({add_prefix_space, use_regex = true}) => (text) => {
    const spaced = add_prefix_space && !text.text.startsWith(" ") ? text.prepend(" ") : text;
    const words = use_regex ? split(spaced, findMatches(GPT2_WORDS, spaced.text), "Isolated") : [spaced];
    return words.map((word) => word.map(bytesToCharacters));
  },
  Split: ({pattern, behavior, invert}) => {
    const expression = readPattern(pattern);
    return (text) => split(text, findMatches(expression, text.text), behavior, invert);
  },
  Metaspace: buildMetaspace,
  Whitespace: () => (text) => split(text, findMatches(WORDS_OR_PUNCTUATION, text.text), "Removed", true),
  WhitespaceSplit: () => (text) => split(text, findMatches(SPACE, text.text), "Removed"),
  Punctuation: ({behavior = "Isolated"}) => (text) => split(text, findMatches(PUNCTUATION_SIGN, text.text), behavior),
  Digits: ({individual_digits}) => {
    const behavior = individual_digits ? "Isolated" : "Contiguous";
    return (text) => split(text, findMatches(NUMBER, text.text), behavior);
  },
  BertPreTokenizer: () => (text) => split(text, findMatches(SPACE, text.text), "Removed")
    .flatMap((word) => split(word, findMatches(PUNCTUATION_SIGN, word.text), "Isolated")),
};

/** @param {object | null} settings the entry of tokenizer.json; null: the text is not split */
export function buildPreTokenizer(settings) {
  if (!settings) return (text) => [text];
  return requireSupported(BUILDERS, settings.type, "pre-tokenizer")(settings);
}

/** SentencePiece: a space becomes ▁ and starts a word. The scheme says whether ▁ is put before the text. */
function buildMetaspace({replacement, prepend_scheme, add_prefix_space = true, split: isSplit = true}) {
  const scheme = add_prefix_space ? prepend_scheme ?? "always" : "never";
  const sign = new RegExp(escape(replacement), "gu");
  return (text) => {
    let replaced = text.replace(findMatches(/ /g, text.text), replacement);
    const isPrepended = scheme === "always" || (scheme === "first" && text.originalStart === 0);
    if (isPrepended && !replaced.text.startsWith(replacement)) replaced = replaced.prepend(replacement);
    return isSplit ? split(replaced, findMatches(sign, replaced.text), "MergedWithNext") : [replaced];
  };
}

// What happens with the matches: pieces [start, end, isMatch] -> pieces [start, end]
const BEHAVIORS = {
  Isolated: (pieces) => pieces,
  Removed: (pieces) => pieces.filter(([, , isMatch]) => !isMatch),
  Contiguous: (pieces) => merge(pieces, (isMatch, wasMatch) => isMatch === wasMatch),
  MergedWithPrevious: (pieces) => merge(pieces, (isMatch, wasMatch) => isMatch && !wasMatch),
  MergedWithNext: (pieces) => merge([...pieces].reverse(), (isMatch, wasMatch) => isMatch && !wasMatch).reverse(),
};

/** `invert`: the matches are the words, and what is between them is the separator. */
function split(text, matches, behavior, invert = false) {
  const apply = requireSupported(BEHAVIORS, behavior, "split behavior");
  const pieces = invert ? matches.map(([start, end, isMatch]) => [start, end, !isMatch]) : matches;
  return apply(pieces).map(([start, end]) => text.slice(start, end));
}

/** Join each piece to the one before if joins(isMatch, wasMatch). */
function merge(pieces, joins) {
  const merged = [];
  let wasMatch = false;
  for (const [start, end, isMatch] of pieces) {
    const last = merged.at(-1);
    if (last && joins(isMatch, wasMatch)) [last[0], last[1]] = [Math.min(last[0], start), Math.max(last[1], end)];
    else merged.push([start, end]);
    wasMatch = isMatch;
  }
  return merged;
}
