// A text while it is normalized and split, and the part of the original that each of its characters comes from.
//
//     original     L e   c h ﬁ e n           positions  0 1 2 3 4 5 6 7
//     normalized   l e   c h f i e n         starts     0 1 2 3 4 5 5 6 7
//                                            ends       1 2 3 4 5 6 6 7 8
//
// Positions count code points of the original, as in Python. The lists have one entry for each UTF-16 unit of `text`.

import {leadingSpaces, trailingSpaces} from "./unicode.js";

export class NormalizedText {
  /** `originalStart`: where the part of the original starts that this text was cut from. */
  constructor(text, starts, ends, originalStart = 0) {
    this.text = text;
    this.starts = starts;
    this.ends = ends;
    this.originalStart = originalStart;
  }

  static of(original) {
    const starts = [];
    let position = 0;
    for (const character of original) {
      for (let i = 0; i < character.length; i++) starts.push(position);
      position += 1;
    }
    return new NormalizedText(original, starts, starts.map((start) => start + 1));
  }

  /** Replace each character by the string replaced(character), which comes from the same part of the original. */
  map(replaced) {
    const starts = [], ends = [];
    let text = "", at = 0;
    for (const character of this.text) {
      const added = replaced(character);
      for (let i = 0; i < added.length; i++) {
        starts.push(this.starts[at]);
        ends.push(this.ends[at]);
      }
      text += added;
      at += character.length;
    }
    return new NormalizedText(text, starts, ends, this.originalStart);
  }

  /**
   * Replace the whole text by [character, change] pairs. Change 0: the character replaces the next old one; -n: it
   * replaces the next n + 1, and comes from the first of them; 1: it is new, and comes from where the one before does.
   */
  transform(changes) {
    const starts = [], ends = [], old = this.text[Symbol.iterator]();
    let text = "", at = 0;
    for (const [character, change] of changes) {
      const source = change > 0 ? at - 1 : at;
      for (let i = 0; i < character.length; i++) {
        starts.push(source < 0 ? 0 : this.starts[source]);
        ends.push(source < 0 ? 0 : this.ends[source]);
      }
      text += character;
      for (let n = change; n <= 0; n++) at += (old.next().value ?? "").length;
    }
    return new NormalizedText(text, starts, ends, this.originalStart);
  }

  /** Insert characters before the first one, from the same part of the original. An empty text stays empty. */
  prepend(prefix) {
    if (this.text === "") return this;
    const repeat = (value) => Array(prefix.length).fill(value);
    return new NormalizedText(prefix + this.text, [...repeat(this.starts[0]), ...this.starts],
      [...repeat(this.ends[0]), ...this.ends], this.originalStart);
  }

  /** Replace the matches, as in `findMatches`. What replaces a match comes from the last character of the match. */
  replace(matches, content) {
    const starts = [], ends = [];
    let text = "";
    for (const [start, end, isMatch] of matches) {
      text += isMatch ? content : this.text.slice(start, end);
      for (let i = isMatch ? 0 : start; i < (isMatch ? content.length : end); i++) {
        starts.push(this.starts[isMatch ? end - 1 : i]);
        ends.push(this.ends[isMatch ? end - 1 : i]);
      }
    }
    return new NormalizedText(text, starts, ends, this.originalStart);
  }

  /** Remove the white space at the start, at the end, or both. */
  strip(left, right) {
    const start = left ? leadingSpaces(this.text) : 0;
    const end = this.text.length - (right ? trailingSpaces(this.text.slice(start)) : 0);
    return new NormalizedText(this.text.slice(start, end), this.starts.slice(start, end), this.ends.slice(start, end),
      this.originalStart);
  }

  /** The part from `start` to `end`. */
  slice(start, end) {
    return new NormalizedText(this.text.slice(start, end), this.starts.slice(start, end), this.ends.slice(start, end),
      start < end ? this.starts[start] : this.originalStart);
  }
}
