// The input and output of a search.

import {ConfigError} from "./errors.js";
import {toCamelCase, toSnakeCase} from "./names.js";
import {RandomGenerator} from "./random.js";

export const NON_FINITE_LOGITS = "the model's logits are not finite, so no token can be chosen. The training diverged "
  + "or the weights are damaged. Use an earlier checkpoint.";
export const NO_TOKEN_ALLOWED = "the settings forbid every next token. Loosen one of these: allowed tokens or choices, "
  + "no_repeat_ngram, suppress, min_length.";
const BEAM_CANNOT_STREAM = "beam search extends several texts in parallel, so it cannot stream one text token by "
  + 'token. Use the strategy "greedy" or "sample".';

// The settings of [decode], as in config/decode.py; a test compares them.
export const DECODE_DEFAULTS = {
  strategy: "auto", // "greedy", "beam" or "sample"; "auto": "sample" for a language model, "beam" for a translator
  beam_size: 4, // beam: the number of hypotheses
  length_penalty: 0.6, // beam: the exponent of the length penalty; 0: none
  coverage_penalty: 0, // beam, translation: the cost of source tokens that get little attention
  temperature: 0.8, // sample: the divisor of the logits; 1: the model's own distribution
  top_k: 0, // sample: only the k most likely tokens; 0: all
  top_p: 0.95, // sample: only the most likely tokens whose probabilities add up to p; 1: all
  min_p: 0, // sample: only tokens at least this fraction as likely as the most likely one; 0: all
  seed: 0, // sample
  repetition_penalty: 1, // above 1: tokens that were already generated become less likely
  no_repeat_ngram: 0, // above 0: no sequence of this number of tokens is generated twice
  suppress: [], // token ids that are never generated
  min_length: 0, // the number of tokens before </s> is allowed
  max_length: 0, // the longest translation in tokens; 0: 50 more than its source
  batch_size: 64, // the number of texts decoded together
};

const WHOLE = ["beam_size", "top_k", "seed", "no_repeat_ngram", "min_length", "max_length", "batch_size"];
// name -> [condition, message]
const LIMITS = [
  ["beam_size", (n) => n >= 1 && n <= 1000, "must be between 1 and 1,000"],
  ["batch_size", (n) => n >= 1, "must be at least 1"],
  ...["length_penalty", "coverage_penalty", "top_k", "no_repeat_ngram", "min_length", "max_length", "seed"]
    .map((name) => [name, (x) => x >= 0 && x < Infinity, "must not be negative or infinite"]),
  ["temperature", (x) => x > 0 && x < Infinity, "must be positive; for no randomness use greedy"],
  ["repetition_penalty", (x) => x > 0 && x < Infinity, "must be positive; 1 changes nothing"],
  ["min_p", (x) => x >= 0 && x <= 1, "must be between 0 and 1"],
  ["top_p", (x) => x > 0 && x <= 1, "must be above 0 and at most 1"],
  ["suppress", (ids) => ids.every((id) => Number.isInteger(id) && id >= 0), "must be ids of tokens, counted from 0"],
  ["strategy", (name) => ["auto", "greedy", "beam", "sample"].includes(name), "must be auto, greedy, beam or sample"],
];

/**
 * The settings of a search, in camelCase (beamSize, topP, ...), checked.
 * @param {object} given the table `decode` of a run's config.json, with changes; names in snake_case or camelCase
 * @param {string} task replaces the strategy "auto" by the default of the task
 */
export function readDecode(given = {}, task = "") {
  const table = {...DECODE_DEFAULTS};
  for (const [key, value] of Object.entries(given)) {
    const name = toSnakeCase(key);
    const refuse = (reason) => {
      throw new ConfigError(`decode.${name} = ${JSON.stringify(value)} ${reason}.`);
    };
    if (!Object.hasOwn(DECODE_DEFAULTS, name)) refuse(`is unknown. Known: ${Object.keys(DECODE_DEFAULTS).join(", ")}`);
    const hasType = typeof value === typeof table[name] && Array.isArray(value) === Array.isArray(table[name]);
    if (!hasType || (WHOLE.includes(name) && !Number.isInteger(value))) refuse("has the wrong type");
    for (const [limited, isMet, message] of LIMITS) if (limited === name && !isMet(value)) refuse(message);
    table[name] = value;
  }
  if (table.strategy === "auto" && task) table.strategy = task === "language_model" ? "sample" : "beam";
  return Object.fromEntries(Object.entries(table).map(([name, value]) => [toCamelCase(name), value]));
}

