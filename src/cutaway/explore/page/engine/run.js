// A trained run: its settings, tokenizer, labels and model.

import {buildModel} from "./build.js";
import {ConfigError, damageError, DataError, RunError} from "./errors.js";
import {readDecode} from "./request.js";
import {parseJson, readFiles, toText} from "./run_files.js";
import {readSettings} from "./settings.js";
import {otherWork} from "./slices.js";
import {Tokenizer} from "./tokenizer.js";
import {readWeights} from "./weights.js";

// family, head -> task
const TASKS = {
  encoder_decoder: {language: "translation"},
  decoder: {language: "language_model"},
  encoder: {language: "masked_language_model", classes: "classification", tags: "tagging", vectors: "embedding"},
  vision: {classes: "image_classification"},
};
const LONG_TEXTS = {classification: "cut", tagging: "cut"}; // task -> the value of data.too_long = "auto"
const WITH_LABELS = ["classification", "tagging", "image_classification"];

export class Run {
  /**
   * @param {object} tables the content of config.json
   * @param model see models.js
   * @param {Tokenizer | null} tokenizer null: the model reads images
   * @param {string[]} labels the names of the classes
   */
  constructor(tables, model, tokenizer, labels) {
    this.settings = readSettings(tables.model);
    this.task = taskOf(tables);
    this.config = tables;
    this.model = model;
    this.tokenizer = tokenizer;
    this.labels = labels;
    this.decode = readDecode(tables.decode, this.task);
  }

  /** @param {object} files name -> content; see run_files.js */
  static async load(files) {
    const contents = await readFiles(files), tables = parseJson(contents.get("config.json"), "config.json");
    if (!tables.model) throw damageError("config.json", "it has no table 'model'");
    const {method = "full"} = tables.finetune ?? {};
    if (method !== "full") {
      throw new RunError(`this run is an adapter (finetune.method = '${method}'), which needs its base. Merge the two, `
        + "and load the merged run.");
    }
    const task = taskOf(tables);
    const labels = contents.has("labels.json") ? parseJson(contents.get("labels.json"), "labels.json") : [];
    if (WITH_LABELS.includes(task) && labels.length !== tables.model.n_classes) {
      throw new RunError(`labels.json has ${labels.length} labels, but the model has ${tables.model.n_classes} `
        + "classes. Restore the original labels.");
    }
    const tokenizer = task === "image_classification" ? null : readTokenizer(contents, tables);
    await otherWork();
    const weights = await readWeights(contents.get("model.safetensors"));
    await otherWork();
    return new Run(tables, buildModel(tables.model, weights, "model.safetensors"), tokenizer, labels);
  }

  /** The most tokens in a text. */
  get longestText() {
    return this.settings.nPositions;
  }

  /** Whether texts that are too long are cut; otherwise they are refused. */
  get cutsLongTexts() {
    const {too_long: tooLong = "auto"} = this.config.data ?? {};
    return (tooLong === "auto" ? LONG_TEXTS[this.task] : tooLong) === "cut";
  }

  /** The text to put before each input. undefined: the run's default prompt; "": none. */
  promptText(name) {
    const {prompts = {}, prompt = ""} = this.config.data ?? {};
    name ??= prompt;
    if (name && !Object.hasOwn(prompts, name)) {
      throw new ConfigError(`there is no prompt '${name}'. `
        + (Object.keys(prompts).length ? `Allowed: ${Object.keys(prompts).join(", ")}.` : "This run has no prompts."));
    }
    return name ? prompts[name] : "";
  }
}

/** The task of this family with this head. */
function taskOf({model: {family = "encoder_decoder", head = "language"}}) {
  const task = TASKS[family]?.[head];
  if (task) return task;
  throw new ConfigError(`the JavaScript engine does not support model.family = '${family}' with model.head = `
    + `'${head}'.`);
}

function readTokenizer(contents, {model, data}) {
  if (!contents.has("tokenizer.json")) throw new RunError("there is no tokenizer.json. Restore it from a copy.");
  const text = (name) => (contents.has(name) ? toText(contents.get(name), name) : null);
  const tokenizer = Tokenizer.fromJson(text("tokenizer.json"), text("tokenizer_config.json"));
  const unused = model.vocab_size - tokenizer.vocabSize;
  // an imported model may have rows that no token uses: T5's vocabulary is rounded up to a multiple of 128
  if (unused < 0 || (unused && data?.tokenizer !== "file")) {
    throw new RunError(`tokenizer.json has ${tokenizer.vocabSize} tokens, but the model was trained with `
      + `${model.vocab_size}. Restore the original tokenizer.`);
  }
  return tokenizer;
}

/** Throw unless it is a text. */
export function requireText(value, what = "a text") {
  if (typeof value === "string") return;
  const given = Array.isArray(value) ? "a list" : value === null ? "null" : typeof value;
  throw new DataError(`got ${given}; expected ${what}. Give one text, such as "The small cat sleeps."`);
}

export function raiseTooLong(text, tokens, maxTokens, remedy = "Shorten it.") {
  const shown = text.length <= 40 ? text : `${text.slice(0, 40)}...`;
  throw new DataError(`the text '${shown}' has ${tokens} tokens; the model reads at most ${maxTokens}. ${remedy}`);
}

/** Throw if a number is NaN or infinite. */
export function requireFinite(numbers) {
  if (numbers.every(Number.isFinite)) return numbers;
  throw new DataError("the model's output is not finite. The training diverged or the weights are damaged. Use an "
    + "earlier checkpoint.");
}
