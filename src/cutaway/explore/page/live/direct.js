// Direct contributions: a margin as a sum over embedding, heads and feed-forward networks (explore/causes/direct.py).
//
// The head of a model reads the residual stream, and the stream is a sum. With all norms frozen at the values of this
// text, every step to the logits is linear, so the margin is exactly the sum of what each part adds to it. A
// contribution is direct: what later parts make of it counts as theirs.

import {MultiHeadAttention} from "../engine/attention.js";
import {LanguageHead} from "../engine/embedding.js";
import {ConfigError} from "../engine/errors.js";
import {ClassHead, FirstPool, MeanPool, TagHead} from "../engine/heads.js";
import {streamProbes} from "../engine/lens.js";
import {namedModules} from "../engine/modules.js";
import {LayerNorm, RMSNorm} from "../engine/norms.js";
import {recordValues} from "./variants.js";

const RESIDUALS = {residual: "block", selfAttentionResidual: "self_attention",
                   crossAttentionResidual: "cross_attention", feedForwardResidual: "feed_forward"};
const ATTENTIONS = {self_attention: "selfAttention", cross_attention: "crossAttention"};

/** Part -> what it adds to the margin directly. The sum is the margin. "biases" does not depend on the text. */
export function directContributions(model, example, margin) {
  const {weight, bias} = readout(model), stack = model.decoder ? "decoder" : "encoder";
  const {values, normed} = recordNorms(model, () =>
    recordValues(model, example, `${stack}.layers.*_attention.heads`, `${stack}.layers.*residual.update`,
                 "*embedding.embedded"));
  const embedded = values.get(streamProbes(model).get("embedding")), rows = readRows(model, example, margin, embedded);
  const at = {rows, values, normed};
  let parts = {embedding: takeRows(embedded, rows), biases: new Float64Array(rows.length * embedded.shape[2])};
  model[stack].layers.forEach((layer, i) => {
    for (const [attribute, name] of Object.entries(RESIDUALS)) {
      const residual = layer[attribute];
      if (!residual) continue;
      let updates = sublayerParts(layer, residual, name, `${stack}.layers.${i}.`, at);
      if (residual.normAfter) updates = applyFrozenNorm(residual.normAfter, updates, at);
      const biases = add(parts.biases, updates.biases);
      parts = {...parts, ...updates, biases};
      if (residual.constructor.hasNormedOutput) parts = applyFrozenNorm(residual.norm, parts, at);
    }
  });
  parts = applyFrozenNorm(model[stack].norm, parts, at);
  const {token, rival} = margin, D = weight.shape[1];
  const direction = weight.row(token).map((w, d) => w - weight.row(rival)[d]);
  const read = (part) => part.reduce((total, x, i) => total + x * direction[i % D], 0) / rows.length;
  const found = Object.fromEntries(Object.entries(parts).map(([name, part]) => [name, read(part)]));
  if (bias) found.biases += bias.data[token] - bias.data[rival];
  return found;
}

/** Weight [V,D] and bias [V] of a linear head. */
function readout({head}) {
  if (head instanceof LanguageHead) return head;
  const isLinear = head instanceof ClassHead && (head.pool instanceof FirstPool || head.pool instanceof MeanPool);
  if (head instanceof TagHead || isLinear) return head.classify;
  const name = `${head.constructor.name}${head.pool ? ` with ${head.pool.constructor.name}` : ""}`;
  throw new ConfigError(`the head of this model (${name}) is not linear, so no exact sum exists.`);
}

/** The positions that the head reads. It takes their mean. */
function readRows({head: {pool}}, {places}, {step}, embedded) {
  if (pool instanceof MeanPool) return [...Array(embedded.shape[1]).keys()];
  return [pool ? 0 : places ? places[step] : step];
}

