// The public functions of the engine: what index.js exports, and the classic script cutaway.js as globalThis.Cutaway.

export as namespace Cutaway;

/** Names of files (config.json, tokenizer.json, ...) -> contents. A text of weights is base64, perhaps in pieces. */
export type Files = Record<string, string | string[] | Uint8Array | ArrayBuffer>;

/**
 * Load a model: a run folder or its web export.
 * @param source the URL of the folder, or the contents of its files; without it, what model.js has set
 * @param options.worker compute in a worker, so that the page never waits (default: true). If the page cannot start
 *   one, the page's own thread computes, in slices of about 10 ms.
 */
export function load(source?: string | URL | Files, options?: {worker?: boolean}): Promise<Model>;

export type Task = "translation" | "language_model" | "classification" | "image_classification" | "tagging"
  | "embedding" | "masked_language_model";

/** A call that does not fit the task is refused with a ConfigError. All errors are rejections of the promise. */
export interface Model {
  readonly task: Task;
  readonly config: Record<string, any>; // the content of config.json
  readonly labels: string[]; // the names of the classes
  /** The translation of a text. An empty text has an empty translation. */
  translate(text: string, options?: GenerateOptions): Promise<Generated>;
  /** The prompt with its continuation. An empty prompt starts a new text. */
  generate(prompt: string, options?: GenerateOptions): Promise<Generated>;
  /** The most probable label of a text or an image. */
  classify(example: string | Image, options?: CallOptions): Promise<Classified>;
  /** The tag of each word. A text is split into words as in the training data. */
  tag(text: string | string[], options?: CallOptions): Promise<Tagged>;
  /** A vector, so that texts of similar meaning have similar directions. */
  embed(text: string, options?: EmbedOptions): Promise<Float32Array>;
  /** End the worker. The model cannot be used any more. */
  close(): void;
}

export interface CallOptions {
  /** Stops the call, which is then rejected with `signal.reason`. */
  signal?: AbortSignal;
}

/** Without an option, the setting of the run counts (config.decode). */
export interface GenerateOptions extends CallOptions {
  strategy?: "auto" | "greedy" | "beam" | "sample";
  beamSize?: number; // beam: the number of hypotheses
  lengthPenalty?: number; // beam: the exponent of the length penalty; 0: none
  coveragePenalty?: number; // beam, translation
  temperature?: number; // sample: the divisor of the logits
  topK?: number; // sample: only the k most likely tokens; 0: all
  topP?: number; // sample: only the most likely tokens whose probabilities add up to p; 1: all
  minP?: number; // sample: only tokens at least this fraction as likely as the most likely one; 0: all
  seed?: number; // sample
  repetitionPenalty?: number;
  noRepeatNgram?: number;
  suppress?: number[]; // ids of tokens that are never generated
  minLength?: number;
  maxLength?: number; // the most new tokens; 0: 50 more than the source, or 200 after a prompt
  nBest?: number; // beam: the number of `hypotheses` in the result
  prefix?: string; // the output starts with this
  choices?: string[]; // the output is exactly one of these
  stop?: string[]; // the output ends before the first of these
  /**
   * Called with the output so far, at each token. Not with beam search: a run that uses it streams the greedy output.
   * Text that a later token can change comes later; the result is complete.
   */
  onToken?: (text: string, step: Step) => void;
}

export interface Step {
  number: number; // from 0
  piece: string; // the text that this token adds
  token: string; // a readable name
  id: number;
  logP: number; // the natural logarithm of its probability
}

export interface Hypothesis {
  text: string; // with the prompt, if there is one
  tokens: string[]; // readable names of the new tokens, without </s>
  ids: number[];
  tokenLogP: number[]; // of each token, and of </s> if finished
  logP: number; // the sum
  score: number; // the search ranks by it: logP, in beam search with its penalties
  finished: boolean; // false: cut off at the length limit, or by `stop`
}

/** The best hypothesis, and all (best first). */
export interface Generated extends Hypothesis {
  hypotheses: Hypothesis[];
  unknown: string[]; // the pieces of the input that are not in the vocabulary
}

/** Pixels row by row, the channels of a pixel next to each other. The ImageData of a canvas is such an image. */
export interface Image {
  pixels?: Uint8Array | Uint8ClampedArray | Float32Array | Float64Array | number[]; // bytes, or floats from 0 to 1
  data?: Uint8Array | Uint8ClampedArray; // another name for `pixels`
  width: number;
  height: number;
  channels?: number;
}

export interface Classified {
  label: string;
  probability: number;
  probabilities: {label: string; probability: number}[]; // of all labels, in the order of `labels`
  // for texts only:
  isCut?: boolean; // whether the text was too long, so that only its start was classified
  tokens?: string[];
  unknown?: string[];
}

export interface Tagged {
  words: {word: string; tag: string}[];
  parts: number; // of a text that is too long; otherwise 1
  unknown: string[];
}

export interface EmbedOptions extends CallOptions {
  pooling?: "auto" | "mean" | "cls" | "max"; // auto: as in the model's head, else mean
  normalize?: boolean; // scale to length 1 (default: true)
  cut?: boolean; // embed the start of a text that is too long, instead of an error
  prompt?: string; // the name of a text of the run to put before this one; "": none
}

/** What a user can fix. The message says what was given, what was expected and what to do. */
export class CutawayError extends Error {}
export class ConfigError extends CutawayError {}
export class DataError extends CutawayError {}
export class RunError extends CutawayError {}

/** For the script cutaway.js: set its text, from which workers start; and answer the calls of a page in a worker. */
export function useScript(text: string): void;
export function answerCalls(scope?: object): void;
