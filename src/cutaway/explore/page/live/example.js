// One input of a model and its predictions, in the same form for every task (explore/traced_example.py).
//
//     task                    input                           one prediction for             output
//     translation             the source, the target so far   each token of the target       a translation
//     language_model          the text so far                 each token of the text         a continuation
//     masked_language_model   a text with masked tokens       each masked token              the filled text
//     tagging                 a text                          the first token of each word   tags
//     classification          a text                          the whole text                 a label
//     image_classification    an image                        the whole image                a label
//     embedding               a text                          nothing                        a vector

import {encodeWords, Tagger} from "../engine/classification.js";
import {Embedder} from "../engine/embedder.js";
import {DataError} from "../engine/errors.js";
import {TextGenerator, Translator} from "../engine/generation.js";
import {NON_FINITE_LOGITS} from "../engine/request.js";
import {argmax, logSoftmax} from "../engine/topk.js";

const SHOWN_NUMBERS = 8; // first values of a vector
const MAX_NEW_TOKENS = 40; // length of a generated text, if decode.max_length is not set
const GENERATORS = {translation: Translator, language_model: TextGenerator};

export class Example {
  source = [];
  target_in = [];
  target_out = [];
  answers = []; // one id for each prediction
  places = null; // the positions with a prediction; null: all
  output = "";
  prompt = 0; // number of leading answers that belong to the prompt
  finished = true;
  hidden = []; // the masked positions
  words = []; // tagging: one for each place

  /**
   * @param {object} settings the fields above, and
   *   task, text
   *   inputs   the arguments of the model's `forward`
   *   names    (ids) -> tokens, tags or labels
   */
  constructor(settings) {
    Object.assign(this, settings);
  }

  /** Run the model. -> the logits of each prediction [N][V] */
  logits(model) {
    const logits = model.forward(...this.inputs), isOfTokens = logits.shape.length === 3;
    if (this.task === "embedding") return [];
    const places = isOfTokens ? this.places ?? [...Array(logits.shape[1]).keys()] : [0];
    return places.map((place) => logits.row(place));
  }

  /** Without the tokens after this prediction, which a causal decoder does not read for it. */
  until(step) {
    if (!this.target_in.length) return this;
    const cut = (list) => list.slice(0, step + 1), [[row], ...others] = this.inputs.toReversed();
    return new Example({...this, inputs: [...others.reverse(), [cut(row)]], target_in: cut(this.target_in),
                        target_out: cut(this.target_out), answers: cut(this.answers)});
  }

  /** The log-probability of each answer, in nats. */
  logP(logits_NV) {
    return logits_NV.map((logits_V, n) => logSoftmax(logits_V)[this.answers[n]]);
  }

  /** The log-probability of the whole output, without the prompt. */
  totalLogP(logits_NV) {
    return this.logP(logits_NV).slice(this.prompt).reduce((sum, logP) => sum + logP, 0);
  }

  /** Set the most probable answers. `join` makes the output of their names. */
  withBestAnswers(model, join) {
    this.answers = this.logits(model).map(argmax);
    this.output = this.names(this.answers).join(join);
    return this;
  }
}

/**
 * Run a model on a text (or an image), and return the input together with the model's answers.
 *
 * @param {import("../engine/run.js").Run} run
 * @param {string | import("../engine/tensor.js").Tensor} content a text, or pixels [1,C,H,W]
 * @param {object} request target: the whole output; prefix: the ids that it starts with; hidden: positions to mask
 * @param {AbortSignal} signal stops a search
 */
export async function prepareExample(run, content, {target = null, prefix = null, hidden = null} = {}, signal) {
  if (run.task === "translation") return prepareTranslation(run, content, target, prefix ?? [], signal);
  if (run.task === "language_model") return prepareText(run, content, target, prefix ?? [], signal);
  if (target !== null || prefix?.length) {
    throw new DataError(`a model for ${run.task.replaceAll("_", " ")} generates no text, so it takes no target and no `
      + "prefix. Leave them out.");
  }
  const prepare = {tagging: prepareTagging, classification: prepareClassification, embedding: prepareEmbedding,
                   image_classification: prepareImage, masked_language_model: prepareMasked}[run.task];
  return prepare(run, content, hidden ?? []);
}

