// The attention function (the paper, equation 1):
//
//     Attention(Q, K, V) = softmax(Q Kᵀ / sqrt(d_k)) V
//
// A query that may not attend to any key gets zeros as weights and output, and never NaN.

import {add, map, multiply, multiplyTransposed, softmax, Tensor} from "./tensor.js";

/**
 * The equation, line by line. Each of the G key-value heads serves H/G query heads.
 *
 * @param {Tensor} q [B,H,Q,E]
 * @param {Tensor} k [B,G,K,E]
 * @param {Tensor} v [B,G,K,E]
 * @param {Object} options
 * @param {import("./masks.js").Mask | null} options.mask which query may attend to which key
 * @param {Tensor | null} options.bias [B,H,Q,K] or [1,H,Q,K], added to the scores (relative positions)
 * @param {function(Tensor): Tensor} options.relativeValues weights [B,H,Q,K] -> [B,H,Q,E], added to the output
 * @param {number} options.cap above 0: keeps scores between -cap and cap
 * @param {import("./probe.js").Probe} options.probeScores
 * @param {import("./probe.js").Probe} options.probeWeights
 */
export function attendExact(q, k, v, {mask = null, bias = null, relativeValues = null, cap = 0, probeScores,
                                      probeWeights}) {
  let scores_BHQK = scaledProducts(q, k);
  if (cap) scores_BHQK = softCap(scores_BHQK, cap);
  if (bias) scores_BHQK = add(scores_BHQK, bias);
  scores_BHQK = probeScores.forward(scores_BHQK);
  let weights_BHQK = softmax(maskedFill(scores_BHQK, mask, -Infinity));
  weights_BHQK = probeWeights.forward(weights_BHQK);
  const heads_BHQE = weightedSums(weights_BHQK, v);
  return relativeValues ? add(heads_BHQE, relativeValues(weights_BHQK)) : heads_BHQE;
}

/** Q Kᵀ / sqrt(E)    q [B,H,Q,E], k [B,G,K,E] -> [B,H,Q,K] */
export function scaledProducts(q, k, scale = 1 / Math.sqrt(q.shape[3])) {
  const [B, H, Q, E] = q.shape, [, G, K] = k.shape;
  const scores_BHQK = new Tensor([B, H, Q, K]);
  for (let i = 0; i < B * H; i++) {
    const keys = k.matrix(keyValueHead(i, H, G));
    multiplyTransposed(scores_BHQK.matrix(i), q.matrix(i), keys, Q, K, E, scale);
  }
  return scores_BHQK;
}

/** weights [B,H,Q,K], v [B,G,K,E] -> [B,H,Q,E] */
export function weightedSums(weights, v) {
  const [B, H, Q, K] = weights.shape, [, G, , E] = v.shape;
  const heads_BHQE = new Tensor([B, H, Q, E]);
  for (let i = 0; i < B * H; i++) {
    multiply(heads_BHQE.matrix(i), weights.matrix(i), v.matrix(keyValueHead(i, H, G)), Q, E, K);
  }
  return heads_BHQE;
}

/**
 * The key-value head that serves head i of [B,H]. Both are counted over the whole batch.
 *
 *     G = 2, H = 6      k₀ k₁  ──▶  k₀ k₀ k₀ k₁ k₁ k₁      (Ainslie et al. 2023; G = 1 is Shazeer 2019)
 */
function keyValueHead(i, H, G) {
  return Math.floor(i / (H / G));
}

/** cap · tanh(scores / cap): almost unchanged if small, always between -cap and cap (Gemma 2, 2024). */
function softCap(scores, cap) {
  return map(scores, (score) => cap * Math.tanh(score / cap));
}

/** The scores [B,H,Q,K], with `value` where the mask forbids the pair. */
export function maskedFill(scores, mask, value) {
  const allowed = mask?.dense();
  if (!allowed) return scores;
  const filled = new Tensor(scores.shape, scores.data.slice()), [B, H] = scores.shape;
  for (let i = 0; i < B * H; i++) {
    const matrix = filled.matrix(i), allowed_QK = allowed[Math.floor(i / H) % allowed.length];
    for (let j = 0; j < matrix.length; j++) if (!allowed_QK[j]) matrix[j] = value;
  }
  return filled;
}
