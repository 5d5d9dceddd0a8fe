// Linear attention: a feature map instead of the softmax, so that one sum over the keys serves all queries.
//
//     softmax:   out_i = Σ_j exp(q_i·k_j) v_j / Σ_j exp(q_i·k_j)              every query with every key: O(n²)
//     linear:    out_i = φ(q_i) Σ_j φ(k_j) v_jᵀ / φ(q_i) Σ_j φ(k_j)           two sums for all queries: O(n)
//
//                               S [E,E]             z [E]                     φ(x) = elu(x) + 1
//
// A causal model adds to S and z token by token. So S and z are the whole state during decoding, as in a recurrent
// network (Katharopoulos et al. 2020, "Transformers are RNNs", equations 8 to 12 and 18 to 20).

import {MultiHeadAttention} from "./attention.js";
import {ConfigError} from "./errors.js";
import {maskedFill, scaledProducts, weightedSums} from "./kernels.js";
import {Causal} from "./masks.js";
import {map, Tensor} from "./tensor.js";

/** Multi-head attention with the linear kernel. Its cache holds sums instead of keys and values. */
export class LinearAttention extends MultiHeadAttention {
  constructor(settings) {
    if (settings.position?.actsInAttention) {
      throw new ConfigError(`linear attention has no scores, so it cannot use ${settings.position.constructor.name}. `
        + "Use a position scheme at the input: sinusoidal or learned.");
    }
    super(settings);
  }

  forward(x, memory = null, mask = null, cache = null) {
    const isWatched = this.scores.isWatched || this.weights.isWatched;
    const q = this.q.forward(featureMap(this.queryNorm.forward(this.split(this.query.forward(x)))));
    let heads;
    if (memory && cache?.stored && !isWatched) {
      heads = attendToSums(q, cache.stored); // the sums over a memory are computed at the first step
    } else {
      const y = memory ?? x;
      const k = this.k.forward(featureMap(this.keyNorm.forward(this.split(this.key.forward(y)))));
      const v = this.v.forward(this.split(this.value.forward(y)));
      heads = isWatched && (memory || !cache)
        ? this.attendQuadratic(q, k, v, mask) : attendBySums(q, k, v, mask, cache);
    }
    return this.output.forward(this.merge(this.heads.forward(heads)));
  }

  /** The same with the whole matrix of weights, for the probes. */
  attendQuadratic(q, k, v, mask) {
    const scores_BHQK = maskedFill(this.scores.forward(scaledProducts(q, k, 1)), mask, 0);
    const weights_BHQK = new Tensor(scores_BHQK.shape), K = k.shape[2];
    for (let i = 0; i < scores_BHQK.data.length / K; i++) {
      const row = scores_BHQK.row(i), sum = row.reduce((total, score) => total + score, 0);
      weights_BHQK.row(i).set(row.map((score) => safeDivide(score, sum)));
    }
    return weightedSums(this.weights.forward(weights_BHQK), v);
  }
}

/** φ(x) = elu(x) + 1: always positive, so weights are positive. */
function featureMap(x) {
  return map(x, (a) => a > 0 ? a + 1 : Math.exp(a));
}

/** q [B,H,Q,E], k and v [B,G,K,E] -> [B,H,Q,E]. The sums start with those in the cache, and are stored there. */
function attendBySums(q, k, v, mask, cache) {
  const [B, G, K, E] = k.shape, {isCausal, isToken} = parseMask(mask);
  const sums = cache?.stored ?? [new Tensor([B, G, E, E]), new Tensor([B, G, 1, E])]; // S and z
  const heads = new Tensor(q.shape);
  for (let g = 0; g < B * G; g++) {
    const isToken_K = isToken?.[Math.floor(g / G)].slice(-K);
    for (let t = 0; t < K; t++) {
      if (isToken_K?.[t] !== false) addToSums(sums, g, k.row(g * K + t), v.row(g * K + t));
      if (isCausal) readSums(heads, q, sums, g, t); // so query t does not see the keys after t
    }
  }
  if (cache) cache.stored = sums;
  return isCausal ? heads : attendToSums(q, sums);
}

/** The output for each query, from the sums. */
function attendToSums(q, sums) {
  const heads = new Tensor(q.shape), [B, G] = sums[0].shape;
  for (let g = 0; g < B * G; g++) for (let t = 0; t < q.shape[2]; t++) readSums(heads, q, sums, g, t);
  return heads;
}

/** S += φ(k) vᵀ,  z += φ(k) in key-value head g */
function addToSums([S, z], g, k, v) {
  const S_EE = S.matrix(g), z_E = z.matrix(g), E = k.length;
  for (let i = 0; i < E; i++) {
    z_E[i] += k[i];
    for (let j = 0; j < E; j++) S_EE[i * E + j] += k[i] * v[j];
  }
}

/** heads = φ(q) S / φ(q) z for query t of each head that key-value head g serves */
function readSums(heads, q, [S, z], g, t) {
  const [, H, Q, E] = q.shape, [, G] = S.shape, S_EE = S.matrix(g), z_E = z.matrix(g), n = H / G;
  for (let i = g * n; i < (g + 1) * n; i++) {
    const q_E = q.row(i * Q + t), head_E = heads.row(i * Q + t);
    let denominator = 0;
    for (let e = 0; e < E; e++) denominator += q_E[e] * z_E[e];
    for (let j = 0; j < E; j++) {
      let numerator = 0;
      for (let e = 0; e < E; e++) numerator += q_E[e] * S_EE[e * E + j];
      head_E[j] = safeDivide(numerator, denominator);
    }
  }
}

/** numerator / denominator; 0 where a query may not attend to any key, because then both are 0. */
function safeDivide(numerator, denominator) {
  return denominator === 0 ? 0 : numerator / denominator;
}

/** Whether the mask is causal, and which keys are tokens. Sums support no other masks. */
function parseMask(mask) {
  if (mask?.rules.some((rule) => !(rule instanceof Causal))) {
    throw new ConfigError("linear attention supports only causal and padding masks. Use another attention.");
  }
  return {isCausal: Boolean(mask?.rules.length), isToken: mask?.isToken ?? null};
}
