// Tokens, offsets and decoded texts equal those of the library `tokenizers` and of Cutaway, for hostile texts.

import assert from "node:assert/strict";
import {test} from "node:test";

import {DataError} from "../../../src/cutaway/explore/page/engine/errors.js";
import {NormalizedText} from "../../../src/cutaway/explore/page/engine/normalized_text.js";
import {buildPreTokenizer} from "../../../src/cutaway/explore/page/engine/pre_tokenizers.js";
import {translate} from "../../../src/cutaway/explore/page/engine/regex.js";
import {cutAtStop, StopStrings, TextStream} from "../../../src/cutaway/explore/page/engine/streaming.js";
import {showWhitespace, Tokenizer} from "../../../src/cutaway/explore/page/engine/tokenizer.js";
import {dump, readJson} from "./fixtures.mjs";

const FOLDER = dump("dump_tokenizers.py"), read = (name) => readJson(FOLDER, name);

/** Offsets that count code points, as in Python -> UTF-16 units. */
function inUnits(offsets, text) {
  const units = [0];
  for (const character of text) units.push(units.at(-1) + character.length);
  return offsets.map(([start, end]) => [units[start], units[end]]);
}

/** As assert.deepEqual, which takes long. */
function assertSame(found, expected, context) {
  if (JSON.stringify(found) !== JSON.stringify(expected)) assert.deepEqual(found, expected, context);
}

for (const name of read("names.json")) {
  const {tokenizer: json, roles, properties, names, texts, streams} = read(`${name}.json`);
  const tokenizer = Tokenizer.fromJson(json, JSON.stringify(roles));
  const {backend} = tokenizer;

  test(`${name}: ids, tokens and offsets of ${texts.length} texts`, () => {
    for (const {text, ids, tokens, offsets} of texts) {
      const found = backend.encode(text);
      assertSame(found.ids, ids, JSON.stringify(text));
      assertSame(found.tokens, tokens, JSON.stringify(text));
      assertSame(found.offsets, inUnits(offsets, text.toWellFormed()), JSON.stringify(text));
    }
  });

  test(`${name}: decoded texts`, () => {
    for (const {text, ids, decoded, mixed, mixed_decoded: mixedDecoded} of texts) {
      assert.equal(backend.decode(ids), decoded, JSON.stringify(text));
      assert.equal(backend.decode(mixed), mixedDecoded, JSON.stringify(mixed));
    }
  });

  test(`${name}: Cutaway's encoding, decoding, spans and unknown pieces`, () => {
    for (const {text, encoded, continued, plain, spans, unknown, mixed, mixed_plain: mixedPlain, target} of texts) {
      const context = JSON.stringify(text), original = text.toWellFormed();
      assertSame(tokenizer.encode(text), encoded, context);
      assertSame(tokenizer.encode(text, true), continued, context);
      assert.equal(tokenizer.decode(encoded), plain, context);
      assertSame(tokenizer.spans(text), inUnits(spans, original), context);
      assertSame(tokenizer.unknown(original), unknown, context);
      assert.equal(tokenizer.decode(mixed), mixedPlain, context);
      if (target) assertSame(tokenizer.forTarget.encode(text), target, context);
    }
  });

  test(`${name}: text as tokens come`, () => {
    for (const {before, after, pieces, stops, kept, cut} of streams) {
      const stream = new TextStream(tokenizer, before), until = new StopStrings(stops);
      const found = [...after.map((token) => stream.add(token)), stream.end()];
      const context = JSON.stringify([before, after]);
      assertSame(found, pieces, context);
      assertSame([...found.map((piece) => until.add(piece)), until.end()], kept, context);
      assert.equal(cutAtStop(found.join(""), stops), cut, context);
    }
  });

  test(`${name}: roles and names of tokens`, () => {
    for (const [property, value] of Object.entries(properties)) assert.equal(tokenizer[property], value, property);
    assertSame(tokenizer.tokens(names.map((_, id) => id)), names);
  });
}

const WORD_LEVEL = {type: "WordLevel", vocab: {"<pad>": 0, "<s>": 1, "</s>": 2, "<unk>": 3, a: 4}, unk_token: "<unk>"};
const BPE = {type: "BPE", vocab: {...WORD_LEVEL.vocab, b: 5, ab: 6}, merges: ["a b"]};
const split = (expression) => ({pre_tokenizer: {type: "Split", pattern: {Regex: expression}, behavior: "Isolated"}});

