// Label a text or an image, or each word of a text.

import {DataError} from "./errors.js";
import {pixelsOf} from "./image_input.js";
import {readOptions} from "./options.js";
import {raiseTooLong, requireFinite, requireText} from "./run.js";
import {Slices} from "./slices.js";
import {argmax, softmax64} from "./topk.js";
import {PYTHON_SPACE} from "./unicode.js";

/** A trained encoder that assigns a label to a text or an image. */
export class Classifier {
  static tasks = ["classification", "image_classification"];

  /** @param {string | object} example a text, or an image: see image_input.js */
  constructor(run, example, options) {
    const {signal} = readOptions(options);
    Object.assign(this, {run, example, slices: new Slices(signal)});
    if (run.task !== "image_classification") requireText(example);
  }

  async result() {
    const {run, example} = this;
    if (run.task === "image_classification") return this.describe(pixelsOf(example, run.settings));
    const {tokenizer, longestText} = run, ids = [tokenizer.bos, ...tokenizer.encode(example), tokenizer.eos];
    const isCut = ids.length > longestText;
    if (isCut && !run.cutsLongTexts) raiseTooLong(example, ids.length, longestText);
    const row = isCut ? [...ids.slice(0, longestText - 1), ids.at(-1)] : ids;
    return {...this.describe([row]), isCut, tokens: tokenizer.tokens(row), unknown: tokenizer.unknown(example)};
  }

  /** @param input the input of the model */
  describe(input) {
    const {model, labels} = this.run, p_C = softmax64(requireFinite(model.forward(input).row(0)));
    const probabilities = labels.map((label, i) => ({label, probability: p_C[i]}));
    const isBetter = (a, b) =>
      a.probability > b.probability || (a.probability === b.probability && a.label > b.label);
    return {...probabilities.reduce((best, one) => (isBetter(one, best) ? one : best)), probabilities};
  }
}

const SPACES = new RegExp(`[${PYTHON_SPACE}]+`, "u"); // as Python's split()
const CODE_WORD = new RegExp(`[\\p{L}\\p{N}_]+|\\n|[^\\p{L}\\p{N}_${PYTHON_SPACE}]`, "gu");
const CODE_CORPORA = ["python:tags", "python:expressions"];

/** A trained encoder that assigns a tag to every word. */
export class Tagger {
  static tasks = ["tagging"];

  /** @param {string | string[]} text it is split into words as in the training data; or a list of words */
  constructor(run, text, options) {
    const {signal} = readOptions(options);
    if (Array.isArray(text)) text.forEach((word) => requireText(word, "words that are texts"));
    else requireText(text, "a text or a list of words");
    Object.assign(this, {run, slices: new Slices(signal)});
    this.words = Array.isArray(text) ? text : this.split(text);
  }

  split(text) {
    const isCode = CODE_CORPORA.includes(this.run.config.data?.corpus);
    return isCode ? text.match(CODE_WORD) ?? [] : text.split(SPACES).filter((word) => word);
  }

  async result() {
    const {run: {model, tokenizer, labels}, words} = this, parts = this.parts(), tags = [];
    for (const {ids, first} of parts) {
      await this.slices.rest();
      const logits_1TC = model.forward([ids]);
      requireFinite(logits_1TC.data);
      tags.push(...first.map((t) => labels[argmax(logits_1TC.row(t))]));
    }
    return {
      words: words.map((word, i) => ({word, tag: tags[i]})), parts: parts.length,
      unknown: words.flatMap((word) => tokenizer.unknown(word)),
    };
  }

  /**
   * What the model reads: <s> ids </s>, and the index in `ids` of the first token of each word. A sentence that is too
   * long is read in overlapping parts. A word gets its tag from the part where it is farther from the edge, because the
   * model has more context there.
   */
  parts() {
    const {run: {tokenizer, longestText, cutsLongTexts}, words} = this;
    if (!words.length) return [];
    const {ids, first} = encodeWords(tokenizer, words);
    if (ids.length > longestText && !cutsLongTexts) raiseTooLong(words.join(" "), ids.length, longestText);
    const parts = wordParts(first, ids.length - 1, longestText, Math.floor(longestText / 4));
    const middles = parts.slice(1).map((part, i) => Math.floor((parts[i].lastWord + part.firstWord) / 2));
    const bounds = [0, ...middles, first.length];
    return parts.map(({start, stop}, i) => ({
      ids: [ids[0], ...ids.slice(start, stop), ids.at(-1)],
      first: first.slice(bounds[i], bounds[i + 1]).map((t) => t - start + 1),
    }));
  }
}

/** <s> ids </s> of a list of words, and the index in `ids` of the first token of each word. */
export function encodeWords(tokenizer, words) {
  const ids = [tokenizer.bos], first = [];
  for (const word of words) {
    first.push(ids.length);
    const found = tokenizer.encode(word);
    ids.push(...(found.length ? found : [tokenizer.unk ?? tokenizer.eos]));
  }
  return {ids: [...ids, tokenizer.eos], first};
}

/**
 * Split a sentence into parts of at most `maxTokens` tokens, including <s> and </s>. A part begins with a word. A word
 * that is longer than a part is cut.
 *
 * @param {number[]} first the first token of each word
 * @param {number} end the end of the last word
 * @param {number} overlap the most tokens that a part shares with the part before it
 * @returns the words from `firstWord` to before `lastWord`, and their tokens from `start` to before `stop`
 */
function wordParts(first, end, maxTokens, overlap) {
  const room = maxTokens - 2, bounds = [...first, end], parts = [];
  if (room < 1) throw new DataError(`the model reads at most ${maxTokens} tokens: no room between <s> and </s>.`);
  for (let firstWord = 0; ;) {
    let lastWord = firstWord + 1;
    while (lastWord < first.length && bounds[lastWord + 1] - bounds[firstWord] <= room) lastWord += 1;
    const start = bounds[firstWord];
    parts.push({firstWord, lastWord, start, stop: Math.min(bounds[lastWord], start + room)});
    if (lastWord === first.length) return parts;
    const before = firstWord;
    firstWord = lastWord;
    // go back by the shared words, if at least one new word still fits
    const shared = Math.min(overlap, room - (bounds[lastWord + 1] - bounds[lastWord]));
    while (firstWord - 1 > before && bounds[lastWord] - bounds[firstWord - 1] <= shared) firstWord -= 1;
  }
}
