// The tokenizer of a tokenizer.json: what Hugging Face's library `tokenizers` does with it.
//
//     text ──added tokens, normalizer──▶ normalized text ──pre-tokenizer──▶ words ──model──▶ tokens ──decoder──▶ text

import {AddedTokens} from "./added_tokens.js";
import {NormalizedText} from "./normalized_text.js";
import {buildNormalizer, requireSupported} from "./normalizers.js";
import {buildPreTokenizer} from "./pre_tokenizers.js";
import {buildDecoder} from "./token_decoders.js";
import {buildTokenizerModel} from "./tokenizer_models.js";

export class TokenizerBackend {
  /** @param {object} settings the content of a tokenizer.json */
  constructor(settings) {
    this.normalize = buildNormalizer(settings.normalizer);
    this.preTokenize = buildPreTokenizer(settings.pre_tokenizer);
    this.model = buildTokenizerModel(settings.model);
    this.decodeTokens = buildDecoder(settings.decoder);
    this.added = new AddedTokens(settings.added_tokens ?? [], this.model.ids,
      (name) => this.normalize(NormalizedText.of(name)).text);
    this.names = new Map([...Array.from(this.model.ids, ([name, id]) => [id, name]), ...this.added.names]);
    this.vocabSize = new Set([...this.model.ids.keys(), ...this.added.ids.keys()]).size;
    this.postProcessor = buildPostProcessor(settings.post_processor);
  }

  tokenToId(name) {
    return this.added.ids.get(name) ?? this.model.ids.get(name);
  }

  idToToken(id) {
    return this.names.get(id);
  }

  /**
   * The tokens of a text, without special tokens. Half a surrogate pair becomes U+FFFD.
   * @returns {{ids: number[], tokens: string[], offsets: [number, number][]}} offsets in UTF-16 units, so that
   *   text.slice(...offsets[i]) is the part of the text that token i comes from
   */
  encode(text) {
    const original = text.toWellFormed(), ids = [], tokens = [], offsets = [];
    for (const [part, addedId] of this.split(NormalizedText.of(original))) {
      const found = addedId === undefined ? this.model.tokenize(part.text)
        : [{id: addedId, value: part.text, start: 0, end: part.text.length}];
      for (const {id, value, start, end} of found) {
        ids.push(id);
        tokens.push(value);
        offsets.push([part.starts[start], part.ends[end - 1]]);
      }
    }
    return {ids, tokens, offsets: toUnits(this.postProcessor.trim(offsets, tokens), original)};
  }

  /** [word, undefined] and [name of an added token, its id], in the order of the text. */
  split(text) {
    let parts = this.added.exact.split(text);
    parts = splitParts(parts, (part) => this.added.normalized.split(this.normalize(part)));
    return splitParts(parts, (part) => this.preTokenize(part).map((word) => [word]));
  }

  /** Ids to text. Unknown ids are left out. */
  decode(ids) {
    const tokens = ids.map((id) => this.idToToken(id)).filter((name) => name !== undefined);
    return this.decodeTokens(tokens).join("");
  }
}

/** Split each part that is not an added token, and leave out empty parts. */
function splitParts(parts, split) {
  return parts.flatMap((part) => (part[1] === undefined && part[0].text ? split(part[0]) : [part]))
    .filter(([part]) => part.text);
}

/** Offsets in code points -> in UTF-16 units. */
function toUnits(offsets, text) {
  if (!/[\uD800-\uDBFF]/.test(text)) return offsets;
  const units = [0];
  for (const character of text) units.push(units.at(-1) + character.length);
  return offsets.map(([start, end]) => [units[start], units[end]]);
}

// Post-processors: the special tokens around a text, and offsets that leave out spaces.
const postProcessor = (tokens, trim = (offsets) => offsets) => ({specialIds: tokens.map(([, id]) => id), trim});
const POST_PROCESSORS = {
  BertProcessing: ({cls, sep}) => postProcessor([cls, sep]),
  RobertaProcessing: ({cls, sep, ...settings}) => postProcessor([cls, sep], spaceTrimmer(settings)),
  ByteLevel: (settings) => postProcessor([], spaceTrimmer(settings)),
  TemplateProcessing: ({single, special_tokens}) => postProcessor(single.filter((piece) => piece.SpecialToken)
    .flatMap(({SpecialToken}) => special_tokens[SpecialToken.id].ids.map((id) => [null, id]))),
  Sequence: ({processors}) => {
    const steps = processors.map(buildPostProcessor);
    return {
      specialIds: steps.flatMap(({specialIds}) => specialIds),
      trim: (offsets, tokens) => steps.reduce((trimmed, step) => step.trim(trimmed, tokens), offsets),
    };
  },
};

function buildPostProcessor(settings) {
  return settings ? requireSupported(POST_PROCESSORS, settings.type, "post-processor")(settings) : postProcessor([]);
}

/** Leaves out the spaces at both ends of a token, except for a space that was put before the text. */
function spaceTrimmer({trim_offsets, add_prefix_space}) {
  if (!trim_offsets) return undefined;
  const trim = ([start, end], token, i) => {
    let spaces = token.match(/^[Ġ\p{White_Space}]*/u)[0].length;
    const trailing = [...token].reverse().join("").match(/^[Ġ\p{White_Space}]*/u)[0].length;
    if ((i === 0 || start === 0) && add_prefix_space && spaces === 1) spaces = 0;
    const from = Math.min(start + spaces, end);
    return [from, end >= trailing ? Math.max(end - trailing, from) : end];
  };
  return (offsets, tokens) => offsets.map((offset, i) => trim(offset, tokens[i], i));
}
