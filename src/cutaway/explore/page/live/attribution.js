// Attribution: which input tokens a margin depends on (explore/causes/attribution.py).
//
//     occlusion    margin(x) - margin(x without the token)
//     attention    the mean attention weights of the layer that reads the input
//     rollout      attention through all layers, with residual connections (Abnar & Zuidema 2020)
//
// The two methods that need gradients are not here, because this engine has no gradients.

import {FirstPool, FirstTanhPool} from "../engine/heads.js";
import {PatchEmbedding} from "../engine/patches.js";
import {Tensor} from "../engine/tensor.js";
import {marginOf} from "./margin.js";
import {recordValues, replaceRow, runVariants} from "./variants.js";

export const METHODS = {occlusion, attention, rollout};

/** One method by name: {method, source, target, total, gap}, a number for each token. */
export async function attribute(model, example, margin, method, slices) {
  const {source = [], target = []} = await METHODS[method](model, example, margin, slices);
  return {method, source, target, total: null, gap: null};
}

/** The margin minus the margin without each token. */
async function occlusion(model, example, margin, slices) {
  const inputs = embeddedInputs(model, example);
  const edits = inputs.flatMap(({probe, x, without}) =>
    Array.from({length: x.shape[1]}, (_, t) => ({[probe]: replaceRow(t, without.row(t))})));
  const measure = (logits) => marginOf(margin, logits);
  const [before, ...after] = await runVariants(model, example, [{}, ...edits], slices, measure);
  const changes = after.map((value) => before - value);
  return Object.fromEntries(inputs.map(({side, x}) => [side, changes.splice(0, x.shape[1])]));
}

/** The inputs as the layers read them: {side, probe, x, without}, both [1,T,D]. `without` has no tokens. */
function embeddedInputs(model, example) {
  const sides = model.sourceEmbedding ? {source: "source_embedding", target: "target_embedding"}
    : {[example.target_in.length ? "target" : "source"]: "embedding"};
  const values = recordValues(model, example, "*embedding.embedded");
  return Object.entries(sides).map(([side, name], i) => {
    const embedding = model[name.replace(/_e/, "E")], x = values.get(`${name}.embedded`);
    return {side, probe: `${name}.embedded`, x, without: withoutTokens(embedding, example.inputs[i], x.shape)};
  });
}

/** The embedding of the same positions without tokens: zeros in place of each token's vector, or a black image. */
function withoutTokens(embedding, input, shape) {
  if (embedding instanceof PatchEmbedding) return embedding.forward(new Tensor(input.shape));
  const x = embedding.segments ? embedding.segments.forward([Array(shape[1]).fill(0)]) : new Tensor(shape);
  return embedding.norm.forward(embedding.position.embed(x, 0));
}

/** The mean weights of the last stack, over layers and heads. A translator has them for source and target. */
function attention(model, example, margin) {
  const {encoder, decoder, cross} = recordWeights(model, example);
  const start = (layers) => queries(model, example, margin, layers);
  const mean = (layers) => scale(1 / layers.length, sum(layers.map((weights) => times(start(layers), weights))));
  if (cross) return {source: mean(cross), target: mean(decoder)};
  return {[example.target_in.length ? "target" : "source"]: mean(decoder ?? encoder)};
}

/**
 * Attention multiplied through all layers. A residual connection counts as much as the attention. The product begins
 * at the last layer, so that it is always one row.
 */
function rollout(model, example, margin) {
  const {encoder, decoder, cross} = recordWeights(model, example);
  const start = (layers) => queries(model, example, margin, layers);
  if (!decoder) return {source: roll(start(encoder), encoder)};
  if (!cross) return {target: roll(start(decoder), decoder)};
  let target = start(decoder), source = Array(cross[0][0].length).fill(0);
  for (let i = decoder.length - 1; i >= 0; i--) {
    source = sum([source, scale(0.5, times(target, cross[i]))]);
    target = scale(0.5, roll(target, [decoder[i]]));
  }
  return {source: roll(source, encoder), target};
}

/** A row times (weights + 1) / 2 of each layer, the last layer first. */
function roll(row, layers) {
  return layers.reduceRight((row, weights) => scale(0.5, sum([row, times(row, weights)])), row);
}

/** The attention weights of each layer, averaged over heads: {encoder, decoder, cross}, for each layer [Q][K]. */
function recordWeights(model, example) {
  const found = {};
  for (const [name, weights] of recordValues(model, example, "*_attention.weights")) {
    const kind = name.includes("cross_attention") ? "cross" : name.split(".")[0], [, H, Q] = weights.shape;
    const mean_QK = Array.from({length: Q}, (_, q) =>
      scale(1 / H, sum(Array.from({length: H}, (_, h) => weights.row(h * Q + q)))));
    (found[kind] ??= []).push(mean_QK);
  }
  return found;
}

/** The row that selects the predicting position [Q]; a mean for a head that pools all positions. */
function queries({head: {pool}}, {places}, {step}, [weights_QK]) {
  const onlyFirst = pool instanceof FirstPool || pool instanceof FirstTanhPool;
  const place = pool ? 0 : places ? places[step] : step;
  return weights_QK.map((_, q) => (pool && !onlyFirst ? 1 / weights_QK.length : Number(q === place)));
}

function times(row, matrix) {
  return sum(matrix.map((each, i) => scale(row[i], each)));
}

function scale(factor, row) {
  return Array.from(row, (value) => factor * value);
}

function sum(rows) {
  const total = Array(rows[0].length).fill(0);
  for (const row of rows) row.forEach((value, i) => { total[i] += value; });
  return total;
}
