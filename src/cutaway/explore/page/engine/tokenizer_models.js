// Models of a tokenizer.json: they turn a word into tokens of the vocabulary. A token is {id, value, start, end}, with
// its place in the word in UTF-16 units.
//
//     model       "unaffordable"              tokens
//     WordLevel   unaffordable                whole words
//     WordPiece   un ##afford ##able          from left to right the longest pieces                  (BERT)
//     BPE         un afford able              characters; frequent pairs are merged, see bpe.js      (GPT-2, Llama)
//     Unigram     un afford able              the most probable split, see unigram.js                (T5, Marian)

import {Bpe} from "./bpe.js";
import {DataError} from "./errors.js";
import {requireSupported} from "./normalizers.js";
import {Unigram} from "./unigram.js";

/** The whole word, or the unknown token. */
export class WordLevel {
  constructor({vocab, unk_token}) {
    this.ids = new Map(Object.entries(vocab));
    this.unknown = unk_token;
  }

  tokenize(word) {
    return [this.ids.has(word) ? {id: this.ids.get(word), value: word, start: 0, end: word.length}
      : unknownToken(this, word)];
  }
}

/** The longest piece that the word starts with, then the longest of the rest, with ## before it, and so on. */
class WordPiece {
  constructor({vocab, unk_token, continuing_subword_prefix = "##", max_input_chars_per_word = 100}) {
    this.ids = new Map(Object.entries(vocab));
    this.unknown = unk_token;
    this.prefix = continuing_subword_prefix;
    this.maxLength = max_input_chars_per_word;
  }

  tokenize(word) {
    const characters = [...word], tokens = [];
    if (characters.length > this.maxLength) return [unknownToken(this, word)];
    for (let first = 0, start = 0; first < characters.length;) {
      let end = characters.length;
      let piece = null;
      for (; end > first; end--) {
        const text = characters.slice(first, end).join("");
        const value = first > 0 ? this.prefix + text : text;
        if (!this.ids.has(value)) continue;
        piece = {id: this.ids.get(value), value, start, end: start + text.length};
        break;
      }
      if (!piece) return [unknownToken(this, word)];
      tokens.push(piece);
      first = end;
      start = piece.end;
    }
    return tokens;
  }
}

function unknownToken({ids, unknown}, word) {
  if (!ids.has(unknown)) {
    throw new DataError(`${JSON.stringify(word)} is not in the vocabulary, and the tokenizer has no unknown token.`);
  }
  return {id: ids.get(unknown), value: unknown, start: 0, end: word.length};
}

const MODELS = {WordLevel, WordPiece, BPE: Bpe, Unigram};

/** @param {object} settings the entry of tokenizer.json */
export function buildTokenizerModel(settings) {
  const type = settings.type ?? guessType(settings);
  return new (requireSupported(MODELS, type, "model"))(settings);
}

/** Old files do not name the type of the model. */
function guessType(settings) {
  if (settings.merges) return "BPE";
  if (settings.continuing_subword_prefix) return "WordPiece";
  return Array.isArray(settings.vocab) ? "Unigram" : "WordLevel";
}