async function prepareTranslation(run, text, target, prefix, signal) {
  const {tokenizer} = run;
  if (!text.trim()) throw new DataError("there is nothing to translate: the text is empty. Give a sentence.");
  const source = [...tokenizer.encode(text), tokenizer.eos];
  checkLength(run, source.length);
  const [ids, finished] = target === null ? await generateIds(run, text, source, prefix, signal)
    : [tokenizer.forTarget.encode(target), true];
  const targetOut = finished ? [...ids, tokenizer.eos] : ids, targetIn = [tokenizer.bos, ...targetOut.slice(0, -1)];
  checkLength(run, targetIn.length);
  return new Example({
    task: "translation",
    text,
    inputs: [[source], [targetIn]],
    names: (ids) => tokenizer.tokens(ids),
    source: tokenizer.tokens(source),
    target_in: tokenizer.tokens(targetIn),
    target_out: tokenizer.tokens(targetOut),
    answers: targetOut,
    output: tokenizer.decode(ids),
    finished,
  });
}

async function prepareText(run, text, target, prefix, signal) {
  const {tokenizer} = run, prompt = tokenizer.addBos(tokenizer.encode(text));
  checkLength(run, prompt.length);
  const [ids, finished] = target === null ? await generateIds(run, text, prompt, prefix, signal)
    : [tokenizer.encode(target, text !== ""), false];
  const whole = finished ? [...prompt, ...ids, tokenizer.eos] : [...prompt, ...ids];
  checkLength(run, whole.length - 1);
  if (whole.length < 2) throw new DataError("the text is empty, and the target is empty too. Give a text.");
  return new Example({
    task: "language_model",
    text,
    inputs: [[whole.slice(0, -1)]],
    names: (ids) => tokenizer.tokens(ids),
    target_in: tokenizer.tokens(whole.slice(0, -1)),
    target_out: tokenizer.tokens(whole.slice(1)),
    answers: whole.slice(1),
    output: new TextGenerator(run, text).outputText(ids),
    prompt: prompt.length - 1,
    finished,
  });
}

/** Generate the output after the prefix. -> the ids with the prefix, and whether </s> ended it */
async function generateIds(run, text, row, prefix, signal) {
  checkTokens(run, prefix);
  const end = prefix.indexOf(run.tokenizer.eos);
  if (end >= 0) return [prefix.slice(0, end), true]; // the output is complete already
  try {
    const [{tokens, finished}] = await outputSearch(run, text, row, prefix, {signal}).run();
    return [[...prefix, ...tokens], finished];
  } catch (error) {
    if (error.message !== NON_FINITE_LOGITS) throw error;
    return [[...prefix], true]; // the model has diverged; its trace is still useful
  }
}

/**
 * The search for the output of one text.
 * @param {number[]} row the source with </s>, or <s> and the prompt
 * @param {object} options signal; decode: changed settings
 * @returns limit: the most tokens that may follow the prefix, with </s>; run(settings): see `search` of generation.js
 */
export function outputSearch(run, text, row, prefix, {signal, decode = {}} = {}) {
  checkTokens(run, prefix);
  const search = new GENERATORS[run.task](run, text, {signal});
  search.decode = {...run.decode, ...decode};
  if (run.task === "language_model") search.decode.maxLength ||= MAX_NEW_TOKENS;
  const most = search.lengthLimit(row), limit = most - prefix.length;
  if (limit <= 0) {
    throw new DataError(`the prefix has ${prefix.length} tokens; the output can have at most ${most}. Shorten it.`);
  }
  search.prefix = prefix;
  return {limit, run: (settings) => search.search(row, {limits: [limit], ...settings})};
}

function checkTokens({settings: {vocabSize}}, prefix) {
  const wrong = prefix.find((id) => !(Number.isInteger(id) && id >= 0 && id < vocabSize));
  if (wrong === undefined) return;
  throw new DataError(`${wrong} is not a token id of this model. Ids go from 0 to ${vocabSize - 1}.`);
}

