// Map a text to a vector, so that texts of similar meaning have similar directions.

import {ConfigError} from "./errors.js";
import {FirstPool, MaxPool, MeanPool} from "./heads.js";
import {readOptions} from "./options.js";
import {raiseTooLong, requireFinite, requireText} from "./run.js";
import {Slices} from "./slices.js";

const POOLS = {mean: new MeanPool(), cls: new FirstPool(), max: new MaxPool()};
const SMALLEST_LENGTH = 1e-12; // of a vector that is divided by its length

/** A sentence encoder was trained for this. For any other model, the inputs of its head are pooled. */
export class Embedder {
  static tasks = [
    "embedding", "masked_language_model", "classification", "tagging", "language_model", "translation",
  ];

  constructor(run, text, options) {
    requireText(text);
    const {pooling = "auto", normalize = true, cut = false, prompt, signal} =
      readOptions(options, ["pooling", "normalize", "cut", "prompt"]);
    this.text = run.promptText(prompt) + text;
    Object.assign(this, {run, normalize, cut, slices: new Slices(signal)});
    this.pool = this.choosePool(pooling);
  }

  choosePool(name) {
    const {family, head} = this.run.settings, {model} = this.run;
    if (name !== "auto" && !Object.hasOwn(POOLS, name)) {
      throw new ConfigError(`unknown pooling '${name}'. Allowed: auto, ${Object.keys(POOLS).join(", ")}.`);
    }
    if (name === "cls" && (family === "decoder" || family === "encoder_decoder")) {
      throw new ConfigError("pooling 'cls' needs a first token that was trained for it; model.family = "
        + `'${family}' has none. Use 'mean'.`);
    }
    if (name === "auto") return head === "vectors" ? model.head.pool : POOLS.mean;
    return POOLS[name];
  }

  async result() {
    const {model} = this.run, row = this.fittingIds();
    const x_1TD = model.encode ? model.encode([row]) : model.decode([row]);
    const x_D = requireFinite(this.pool.forward(x_1TD).row(0)).slice();
    if (!this.normalize) return x_D;
    const length = Math.max(SMALLEST_LENGTH, Math.hypot(...x_D));
    return x_D.map((x) => x / length);
  }

  /** The ids of the text with its special tokens. */
  inputIds() {
    const {tokenizer, settings: {family}} = this.run, encoded = tokenizer.encode(this.text);
    const withSpecials = {
      decoder: () => tokenizer.addBos(encoded),
      encoder_decoder: () => [...encoded, tokenizer.eos],
      encoder: () => [tokenizer.bos, ...encoded, tokenizer.eos],
    };
    return withSpecials[family]();
  }

  /** The ids, cut if they are too many and `cut` is set. */
  fittingIds() {
    const row = this.inputIds(), {maxTokens, run: {settings: {family}}} = this;
    if (row.length <= maxTokens) return row;
    if (!this.cut) {
      raiseTooLong(this.text, row.length, maxTokens,
        "Split it and embed each part, or embed only its start (the option cut: true).");
    }
    return family === "decoder" ? row.slice(0, maxTokens) : [...row.slice(0, maxTokens - 1), row.at(-1)];
  }

  /** Longest text in tokens; for a sentence encoder, the length that it was trained for. */
  get maxTokens() {
    const {settings: {head}, longestText, config: {data}} = this.run;
    return head === "vectors" ? Math.min(longestText, data?.max_tokens ?? longestText) : longestText;
  }
}
