// Text during generation: which part of it is final, and where it stops.
//
// One token is not always a piece of text. A character can be split between two tokens, and its first half decodes to
// something else. So a stream returns only text that no later token can change. All pieces together are exactly the
// decoded text.

const REPLACEMENTS_AT_END = /\uFFFD+$/; // decoders return U+FFFD for bytes that are not a character, or not yet
const BYTE_TOKEN = /^<0x[0-9A-F]{2}>$/; // SentencePiece's name of a token for a single byte

/**
 * Tokens in, text out: `add` returns the text that became final, `end` the rest. All pieces together are
 * decode(before + tokens) without as many characters as decode(before) has.
 */
export class TextStream {
  /** @param {Tokenizer} tokenizer */
  constructor(tokenizer, before = []) {
    this.tokenizer = tokenizer;
    this.tokens = [...before];
    this.nReturned = [...tokenizer.decode(before)].length; // characters, because half a one can become 🙂 later
  }

  add(token) {
    const {backend, specialIds, unk, roles} = this.tokenizer;
    this.tokens.push(token);
    const isHidden = specialIds.has(token) && token !== unk;
    // the next byte can change how the whole run of bytes decodes
    if (isHidden || BYTE_TOKEN.test(backend.idToToken(token) ?? "")) return "";
    const text = this.tokenizer.decode(this.tokens).replace(REPLACEMENTS_AT_END, "");
    // nor is an incomplete name of the unknown token final
    return this.#newPart(unk === null ? text : text.slice(0, text.length - partialMatch(text, roles.unk)));
  }

  end() {
    return this.#newPart(this.tokenizer.decode(this.tokens));
  }

  #newPart(text) {
    const piece = [...text].slice(this.nReturned);
    this.nReturned += piece.length;
    return piece.join("");
  }
}

/**
 * End a text before the first stop string, and never return a part of one. The first stop string is the one that is
 * complete first, reading character by character. If two end at the same character, the longer one counts.
 */
export class StopStrings {
  constructor(stops) {
    this.stops = stops.filter((stop) => stop);
    this.heldBack = "";
    this.isOver = false;
  }

  /** The text that is final now. After a stop string, this is empty. */
  add(piece) {
    if (this.isOver) return "";
    this.heldBack += piece;
    const place = findStop(this.heldBack, this.stops);
    if (place !== null) {
      this.isOver = true;
      return this.heldBack.slice(0, place);
    }
    const longest = this.stops.reduce((n, stop) => Math.max(n, partialMatch(this.heldBack, stop)), 0);
    const final = this.heldBack.slice(0, this.heldBack.length - longest);
    this.heldBack = this.heldBack.slice(final.length);
    return final;
  }

  end() {
    return this.isOver ? "" : this.heldBack;
  }
}

/** The index where the first complete stop string starts, or null. */
function findStop(text, stops) {
  let first = null;
  for (const stop of stops) {
    const start = text.indexOf(stop), end = start + stop.length;
    if (start < 0) continue;
    if (!first || end < first.end || (end === first.end && start < first.start)) first = {start, end};
  }
  return first?.start ?? null;
}

/** The text before the first stop string; without one, the whole text. */
export function cutAtStop(text, stops) {
  return text.slice(0, findStop(text, stops.filter((stop) => stop)) ?? text.length);
}

/** The length of the longest proper beginning of `name` that `text` ends with. */
function partialMatch(text, name) {
  for (let n = Math.min(name.length - 1, text.length); n > 0; n--) if (text.endsWith(name.slice(0, n))) return n;
  return 0;
}