function prepareTagging(run, text) {
  const {words} = new Tagger(run, text);
  if (!words.length) throw new DataError("the text has no word to tag. Give a text.");
  const {ids, first} = encodeWords(run.tokenizer, words);
  checkLength(run, ids.length);
  return new Example({task: "tagging", text, inputs: [[ids]], names: labelNames(run),
    source: run.tokenizer.tokens(ids), places: first, words}).withBestAnswers(run.model, " ");
}

function prepareClassification(run, text) {
  const {tokenizer} = run, ids = [tokenizer.bos, ...tokenizer.encode(text), tokenizer.eos];
  checkLength(run, ids.length);
  return new Example({task: "classification", text, inputs: [[ids]], names: labelNames(run),
    source: tokenizer.tokens(ids)}).withBestAnswers(run.model, "");
}

function prepareImage(run, pixels) {
  return new Example({task: "image_classification", text: "", inputs: [pixels], names: labelNames(run),
    source: patchNames(run)}).withBestAnswers(run.model, "");
}

/** An embedding has no predictions. */
function prepareEmbedding(run, text) {
  const {tokenizer} = run, ids = new Embedder(run, text, {prompt: ""}).inputIds();
  checkLength(run, ids.length);
  const vector_D = run.model.forward([ids]).row(0);
  const shown = Array.from(vector_D.slice(0, SHOWN_NUMBERS), (value) => value.toFixed(3)).join(" ");
  return new Example({task: "embedding", text, inputs: [[ids]], names: (ids) => tokenizer.tokens(ids),
    source: tokenizer.tokens(ids), places: [], output: `${vector_D.length} numbers: ${shown} …`});
}

/**
 * `hidden` counts tokens from <s> = 0. A "<mask>" in the text is a masked token too. Without any, the token in the
 * middle is masked.
 */
function prepareMasked(run, text, hidden) {
  const {tokenizer} = run, [before, ...after] = text.split(tokenizer.roles.mask);
  const ids = [tokenizer.bos, ...tokenizer.encode(before),
               ...after.flatMap((piece) => [tokenizer.mask, ...tokenizer.encode(piece, true)]), tokenizer.eos];
  checkLength(run, ids.length);
  if (ids.length === 2) throw new DataError("the text is empty, so there is no token to mask. Give a text.");
  const wrong = hidden.find((place) => !(place > 0 && place < ids.length - 1));
  if (wrong !== undefined) {
    throw new DataError(`token ${wrong} cannot be masked. The text has the tokens 1 to ${ids.length - 2}.`);
  }
  const inText = [...ids.keys()].filter((place) => ids[place] === tokenizer.mask);
  const chosen = [...new Set([...hidden, ...inText])].sort((a, b) => a - b);
  const places = chosen.length ? chosen : [Math.floor(ids.length / 2)];
  const masked = ids.map((id, place) => (places.includes(place) ? tokenizer.mask : id));
  const example = new Example({task: "masked_language_model", text, inputs: [[masked]],
    names: (ids) => tokenizer.tokens(ids), source: tokenizer.tokens(masked), places, hidden: places});
  example.withBestAnswers(run.model, " ");
  const filled = new Map(places.map((place, n) => [place, example.answers[n]]));
  example.output = tokenizer.decode(ids.map((id, place) => filled.get(place) ?? id));
  return example;
}

function labelNames({labels}) {
  return (ids) => ids.map((id) => labels[id]);
}

/** Patches are named "row,column". */
function patchNames({settings: {imageSize, patchSize, pooling}}) {
  const side = imageSize / patchSize;
  const patches = Array.from({length: side * side}, (_, i) => `${Math.floor(i / side)},${i % side}`);
  return pooling === "cls" ? ["<cls>", ...patches] : patches;
}

function checkLength(run, length) {
  if (length <= run.longestText) return;
  throw new DataError(`the text has ${length.toLocaleString("en")} tokens; this model has positions for `
    + `${run.longestText.toLocaleString("en")}. Shorten it, or train with a larger model.max_length.`);
}
