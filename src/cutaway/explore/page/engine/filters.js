// Filters that change the logits before sampling, in this order:
//
//     temperature, top-k, top-p, min-p
//
// Each takes the output of the one before it. They change an array [V] in place; an excluded token gets -Infinity.

import {maximum, softmax64, topk} from "./topk.js";

const EXCLUDED = -Infinity;

/** logits / t: below 1 sharpens the distribution, above 1 flattens it. */
export function temperature(t) {
  return (logits_V) => {
    for (let i = 0; i < logits_V.length; i++) logits_V[i] /= t;
  };
}

/** Keep the k most probable tokens, and all tokens that are as probable as the k-th. */
export function topK(k) {
  return (logits_V) => excludeBelow(logits_V, logits_V[topk(logits_V, k).at(-1)]);
}

/** Keep the nucleus: the fewest most probable tokens whose probabilities sum to p or more (Holtzman et al. 2020). */
export function topP(p) {
  return (logits_V) => {
    const order_V = Uint32Array.from(logits_V.keys()).sort((a, b) => logits_V[b] - logits_V[a] || a - b);
    const p_V = softmax64(Float64Array.from(order_V, (token) => logits_V[token]));
    let sum = 0;
    order_V.forEach((token, i) => {
      sum += p_V[i];
      // a token is in the nucleus if the sum before it is below p; the first token always is
      if (sum - p_V[i] >= p) logits_V[token] = EXCLUDED;
    });
  };
}

/**
 * Keep tokens with at least `share` times the probability of the most probable one (Nguyen et al. 2024).
 * p ≥ share · p_max is the same as logit ≥ logit_max + log(share), because the softmax's denominator cancels.
 */
export function minP(share) {
  return (logits_V) => excludeBelow(logits_V, maximum(logits_V) + Math.log(share));
}

function excludeBelow(logits_V, limit) {
  for (let i = 0; i < logits_V.length; i++) if (logits_V[i] < limit) logits_V[i] = EXCLUDED;
}

/** The filters that the settings switch on, in order. */
export function buildFilters(decode) {
  const filters = [];
  if (decode.temperature !== 1) filters.push(temperature(decode.temperature));
  if (decode.topK) filters.push(topK(decode.topK));
  if (decode.topP < 1) filters.push(topP(decode.topP));
  if (decode.minP > 0) filters.push(minP(decode.minP));
  return filters;
}
