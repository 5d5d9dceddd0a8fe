// Tokens that were added to a vocabulary. Their names are found in a text before a model sees it. Special tokens are an
// exception: "</s>" in a user's text is text.

import {escape} from "./regex.js";
import {leadingSpaces, trailingSpaces, WORD} from "./unicode.js";

const WORD_AT_START = new RegExp(`^[${WORD}\\u200C\\u200D]`, "u");
const WORD_AT_END = new RegExp(`[${WORD}\\u200C\\u200D]$`, "u");

export class AddedTokens {
  /**
   * @param {object[]} settings the list added_tokens of a tokenizer.json
   * @param {Map<string, number>} ids the vocabulary of the model
   * @param {(text: string) => string} normalize
   */
  constructor(settings, ids, normalize) {
    this.ids = new Map();
    this.names = new Map(); // a token that is found in normalized text has a normalized name
    let nextId = ids.size;
    const patterns = {exact: new Map(), normalized: new Map()};
    for (const token of settings.filter(({content}) => content)) {
      const id = this.ids.get(token.content) ?? ids.get(token.content) ?? nextId++;
      const name = token.normalized ? normalize(token.content) || token.content : token.content;
      this.ids.set(token.content, id);
      this.names.set(id, name);
      patterns[token.normalized ? "normalized" : "exact"].set(name, {...token, id});
    }
    this.exact = new NameFinder(patterns.exact);
    this.normalized = new NameFinder(patterns.normalized);
  }
}

/** Finds names in a text: the first one, the longest if several start there, then the next one after it. */
class NameFinder {
  constructor(tokens) {
    this.tokens = tokens;
    const names = [...tokens.keys()].sort((a, b) => b.length - a.length).map(escape);
    this.pattern = names.length ? new RegExp(names.join("|"), "gu") : null;
  }

  /** Split a NormalizedText. -> [part, id of the added token or undefined] of each part */
  split(text) {
    if (!this.pattern) return [[text]];
    const parts = [];
    let before = 0;
    for (const match of text.text.matchAll(this.pattern)) {
      const token = this.tokens.get(match[0]);
      let start = match.index, end = start + match[0].length;
      const left = text.text.slice(0, start), right = text.text.slice(end);
      if (token.special || (token.single_word && (WORD_AT_END.test(left) || WORD_AT_START.test(right)))) continue;
      if (token.lstrip) start = Math.max(before, start - trailingSpaces(left));
      if (token.rstrip) end += leadingSpaces(right);
      if (before < start) parts.push([text.slice(before, start)]);
      parts.push([text.slice(start, end), token.id]);
      before = end;
    }
    if (before < text.text.length) parts.push([text.slice(before, text.text.length)]);
    return parts;
  }
}
