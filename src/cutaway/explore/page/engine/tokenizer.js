// Text to ids and back, with the tokenizer.json of a run or of a published model.
//
//     scheme   "L'arbre est grand."           vocabulary
//     word     ␣L' arbre ␣est ␣grand .        the most frequent words; all others are <unk>
//     char     L ' a r b r e …                the characters of the training data
//     byte     L ' a r b r e …                the 256 bytes; never <unk>
//     bpe      ␣L 'arbre ␣est ␣grand .        bytes; frequent pairs are merged; never <unk>   (Sennrich et al. 2016)
//
// The settings in the file say how texts are split, so nothing here depends on the scheme.

import {CutawayError, DataError} from "./errors.js";
import {TokenizerBackend} from "./tokenizer_backend.js";
import {PYTHON_SPACE} from "./unicode.js";

// Role -> token names. The first name is ours; the others are names in other tokenizers.
const ROLES = {
  pad: ["<pad>", "[PAD]", "<|pad|>", "<|endoftext|>"],
  bos: ["<s>", "<bos>", "[CLS]", "<|begin_of_text|>", "<|startoftext|>", "<|endoftext|>", "<pad>"],
  eos: ["</s>", "<eos>", "[SEP]", "<|end_of_text|>", "<|endoftext|>"],
  unk: ["<unk>", "[UNK]", "<|unk|>"],
  mask: ["<mask>", "[MASK]"],
};
const OPTIONAL = ["unk", "mask"];
const TARGET_KEY = "cutaway_target"; // the tokenizer of target texts, if there are two (Marian)
const BYTE_SPACE = "Ġ"; // a space in a byte-level vocabulary
// The normalizer of the scheme bpe: put one space before the text, so the first word has the same tokens as elsewhere.
const PREPEND_SPACE = '{"type":"Sequence","normalizers":[{"type":"NFC"},{"type":"Prepend","prepend":" "}]}';
const SPACES_AT_START = new RegExp(`^[${PYTHON_SPACE}]*`, "u");
const SPACES_AT_ENDS = new RegExp(`^[${PYTHON_SPACE}]+|[${PYTHON_SPACE}]+$`, "gu"); // as Python's strip()

export class Tokenizer {
  #tokenNames = new Map();

  /**
   * @param {object} settings the content of a tokenizer.json
   * @param {object} roles role -> name of a token, where it is not one of the usual names
   */
  constructor(settings, roles = {}) {
    const {[TARGET_KEY]: target, ...own} = settings;
    this.backend = new TokenizerBackend(own);
    this.roles = {}; // pad, bos, eos, and perhaps unk and mask -> the token's name
    for (const role of Object.keys(ROLES)) {
      const name = this.#findRole(role, roles);
      this[role] = name === null ? null : this.backend.tokenToId(name); // its id
      if (name !== null) this.roles[role] = name;
    }
    this.specialIds = new Set(Object.values(this.roles).map((name) => this.backend.tokenToId(name)));
    // Whether a language model's texts begin with <s>. An imported tokenizer has its own rule: GPT-2 adds no <s>.
    this.addsBos = !own.post_processor || this.backend.postProcessor.specialIds[0] === this.bos;
    this.forTarget = target ? new Tokenizer(target, this.roles) : this;
    const isOurs = JSON.stringify(own.normalizer) === PREPEND_SPACE;
    this.continuing = isOurs ? new TokenizerBackend({...own, normalizer: {type: "NFC"}}) : this.backend;
  }

  /** Read a tokenizer.json. `config` is the tokenizer_config.json next to it, if there is one. */
  static fromJson(json, config = null, where = "tokenizer.json") {
    try {
      return new Tokenizer(JSON.parse(json), config ? rolesFromConfig(JSON.parse(config)) : {});
    } catch (error) {
      if (error instanceof CutawayError) throw error;
      throw new DataError(`${where} is not a readable tokenizer.json: ${error.message}`);
    }
  }

