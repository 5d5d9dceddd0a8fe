// Position schemes that add to the attention scores a term that depends on the distance of query and key.

import {multiply, multiplyTransposed, Tensor} from "./tensor.js";
import {Parameter} from "./modules.js";
import {Position} from "./positions.js";

/** Base class: `bias` is added to the scores. */
class RelativeScores extends Position {
  actsInAttention = true;

  kernelArguments(q, query, key) {
    return {bias: this.bias(q, query, key)};
  }
}

/**
 * score(i, j) - m_h · |i - j|: attention falls with distance, with a slope m_h for each head (Press et al. 2022).
 *
 * It has no parameters and works for texts longer than those in training. It was designed for decoders: an encoder
 * cannot distinguish left from right, because |i - j| has no sign.
 */
export class AlibiPosition extends RelativeScores {
  constructor(nHeads, maxLength) {
    super(maxLength);
    this.slopes = alibiSlopes(nHeads);
  }

  /** -> [1,H,Q,K] */
  bias(q, query, key) {
    return biasByDistance(this.slopes.length, query, key, (h, distance) => -this.slopes[h] * Math.abs(distance));
  }
}

/**
 * score(i, j) + b_h[bucket(j - i)]: a learned number for each bucket of distances (T5, Raffel et al. 2020).
 *
 * Each short distance has its own bucket. Longer distances share buckets that widen logarithmically up to
 * `maxDistance`. All layers of a stack share one table. A decoder uses all buckets for the past.
 */
export class RelativeBiasPosition extends RelativeScores {
  constructor(nHeads, maxLength, buckets = 32, maxDistance = 128, isCausal = false) {
    super(maxLength);
    this.maxDistance = maxDistance; // longer distances use the first and last bucket
    this.table = new Parameter(buckets, nHeads);
    this.buckets = Array.from({length: 2 * maxDistance + 1},
      (_, i) => t5Bucket(i - maxDistance, buckets, maxDistance, isCausal));
  }

  /** -> [1,H,Q,K] */
  bias(q, query, key) {
    const {table, buckets, maxDistance} = this, H = table.shape[1];
    return biasByDistance(H, query, key, (h, distance) =>
      table.data[buckets[clamp(distance, maxDistance) + maxDistance] * H + h]);
  }
}

/**
 * A learned vector for each distance, added to keys and to values (Shaw et al. 2018, equations 3 and 4).
 *
 *     score(i, j) = q_i · (k_j + a^K[j - i]) / sqrt(E),    output_i = Σ_j weight(i, j) · (v_j + a^V[j - i])
 *
 * Distances beyond `clip` share one vector.
 */
export class RelativePosition extends RelativeScores {
  perLayer = true;

  constructor(dHead, maxLength, clip = 16) {
    super(maxLength);
    this.clip = clip;
    this.forKeys = new Parameter(2 * clip + 1, dHead);
    this.forValues = new Parameter(2 * clip + 1, dHead);
  }

  kernelArguments(q, query, key) {
    return {bias: this.bias(q, query, key), relativeValues: (weights) => this.values(weights, query, key)};
  }

  /** q [B,H,Q,E] -> [B,H,Q,K] */
  bias(q, query, key) {
    const [B, H, Q, E] = q.shape, R = 2 * this.clip + 1;
    const scores_BHQR = new Tensor([B, H, Q, R]); // R: one score for each distance
    multiplyTransposed(scores_BHQR.data, q.data, this.forKeys.data, B * H * Q, R, E, 1 / Math.sqrt(E));
    const bias_BHQK = new Tensor([B, H, Q, key.size]);
    this.forEachPair(B * H, query, key, (row, j, r) => {
      bias_BHQK.data[row * key.size + j] = scores_BHQR.data[row * R + r];
    });
    return bias_BHQK;
  }

  /** The term added to the output.    weights [B,H,Q,K] -> [B,H,Q,E] */
  values(weights, query, key) {
    const [B, H, Q, K] = weights.shape, [R, E] = this.forValues.shape;
    const byDistance_BHQR = new Tensor([B, H, Q, R]), values_BHQE = new Tensor([B, H, Q, E]);
    this.forEachPair(B * H, query, key, (row, j, r) => {
      byDistance_BHQR.data[row * R + r] += weights.data[row * K + j];
    });
    multiply(values_BHQE.data, byDistance_BHQR.data, this.forValues.data, B * H * Q, E, R);
    return values_BHQE;
  }

  /** Call f(row of [B,H,Q], column of K, index of their distance in the tables) for each pair. */
  forEachPair(heads, query, key, f) {
    for (let row = 0; row < heads * query.size; row++) {
      const distance = key.start - query.start - row % query.size; // of the first key
      for (let j = 0; j < key.size; j++) f(row, j, clamp(distance + j, this.clip) + this.clip);
    }
  }
}

/** f(head, key - query) for each pair -> [1,H,Q,K] */
function biasByDistance(H, query, key, f) {
  const bias = new Tensor([1, H, query.size, key.size]);
  let at = 0;
  for (let h = 0; h < H; h++) {
    for (let i = query.start; i < query.stop; i++) {
      for (let j = key.start; j < key.stop; j++) bias.data[at++] = f(h, j - i);
    }
  }
  return bias;
}

function clamp(x, limit) {
  return Math.max(-limit, Math.min(limit, x));
}

/**
 * 2^(-8/n), 2^(-16/n), ... if n is a power of 2.
 * Otherwise: the slopes of the next lower power, then every second slope of the next higher one.
 */
function alibiSlopes(nHeads) {
  const power = 2 ** Math.floor(Math.log2(nHeads));
  const slopes = Array.from({length: power}, (_, h) => 2 ** (-8 * (h + 1) / power));
  if (power === nHeads) return slopes;
  return [...slopes, ...alibiSlopes(2 * power).filter((_, h) => h % 2 === 0).slice(0, nHeads - power)];
}

/**
 * The bucket of a distance (key minus query). Half of the buckets hold one distance each, half hold ranges.
 * In an encoder, half of all buckets are for the future and half for the past.
 */
export function t5Bucket(distance, buckets, maxDistance, isCausal) {
  const n = isCausal ? buckets : buckets / 2, exact = Math.floor(n / 2);
  const offset = !isCausal && distance > 0 ? n : 0;
  const d = isCausal ? Math.max(0, -distance) : Math.abs(distance);
  if (d < exact) return offset + d;
  return offset + exact + rangeStarts(exact, n, maxDistance).filter((start) => start <= d).length;
}

/**
 * Where each range bucket starts, except the first one, which starts at `exact`.
 *
 * The k-th of n starts at exact · (maxDistance / exact)^(k/n). Computed in integers, because rounding the logarithm
 * puts some distances into the wrong bucket.
 */
function rangeStarts(exact, buckets, maxDistance) {
  const n = buckets - exact, starts = [];
  for (let k = 1; k < n; k++) {
    let d = Math.ceil(exact * (maxDistance / exact) ** (k / n)) - 1;
    const isBelow = () => power(d, n) * power(exact, k) < power(maxDistance, k) * power(exact, n);
    while (isBelow()) d++;
    starts.push(d);
  }
  return starts;
}

function power(base, exponent) {
  return BigInt(base) ** BigInt(exponent);
}