for (const [settings, message] of [
  [{normalizer: {type: "Nmt"}}, /the normalizer Nmt, which the JavaScript engine does not support. It supports Seq/],
  [{pre_tokenizer: {type: "UnicodeScripts"}}, /the pre-tokenizer UnicodeScripts, which .* Use Python/],
  [{decoder: {type: "CTC"}}, /the decoder CTC, which/],
  [{post_processor: {type: "Other"}}, /the post-processor Other, which/],
  [{model: {type: "Other"}}, /the model Other, which/],
  [{model: {...BPE, dropout: 0.1}}, /BPE has dropout, which this engine does not support/],
  [{model: {...BPE, end_of_word_suffix: "</w>"}}, /BPE has end_of_word_suffix/],
  [{model: {...BPE, merges: ["a c"]}}, /merges have "c", which is not in its vocabulary/],
  [split("a++"), /pattern a\+\+ has the part \+\+/],
  [split("(?>a)"), /has the part \(\?>a\)/],
  [split("^a"), /has the part \^a/],
  [split("[[:alpha:]]"), /has the part \[:alpha:/],
  [split("[a-z&&[^b]]"), /has the part &&/],
  [split("\\p{Cherokee}"), /has a property/],
  [split("(?i:abc)"), /has the part \(\?i:abc\)/],
  [split("(a"), /has syntax/],
  [{model: {...WORD_LEVEL, vocab: {a: 0}}}, /no token for 'pad': none of <pad>, .* Name it in tokenizer_config.json/],
]) {
  test(`refused: ${message}`, () => {
    const json = JSON.stringify({model: WORD_LEVEL, added_tokens: [], ...settings});
    assert.throws(() => Tokenizer.fromJson(json), (error) => error instanceof DataError && message.test(error.message));
  });
}

test("a file that is not a tokenizer.json", () => {
  for (const text of ["", "{", "{}", "[]", "null", '{"model": {}}', '{"model": {"vocab": {}}}']) {
    assert.throws(() => Tokenizer.fromJson(text, null, "my.json"), /my.json is not a readable tokenizer.json|no token/);
  }
});

test("roles come from tokenizer_config.json", () => {
  const model = {type: "WordLevel", vocab: {P: 0, B: 1, E: 2, U: 3}, unk_token: "U"};
  const config = {pad_token: "P", bos_token: {content: "B"}, eos_token: "E", unk_token: "U", mask_token: null};
  const tokenizer = Tokenizer.fromJson(JSON.stringify({model}), JSON.stringify(config));
  assert.deepEqual([tokenizer.pad, tokenizer.bos, tokenizer.eos, tokenizer.unk, tokenizer.mask], [0, 1, 2, 3, null]);
  const wrong = JSON.stringify({pad_token: {content: 3}});
  assert.throws(() => Tokenizer.fromJson(JSON.stringify({model}), wrong), /token that is not a text: pad_token/);
});

test("an unknown word without an unknown token", () => {
  const tokenizer = Tokenizer.fromJson(JSON.stringify({model: {...WORD_LEVEL, unk_token: "none"}}));
  assert.throws(() => tokenizer.encode("b"), /"b" is not in the vocabulary, and the tokenizer has no unknown token/);
});

test("what a split does with the separators", () => {
  for (const [behavior, expected] of [
    ["Removed", "the|final|countdown"], ["Isolated", "the|-|final|-|-|countdown"],
    ["MergedWithPrevious", "the-|final-|-|countdown"], ["MergedWithNext", "the|-final|-|-countdown"],
    ["Contiguous", "the|-|final|--|countdown"],
  ]) {
    const split = buildPreTokenizer({type: "Split", pattern: {String: "-"}, behavior, invert: false});
    assert.equal(split(NormalizedText.of("the-final--countdown")).map(({text}) => text).join("|"), expected);
  }
});

test("expressions are translated", () => {
  for (const [expression, text, expected] of [
    ["(?i:'s|'ll)", "'S'ſ'lL'm", ["'S", "'ſ", "'lL"]], ["\\s+", "a\x85 \uFEFFb", ["\x85 "]], ["\\d", "1٣½", ["1", "٣"]],
    [".+", "a\u2028b\nc", ["a\u2028b", "c"]], ["[\\-\\]&~]+", "a-]&~b", ["-]&~"]],
    ["\\p{Han}|\\P{^Lu}", "a漢B", ["漢", "B"]], ["\\w+", "a_é½-b", ["a_é½", "b"]],
    ["x(?=y)|(?<!x)y", "xyy", ["x", "y"]], ["[^\\W]", "a", null], ["a{2,3}?", "aaa", null],
  ]) {
    if (expected) assert.deepEqual(text.match(translate(expression)), expected, expression);
    else assert.throws(() => translate(expression), DataError);
  }
});

test("white space has visible names", () => {
  assert.deepEqual([" ", "\n", "\n    ", "\t\t", "\r"].map(showWhitespace), ["␣", "⏎", "⏎␣×4", "⇥×2", "\\xd"]);
});

test("<s> is added where a language model uses it", () => {
  const tokenizer = Tokenizer.fromJson(JSON.stringify({model: WORD_LEVEL}));
  assert.deepEqual([tokenizer.addBos([4]), tokenizer.addBos([])], [[1, 4], [1]]);
  const withoutBos = Tokenizer.fromJson(JSON.stringify({model: WORD_LEVEL, post_processor: {type: "ByteLevel"}}));
  assert.deepEqual([withoutBos.addBos([4]), withoutBos.addBos([])], [[4], [1]]);
});
