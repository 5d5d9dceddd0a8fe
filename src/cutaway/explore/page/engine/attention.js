// Multi-head attention (the paper, section 3.2.2): one module for self- and cross-attention, with or without cache.

import {attendExact} from "./kernels.js";
import {Span} from "./masks.js";
import {Identity, Linear, Module} from "./modules.js";
import {Position} from "./positions.js";
import {Probe} from "./probe.js";
import {Tensor} from "./tensor.js";

const NO_POSITION = new Position(); // the base class changes neither queries and keys nor scores

/**
 * MultiHead(Q, K, V) = Concat(head_1, ..., head_H) W_O,  head_i = Attention(Q W_Qi, K W_Ki, V W_Vi)
 *
 * Each of the matrices `query`, `key` and `value` holds the projections of all heads, of width E = D/H:
 *
 *     x [B,Q,D] ──query──▶ [B,Q,H·E] ──split──▶ [B,H,Q,E] ──┐
 *     y [B,K,D] ──key────▶ [B,K,G·E] ──split──▶ [B,G,K,E] ──┤ attend ──▶ [B,H,Q,E] ──merge──▶ output ──▶ [B,Q,D]
 *     y [B,K,D] ──value──▶ [B,K,G·E] ──split──▶ [B,G,K,E] ──┘
 *
 * In self-attention, y is x. In cross-attention, y is the memory (the encoder's output), and positions are not used.
 * G is the number of key-value heads. If G < H, several query heads share keys and values, and the cache is smaller
 * (grouped-query attention; multi-query attention if G = 1).
 *
 * `headNorm` makes a norm of width E for queries and keys (QK-norm, Henry et al. 2020). `cap` above 0 bounds scores.
 */
export class MultiHeadAttention extends Module {
  constructor({dModel, nHeads, nKvHeads, dHead, bias = true, position = NO_POSITION, headNorm = null, cap = 0}) {
    super();
    this.dHead = dHead;
    this.cap = cap;
    this.position = position;
    this.query = new Linear(dModel, nHeads * dHead, bias);
    this.key = new Linear(dModel, nKvHeads * dHead, bias);
    this.value = new Linear(dModel, nKvHeads * dHead, bias);
    this.output = new Linear(nHeads * dHead, dModel, bias);
    this.queryNorm = headNorm ? headNorm() : new Identity();
    this.keyNorm = headNorm ? headNorm() : new Identity();
    this.q = new Probe(); // a Probe returns its input, which can be recorded there
    this.k = new Probe();
    this.v = new Probe();
    this.scores = new Probe();
    this.weights = new Probe();
    this.heads = new Probe();
  }

  /**
   * x [B,Q,D] -> [B,Q,D]
   * @param {Tensor | null} memory [B,K,D]; null: self-attention
   * @param {import("./masks.js").Mask | null} mask
   * @param {import("./cache.js").AttentionCache | null} cache
   */
  forward(x, memory = null, mask = null, cache = null) {
    const scheme = memory ? NO_POSITION : this.position;
    const start = cache && !memory ? cache.length : 0; // x comes after the cached tokens
    const positions = new Span(start, start + x.shape[1]);
    let q = this.queryNorm.forward(this.split(this.query.forward(x)));
    q = this.q.forward(scheme.rotate(q, positions));
    let k, v;
    if (memory && cache?.stored) {
      [k, v] = cache.stored; // the memory is constant: its keys and values were computed at the first step
    } else {
      const y = memory ?? x;
      k = this.keyNorm.forward(this.split(this.key.forward(y)));
      k = this.k.forward(scheme.rotate(k, positions));
      v = this.v.forward(this.split(this.value.forward(y)));
      if (cache) [k, v] = memory ? cache.store(k, v) : cache.append(k, v);
    }
    const positionArguments = scheme.kernelArguments(q, positions, new Span(0, k.shape[2])); // for example a bias
    const heads = attendExact(q, k, v, {
      mask, cap: this.cap, probeScores: this.scores, probeWeights: this.weights, ...positionArguments,
    });
    return this.output.forward(this.merge(this.heads.forward(heads)));
  }

  /**
   * [B,T,H·E] -> [B,H,T,E]; with G instead of H for keys and values.
   * The E numbers of a head are adjacent in the last dimension. They are copied, so that each head becomes a matrix.
   */
  split(x) {
    const [B, T, width] = x.shape, E = this.dHead, H = width / E, y_BHTE = new Tensor([B, H, T, E]);
    for (let b = 0; b < B; b++) {
      for (let t = 0; t < T; t++) {
        for (let h = 0; h < H; h++) y_BHTE.row((b * H + h) * T + t).set(x.row(b * T + t).subarray(h * E, (h + 1) * E));
      }
    }
    return y_BHTE;
  }

  /** [B,H,T,E] -> [B,T,H·E]: the inverse of `split`. */
  merge(x_BHTE) {
    const [B, H, T, E] = x_BHTE.shape, y = new Tensor([B, T, H * E]);
    for (let b = 0; b < B; b++) {
      for (let t = 0; t < T; t++) {
        for (let h = 0; h < H; h++) y.row(b * T + t).set(x_BHTE.row((b * H + h) * T + t), h * E);
      }
    }
    return y;
  }
}