/** What `work` returns, and the input of every norm: {values, normed}. */
function recordNorms(model, work) {
  const normed = new Map(), norms = [...namedModules(model).values()].filter(isNorm);
  for (const norm of norms) {
    const {forward} = norm;
    norm.forward = (x) => {
      normed.set(norm, x);
      return forward.call(norm, x);
    };
  }
  try {
    return {values: work(), normed};
  } finally {
    for (const norm of norms) delete norm.forward; // that of the class counts again
  }
}

const isNorm = (module) => module instanceof LayerNorm || module instanceof RMSNorm;

/** Send each part through a norm with the divisor of this text, which makes it linear. Its bias goes to the biases. */
function applyFrozenNorm(norm, parts, {rows, normed}) {
  if (!isNorm(norm)) return parts; // the identity
  const x = takeRows(normed.get(norm), rows), D = norm.weight.data.length;
  const centre = (part) => (norm instanceof LayerNorm ? subtractMeans(part, D) : part);
  const squares = centre(x).map((value) => value ** 2);
  const factor = rows.map((_, r) => 1 / Math.sqrt(meanOf(squares, r, D) + norm.epsilon));
  const send = (part) => centre(part).map((value, i) => value * factor[Math.floor(i / D)] * norm.weight.data[i % D]);
  const found = Object.fromEntries(Object.entries(parts).map(([name, part]) => [name, send(part)]));
  if (norm.bias) found.biases = found.biases.map((value, i) => value + norm.bias.data[i % D]);
  return found;
}

function subtractMeans(part, D) {
  const means = Array.from({length: part.length / D}, (_, r) => meanOf(part, r, D));
  return part.map((value, i) => value - means[Math.floor(i / D)]);
}

/** The mean of row r. */
function meanOf(values, r, D) {
  let total = 0;
  for (let d = 0; d < D; d++) total += values[r * D + d];
  return total / D;
}

/** What one residual connection adds, by head or as a whole; before the norm of a sandwich. */
function sublayerParts(layer, residual, name, path, {rows, values, normed}) {
  const update = values.get(`${path}${name === "block" ? "" : `${name}_`}residual.update`);
  let rest = takeRows(residual.normAfter ? normed.get(residual.normAfter) : update, rows);
  const found = {biases: new Float64Array(rest.length)}, D = update.shape[2];
  for (const kind of name === "block" ? Object.keys(ATTENTIONS) : [name]) {
    const attention = layer[ATTENTIONS[kind]];
    if (!(attention instanceof MultiHeadAttention)) continue;
    const heads = values.get(`${path}${kind}.heads`), {weight, bias} = attention.output;
    if (bias) found.biases = found.biases.map((value, i) => value + bias.data[i % D]);
    if (bias) rest = rest.map((value, i) => value - bias.data[i % D]);
    for (let h = 0; h < heads.shape[1]; h++) {
      found[`${path}${kind}.heads.${h}`] = projectHead(heads, h, weight, rows);
      rest = rest.map((value, i) => value - found[`${path}${kind}.heads.${h}`][i]);
    }
  }
  if (name === "feed_forward" || name === "block") found[`${path}feed_forward`] = rest;
  return found;
}

/** The output matrix applied to one head: [rows · D] */
function projectHead(heads, h, weight, rows) {
  const [, , Q, E] = heads.shape, D = weight.shape[0], found = new Float64Array(rows.length * D);
  rows.forEach((q, r) => {
    const head_E = heads.row(h * Q + q);
    for (let d = 0; d < D; d++) {
      const row = weight.row(d);
      for (let e = 0; e < E; e++) found[r * D + d] += row[h * E + e] * head_E[e];
    }
  });
  return found;
}

/** Some rows of a value [1,T,D], one after the other. */
function takeRows(value, rows) {
  const D = value.shape[2], found = new Float64Array(rows.length * D);
  rows.forEach((t, r) => found.set(value.row(t), r * D));
  return found;
}

function add(a, b) {
  return a.map((value, i) => value + b[i]);
}