/** The settings of a search, and what differs between the rows of the batch. */
export class Search {
  nBest = 1;
  prefixes = []; // the tokens that each output must start with; []: none
  seeds = []; // for each row; []: the seed of `decode` for all
  allowed = null; // (row, tokens so far with prefix) -> tokens that may come next; null: all
  onToken = null; // not with beam search: (row, new token, log-probability) -> whether to continue this text
  withAlignment = false; // translation only: return the cross-attention weights
  onStep = null; // beam search only: called with each step
  onStart = null; // beam search in slices: called when the search starts, and when it repeats its steps
  shouldContinue = null; // row -> whether to continue this text

  /**
   * @param {object} settings the fields above, and
   *   decode   from readDecode
   *   limits   for each row, the largest number of new tokens, </s> included, prefix excluded
   *   numbers  the number of each row's text in the call
   *   bos, eos
   */
  constructor(settings) {
    Object.assign(this, settings);
  }

  /** A random generator for each row. It depends only on the seed and the text's number, not on the batch. */
  generators() {
    return this.numbers.map((number, row) => new RandomGenerator(this.seeds[row] ?? this.decode.seed, number));
  }

  /** Whether any setting changes the model's logits. */
  get hasRules() {
    const {repetitionPenalty, noRepeatNgram, suppress, minLength} = this.decode;
    return repetitionPenalty !== 1 || noRepeatNgram > 0 || suppress.length > 0 || minLength > 0
      || this.allowed !== null;
  }

  /** Whether the search needs the cross-attention weights. */
  get needsSourceWeights() {
    return this.withAlignment || this.hasCoverage;
  }

  /** Whether the score has a coverage penalty. */
  get hasCoverage() {
    return this.decode.strategy === "beam" && this.decode.coveragePenalty > 0;
  }

  /** Throw a ConfigError if the settings contradict each other or need a source that is missing. */
  check(hasSource) {
    if (this.decode.strategy === "auto") {
      throw new ConfigError("decode.strategy = 'auto' depends on the task. Name the strategy.");
    }
    if (this.onToken && this.decode.strategy === "beam") throw new ConfigError(BEAM_CANNOT_STREAM);
    const what = this.hasCoverage ? `decode.coverage_penalty = ${this.decode.coveragePenalty}`
      : this.withAlignment ? "an alignment" : null;
    if (!hasSource && what) {
      throw new ConfigError(`${what} needs a source text, and a text generator has none. Use it with translation `
        + "models only.");
    }
  }
}

/**
 * The tokens that each row of a batch starts with. Prompts are cut to the length of the shortest one. The rest of a
 * prompt and the prefix are `forced`: read one token per step, like generated tokens. So no row needs padding.
 *
 *     prompts [a b c d], [e f]     ->   prompts [a b], [e f]     forced [c d x], [y]     answerStarts 4, 2
 *     prefixes [x], [y]
 *
 * The prompt of a translation is <s>. `isHistory`: prompts are part of the history that rules against repetition see.
 */
export class Start {
  constructor(prompts, prefixes, isHistory) {
    const shortest = Math.min(...prompts.map((prompt) => prompt.length));
    this.prompts = prompts.map((prompt) => prompt.slice(0, shortest)); // the first step reads their last token
    this.forced = prompts.map((prompt, row) => [...prompt.slice(shortest), ...(prefixes[row] ?? [])]);
    this.answerStarts = prompts.map((prompt) => prompt.length - (isHistory ? 0 : shortest)); // indices in the history
    this.isHistory = isHistory;
  }

  /** The token that each row reads in the first step. */
  get first() {
    return this.prompts.map((prompt) => prompt.at(-1));
  }

  /** The history before the first step. */
  get history() {
    return this.prompts.map((prompt) => (this.isHistory ? prompt.slice(0, -1) : []));
  }
}

/**
 * A text that a search found, without its prefix.
 * @typedef {object} Hypothesis
 * @property {number[]} tokens without <s> and </s>
 * @property {number} logProbability the sum over its tokens and </s>
 * @property {number} score the search ranks by it: the log-probability, in beam search with its penalties
 * @property {boolean} finished whether it ends with </s>; otherwise it was cut off at the length limit
 * @property {number[]} tokenLogProbs the log-probability of each token, and of </s> if finished
 * @property {number[][] | null} alignment for each of them, the attention weights over the source tokens
 */
