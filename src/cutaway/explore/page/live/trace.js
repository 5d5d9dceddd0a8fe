// The trace of one forward pass as plain data: tokens, attention weights, candidates of each step, logit lens
// (explore/trace.py; its fields have the same names here).

import {DataError} from "../engine/errors.js";
import {lens, streamProbes} from "../engine/lens.js";
import {recordActivations} from "../engine/probe.js";
import {topk} from "../engine/topk.js";
import {candidates} from "./candidates.js";
import {round} from "./values.js";

const ATTENTION = "*_attention.weights";
const MAX_WEIGHTS = 300_000; // above this number, only the largest weights of each row are stored
const MIN_PER_ROW = 4;

/** Run the model on the example, and record attention, candidates and the logit lens. */
export function traceExample(run, example) {
  const {model} = run, {task} = example, {values, logits} = record(model, example, ...streamProbes(model).values());
  const steps = candidates(example, logits), hasAnswers = task !== "embedding";
  const isGenerated = task === "translation" || task === "language_model";
  return {
    source: example.source,
    target_in: example.target_in,
    target_out: example.target_out,
    ...packWeights(values),
    task,
    text: example.text,
    output: example.output,
    target_ids: isGenerated ? example.answers : [],
    prompt: example.prompt,
    finished: example.finished,
    steps,
    lens: hasAnswers ? logitLens(model, example, values) : null,
    log_p: hasAnswers ? example.totalLogP(logits) : null,
    tags: task === "tagging" ? tagsOf(example, steps) : null,
    hidden: example.hidden,
    image: task === "image_classification" ? imageOf(run, example) : null,
    unknown: run.tokenizer ? run.tokenizer.unknown(example.text) : [],
    beam: null,
  };
}

/** Only the attention weights and the log-probability of each answer, to compare snapshots. */
export function traceAttention(model, example) {
  const {values, logits} = record(model, example);
  return {...packWeights(values), logP: example.logP(logits)};
}

/** Run the model. -> the values of the attention weights and of other probes, and the logits of the predictions */
function record(model, example, ...others) {
  const hasAttention = (model.encoder ?? model.decoder).layers.length > 0;
  const values = recordActivations(model, ...(hasAttention ? [ATTENTION] : []), ...others);
  let logits;
  try {
    logits = example.logits(model);
  } finally {
    values.stop();
  }
  if (logits.every((logits_V) => logits_V.every(Number.isFinite))) return {values, logits};
  throw new DataError("the model's logits are not finite: its training diverged, or its weights are damaged. Run "
    + "cutaway trace to find the first bad value, or use an earlier checkpoint.");
}

function logitLens(model, example, values) {
  const {rows, tokens, p, final} = lens(model, values, example.answers, example.places), {names} = example;
  const atPlaces = (example.places ?? []).map((place) => example.source[place]);
  const axis = [example.target_out, example.words, atPlaces].find((each) => each.length) ?? [""];
  const rounded = (table, decimals) => table.map((row) => row.map((value) => round(value, decimals)));
  return {rows, axis, tokens: tokens.map(names), p: rounded(p, 4), final: rounded(final, 6)};
}

function tagsOf({words, places}, steps) {
  return words.map((word, i) => ({word, tag: steps[i].token, p: steps[i].p, at: places[i]}));
}

function imageOf({settings: {patchSize, pooling}}, {inputs: [image]}) {
  const [, C, H, W] = image.shape;
  const pixels = Array.from({length: C}, (_, c) => toRows(image.matrix(c), H, W, 4));
  return {pixels, patch: patchSize, class_token: pooling === "cls"};
}

/** Weights [1,H,Q,K] as lists. Above MAX_WEIGHTS, only the largest of each row, and their share of the row. */
function packWeights(values) {
  const all = [...values].filter(([name]) => name.endsWith("_attention.weights"));
  const total = all.reduce((sum, [, {data}]) => sum + data.length, 0);
  const rows = all.reduce((sum, [, {shape: [, H, Q]}]) => sum + H * Q, 0);
  if (total <= MAX_WEIGHTS) {
    return {attention: Object.fromEntries(all.map(([name, weights]) => [name, heads(weights)])), kept: null};
  }
  const perRow = Math.max(MIN_PER_ROW, Math.floor(MAX_WEIGHTS / rows)), shares = [];
  const attention = Object.fromEntries(all.map(([name, weights]) => {
    const [, H, Q, K] = weights.shape, columns = [], stored = [];
    for (let h = 0; h < H; h++) {
      const rowsOfHead = Array.from({length: Q}, (_, q) => weights.row(h * Q + q));
      columns.push(rowsOfHead.map((row) => topk(row, perRow).sort((a, b) => a - b)));
      stored.push(rowsOfHead.map((row, q) => columns[h][q].map((k) => round(row[k]))));
      shares.push(...rowsOfHead.map((row, q) => columns[h][q].reduce((sum, k) => sum + row[k], 0)));
    }
    return [name, {shape: [H, Q, K], columns, values: stored}];
  }));
  const mean = shares.reduce((sum, share) => sum + share, 0) / shares.length;
  const least = shares.reduce((min, share) => Math.min(min, share), Infinity);
  return {attention, kept: {per_row: perRow, least: round(least), mean: round(mean)}};
}

function heads(weights) {
  const [, H, Q, K] = weights.shape;
  return Array.from({length: H}, (_, h) => toRows(weights.matrix(h), Q, K, 4));
}

function toRows(data, rows, columns, decimals) {
  return Array.from({length: rows}, (_, i) =>
    Array.from(data.subarray(i * columns, (i + 1) * columns), (value) => round(value, decimals)));
}
