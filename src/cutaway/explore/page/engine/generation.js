// Generate text: from a text to a search over tokens, and back.

import {Coverage} from "./alignment.js";
import {ChoiceTrie, decodeForChoices} from "./choices.js";
import {ConfigError, DataError} from "./errors.js";
import {readOptions} from "./options.js";
import {readDecode, Search, Start} from "./request.js";
import {requireText} from "./run.js";
import {searchInSlices} from "./sliced_search.js";
import {Slices} from "./slices.js";
import {TextStepper, TranslationStepper} from "./stepper.js";
import {cutAtStop, StopStrings, TextStream} from "./streaming.js";
import {PYTHON_SPACE} from "./unicode.js";

const EXTRA_LENGTH = 50; // a translation may have this many tokens more than its source (the paper, section 6.1)
const GENERATED_LENGTH = 200; // default number of new tokens of a text generator
const SPACES_ONLY = new RegExp(`^[${PYTHON_SPACE}]*$`, "u"); // as Python's strip()
const OPTIONS = ["decode", "prefix", "choices", "stop", "nBest", "onToken"];
const PROMPT_PART = 32; // tokens of a prompt that are read at once

/** Base of Translator and TextGenerator. */
class Generation {
  /**
   * @param {import("./run.js").Run} run
   * @param {string} text to translate or to continue
   * @param {object} options see cutaway.d.ts
   */
  constructor(run, text, options) {
    requireText(text);
    const {decode: given, ...others} = readOptions(options, OPTIONS);
    const {prefix = "", choices = null, stop = [], nBest = 1, onToken = null, signal} = others;
    Object.assign(this, {run, text, stop, nBest, onToken, signal, tokenizer: run.tokenizer});
    this.decode = readDecode({...run.config.decode, ...given}, run.task);
    if (!given.strategy) this.decode = this.defaultDecode(given, choices);
    this.prefix = prefix ? this.encodeOutput("prefix", prefix) : [];
    const outputs = choices?.map((choice) => this.encodeOutput("choice", choice));
    this.trie = choices && new ChoiceTrie(outputs, this.tokenizer.eos);
    const {vocabSize} = run.settings, wrong = this.decode.suppress.find((id) => id >= vocabSize);
    if (wrong === undefined) return;
    throw new ConfigError(`suppress contains the token ${wrong}; this model has tokens 0 to ${vocabSize - 1}. `
      + "Remove it.");
  }

  /** The run's strategy, unless it samples and there are choices. Instead of a beam, the greedy output is streamed. */
  defaultDecode(given, choices) {
    const decode = decodeForChoices(this.decode, choices), needsBeam = "beamSize" in given || this.nBest > 1;
    return this.onToken && decode.strategy === "beam" && !needsBeam ? {...decode, strategy: "greedy"} : decode;
  }

  /** Search, and convert the texts found. */
  async result() {
    const row = this.inputIds();
    const found = row.length ? await this.search(row) : [];
    const hypotheses = found.map((hypothesis) => this.describe(hypothesis));
    const nothing = {text: this.fullText(""), tokens: [], ids: [], tokenLogP: [], logP: 0, score: 0, finished: true};
    return {...(hypotheses[0] ?? nothing), unknown: this.tokenizer.unknown(this.text), hypotheses};
  }

  /** @param {object} settings of the search that differ from those of the options */
  async search(row, settings = {}) {
    const slices = new Slices(this.signal), {tokenizer, decode, nBest, prefix, onToken, trie} = this;
    const search = new Search({
      decode, nBest, onToken, numbers: [0], bos: tokenizer.bos, eos: tokenizer.eos, prefixes: [prefix],
      limits: [this.lengthLimit(row)], allowed: trie?.allowed ?? null, ...settings,
    });
    const start = this.start(row, search), coverage = Coverage.of(search, [row.length]);
    const stepper = await this.stepper(row, search, slices);
    return searchInSlices(stepper, start, search, coverage, slices, this.tokenCallback());
  }

  /** Streams the text, and ends it at a stop string. */
  tokenCallback() {
    if (!this.onToken && !this.stop.length) return undefined;
    const stream = new TextStream(this.tokenizer, this.context()), stops = new StopStrings(this.stop);
    let text = "", number = 0;
    for (const token of this.prefix) text += stops.add(stream.add(token));
    return (id, logP) => {
      const piece = stops.add(stream.add(id));
      text += piece;
      this.onToken?.(text, {number: number++, piece, token: this.tokenizer.tokens([id])[0], id, logP});
      return !stops.isOver;
    };
  }

