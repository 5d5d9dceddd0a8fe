// Unigram (Kudo 2018): each piece of the vocabulary has a log-probability. A word is split into the pieces with the
// largest sum. The best split up to each place is found from left to right, as in Viterbi's algorithm.

import {byteTokens} from "./bytes.js";
import {DataError} from "./errors.js";

const UNKNOWN_PENALTY = 10; // an unknown character costs this much more than the least probable piece

export class Unigram {
  constructor({vocab, unk_id, byte_fallback = false}) {
    this.ids = new Map(vocab.map(([piece], id) => [piece, id]));
    this.scores = vocab.map(([, score]) => roundTwice(score));
    this.unknown = unk_id ?? null;
    this.byteFallback = byte_fallback;
    this.longest = vocab.reduce((longest, [piece]) => Math.max(longest, piece.length), 0);
    this.unknownScore = this.scores.reduce((a, b) => Math.min(a, b), Infinity) - UNKNOWN_PENALTY;
  }

  tokenize(word) {
    let end = 0;
    return this.split(word).flatMap((value) => {
      const start = end;
      end += value.length;
      const id = this.ids.get(value);
      if (id !== undefined) return [{id, value, start, end}];
      return this.byteTokens(value)?.map((token) => ({...token, start, end}))
        ?? [{id: this.unknownId(value), value, start, end}];
    });
  }

  /** The pieces of a word. Adjacent unknown characters are one piece. */
  split(word) {
    const best = [{score: 0, start: 0, isUnknown: false}]; // for each place, the last piece of the best split up to it
    const improve = (start, end, score, isUnknown) => {
      const total = best[start].score + score;
      if (!best[end] || total > best[end].score) best[end] = {score: total, start, isUnknown};
    };
    for (let start = 0; start < word.length;) {
      const width = String.fromCodePoint(word.codePointAt(start)).length;
      for (let end = start + width; end <= Math.min(word.length, start + this.longest); end++) {
        const id = this.ids.get(word.slice(start, end));
        if (id !== undefined) improve(start, end, this.scores[id], id === this.unknown);
      }
      if (!this.ids.has(word.slice(start, start + width))) {
        this.unknownId(word);
        improve(start, start + width, this.unknownScore, true);
      }
      start += width;
    }
    const pieces = [];
    for (let end = word.length, wasUnknown = false; end > 0; end = best[end].start) {
      const piece = word.slice(best[end].start, end), {isUnknown} = best[end];
      if (isUnknown && wasUnknown) pieces.push(piece + pieces.pop());
      else pieces.push(piece);
      wasUnknown = isUnknown;
    }
    return pieces.reverse();
  }

  /** The tokens of an unknown piece's bytes; null if the vocabulary lacks one. */
  byteTokens(piece) {
    const tokens = this.byteFallback ? byteTokens(piece).map((value) => ({id: this.ids.get(value), value})) : [];
    return tokens.length && tokens.every(({id}) => id !== undefined) ? tokens : null;
  }

  unknownId(piece) {
    if (this.unknown !== null) return this.unknown;
    throw new DataError(`the tokenizer has no unknown token, and cannot split ${JSON.stringify(piece)}.`);
  }
}

/**
 * A number as the library reads it from JSON: its digits, divided by a power of ten. Both are rounded, so the last bit
 * can differ from the exact number; and that bit decides between splits such as l|ll and ll|l.
 */
function roundTwice(number) {
  const [, whole, decimals = "", exponent = 0] = String(Math.abs(number)).match(/^(\d+)(?:\.(\d+))?(?:e([+-]\d+))?$/);
  const digits = Number(BigInt(whole + decimals)), power = Number(exponent) - decimals.length;
  return Math.sign(number) * (power < 0 ? digits / Number(`1e${-power}`) : digits * Number(`1e${power}`));
}