  #findRole(role, given) {
    const candidates = role in given ? [given[role]] : ROLES[role];
    const name = candidates.find((candidate) => this.backend.tokenToId(candidate) !== undefined);
    if (name !== undefined) return name;
    if (OPTIONAL.includes(role) && !(role in given)) return null;
    throw new DataError(`the tokenizer has no token for '${role}': none of ${candidates.join(", ")} is in its `
      + "vocabulary. Name it in tokenizer_config.json.");
  }

  get vocabSize() {
    return this.backend.vocabSize;
  }

  /** Text to ids, without special tokens. `continues`: the text continues another one, so no space is put before it. */
  encode(text, continues = false) {
    return this.#replaceSpecials((continues ? this.continuing : this.backend).encode(text).ids);
  }

  /** Replace special ids by <unk>. A word vocabulary would otherwise match "</s>" in a text. */
  #replaceSpecials(ids) {
    const unknown = this.unk === null ? [] : [this.unk];
    return ids.flatMap((id) => (this.specialIds.has(id) ? unknown : [id]));
  }

  /** Prepend <s> if this language model uses it, or if there are no ids. */
  addBos(ids) {
    return this.addsBos || !ids.length ? [this.bos, ...ids] : [...ids];
  }

  /** Ids to text, without special tokens. An unknown token becomes ⁇. */
  decode(ids) {
    const kept = ids.filter((id) => !this.specialIds.has(id) || id === this.unk);
    const text = this.backend.decode(kept);
    if (this.unk === null || !kept.includes(this.unk)) return text; // "<unk>" may also occur as plain text
    const readable = text.replaceAll(this.roles.unk, " ⁇");
    return text.startsWith(this.roles.unk) ? readable.slice(1) : readable; // keep other spaces at the start
  }

  /** A readable name for each id: "chat" for " chat", "␣" for a single space. */
  tokens(ids) {
    return ids.map((id) => {
      if (!this.#tokenNames.has(id)) this.#tokenNames.set(id, this.#readableName(id));
      return this.#tokenNames.get(id);
    });
  }

  #readableName(id) {
    const name = this.backend.idToToken(id);
    if (name === undefined) return `#${id}`;
    if (this.specialIds.has(id)) return name;
    const text = this.backend.decode([id]), stripped = text.replace(SPACES_AT_ENDS, "");
    if (text.includes("\uFFFD")) return name;
    return stripped || showWhitespace(this.backend.decode([id, id]).slice(text.length)); // not the first token
  }

  /** The pieces of a text that are not in the vocabulary. */
  unknown(text) {
    if (this.unk === null) return [];
    const ids = this.encode(text), spans = this.spans(text);
    return spans.filter(([start, end], i) => ids[i] === this.unk && start < end).map((span) => text.slice(...span));
  }

  /** Start and end in `text` of each token of encode(text), in UTF-16 units, without surrounding white space. */
  spans(text) {
    const {tokens, offsets} = this.backend.encode(text);
    const spans = offsets.map(([start, end]) => stripSpan(text, start, end));
    // The space put before the text is not part of it; its offset is that of the first character.
    if (tokens[0] === BYTE_SPACE) spans[0] = [0, 0];
    return spans;
  }
}

/** The roles in a tokenizer_config.json. */
function rolesFromConfig(config) {
  const named = Object.keys(ROLES).map((role) => [role, config[`${role}_token`]]).filter(([, name]) => name);
  const roles = Object.fromEntries(named.map(([role, name]) => [role, name.content ?? name]));
  const wrong = Object.entries(roles).find(([, name]) => typeof name !== "string");
  if (wrong) throw new DataError(`tokenizer_config.json has a special token that is not a text: ${wrong[0]}_token.`);
  return roles;
}

/** White space as visible symbols: " " -> "␣", a line end and eight spaces -> "⏎␣×8". */
export function showWhitespace(whiteSpace) {
  const signs = {" ": "␣", "\n": "⏎", "\t": "⇥"};
  const runs = whiteSpace.match(/([\s\S])\1*/gu) ?? [];
  return runs.map((run) => {
    const character = String.fromCodePoint(run.codePointAt(0)), count = run.length / character.length;
    const sign = signs[character] ?? `\\x${character.codePointAt(0).toString(16)}`;
    return count === 1 ? sign : `${sign}×${count}`;
  }).join("") || "␣";
}

function stripSpan(text, start, end) {
  const part = text.slice(start, end), left = part.match(SPACES_AT_START)[0].length;
  return left === part.length ? [end, end] : [start + left, start + part.replace(SPACES_AT_ENDS, "").length + left];
}