  describe({tokens: ids, tokenLogProbs: tokenLogP, logProbability: logP, score, finished}) {
    const text = this.fullText(cutAtStop(this.outputText([...this.prefix, ...ids]), this.stop));
    return {text, tokens: this.tokenizer.tokens(ids), ids, tokenLogP, logP, score, finished};
  }

  /** The text of generated ids. The context is decoded too, because a character can span two tokens. */
  outputText(ids) {
    const before = this.context(), inFront = [...this.tokenizer.decode(before)].length; // characters
    return [...this.tokenizer.decode([...before, ...ids])].slice(inFront).join("");
  }

  /** The ids of a text that the output must contain. Throws if it has unknown words. */
  encodeOutput(what, text) {
    const tokenizer = this.tokenizer.forTarget, ids = tokenizer.encode(text, this.continuesText);
    if (tokenizer.unk === null || !ids.includes(tokenizer.unk)) return ids;
    throw new DataError(`the ${what} '${text}' cannot be generated: ${tokenizer.unknown(text).join(", ")} is not in `
      + "the vocabulary. Leave it out, or use words in the vocabulary.");
  }

  /** Largest number of new tokens, with </s>. With choices, the length of the longest one. */
  lengthLimit(row) {
    const room = this.room(row) - this.prefix.length;
    if (room < 1) throw new DataError(this.noRoomMessage(row));
    if (!this.trie) return Math.min(this.decode.maxLength || this.defaultLength(row), room);
    const needed = this.trie.longest - this.prefix.length;
    if (needed <= room) return Math.max(needed, 1);
    throw new DataError(`the longest choice needs ${needed} more tokens, but only ${room} positions are left. `
      + "Shorten it.");
  }
}

/** A trained encoder-decoder that translates a text. An empty text has an empty translation. */
export class Translator extends Generation {
  static tasks = ["translation"];
  continuesText = false;

  inputIds() {
    const ids = SPACES_ONLY.test(this.text) ? [] : this.tokenizer.encode(this.text);
    return ids.length ? [...ids, this.tokenizer.eos] : [];
  }

  /** The ids that are decoded together with the output, because a character can span two tokens. */
  context() {
    return [];
  }

  fullText(output) {
    return output;
  }

  start(row, search) {
    search.check(true);
    return new Start([[this.tokenizer.bos]], [this.prefix], false);
  }

  stepper(row, search) {
    return new TranslationStepper(this.run.model, [row], null, search.needsSourceWeights);
  }

  room() {
    return this.run.longestText;
  }

  defaultLength(row) {
    return row.length - 1 + EXTRA_LENGTH; // without </s>
  }

  noRoomMessage(row) {
    return `the prefix has ${this.prefix.length} tokens, and this model has positions for ${this.run.longestText}: no `
      + "positions are left. Shorten it.";
  }
}

/** A trained decoder that continues a prompt. An empty prompt starts a new text. */
export class TextGenerator extends Generation {
  static tasks = ["language_model"];

  get continuesText() {
    return this.text !== "";
  }

  inputIds() {
    return this.tokenizer.addBos(this.tokenizer.encode(this.text));
  }

  context() {
    return this.tokenizer.encode(this.text);
  }

  fullText(output) {
    return this.text + output;
  }

  start(row, search) {
    search.check(false);
    return new Start([row], [this.prefix], true);
  }

  /** Reads all but the last token of the prompt, in parts. */
  async stepper(row, search, slices) {
    const stepper = new TextStepper(this.run.model, [row.slice(0, 1)]);
    for (let from = 0; from < row.length - 1; from += PROMPT_PART) {
      await slices.rest();
      const part = row.slice(from, Math.min(from + PROMPT_PART, row.length - 1));
      this.run.model.decode([part], null, null, null, stepper.cache);
    }
    return stepper;
  }

  room(row) {
    return this.run.longestText - row.length + 1; // the last token is generated, but never read
  }

  defaultLength() {
    return GENERATED_LENGTH;
  }

  noRoomMessage(row) {
    const prefixPart = this.prefix.length ? ` and the prefix ${this.prefix.length}` : "";
    return `the prompt has ${row.length} tokens${prefixPart}, and this model has positions for `
      + `${this.run.longestText}: no positions are left. Shorten it.`;
  }
}
