// A mixture of experts: many feed-forward networks, and a router that picks k for each token (Shazeer et al. 2017).
//
//                    ┌─▶ expert 0 ─┐ · p₀
// x ──▶ router ──▶ top k           ├──▶ +        many parameters, but the cost of only k experts
//                    └─▶ expert 3 ─┘ · p₃

import {Linear, Module} from "./modules.js";
import {Probe} from "./probe.js";
import {softmax, Tensor} from "./tensor.js";

/**
 * y = Σ p_i · expert_i(x) over the k experts with the largest router logits,    p = softmax of these k logits
 *
 * Probes: `router`, the probabilities of all experts [B,T,N]; `load`, the share of tokens of each expert [N];
 * `balance`, the loss that keeps these shares equal. (The capacity of an expert is limited in training only.)
 */
export class Experts extends Module {
  constructor(experts, dModel, expertsPerToken = 2) {
    super();
    this.experts = experts;
    this.route = new Linear(dModel, experts.length, false);
    this.expertsPerToken = expertsPerToken;
    this.router = new Probe();
    this.load = new Probe();
    this.balance = new Probe();
  }

  /** x [B,T,D], isToken [B,T] (false: padding, which no expert computes) -> [B,T,D] */
  forward(x, isToken = null) {
    const [B, T, D] = x.shape, is = isToken?.flat(), logits_BTN = this.route.forward(x), y_BTD = new Tensor(x.shape);
    const tokens = [...Array(B * T).keys()].filter((i) => is?.[i] ?? true);
    const choices = new Map(tokens.map((i) => [i, chooseExperts(logits_BTN.row(i), this.expertsPerToken)]));
    this.recordRouting(logits_BTN, choices);
    this.experts.forEach((expert, n) => {
      const rows = tokens.filter((i) => choices.get(i).has(n)), x_RD = new Tensor([rows.length, D]);
      if (!rows.length) return;
      rows.forEach((i, r) => x_RD.row(r).set(x.row(i)));
      const output_RD = expert.forward(x_RD);
      rows.forEach((i, r) => {
        const weight = choices.get(i).get(n), y_D = y_BTD.row(i), output_D = output_RD.row(r);
        for (let d = 0; d < D; d++) y_D[d] += weight * output_D[d];
      });
    });
    return y_BTD;
  }

  /** Compute the values of the probes, if any of them is watched. */
  recordRouting(logits_BTN, choices) {
    if (![this.router, this.load, this.balance].some((probe) => probe.isWatched)) return;
    const p_BTN = this.router.forward(softmax(logits_BTN)), N = this.experts.length;
    const share_N = new Tensor([N]), meanP_N = new Tensor([N]);
    for (const [i, chosen] of choices) {
      for (const n of chosen.keys()) share_N.data[n] += 1 / choices.size / this.expertsPerToken;
      p_BTN.row(i).forEach((p, n) => { meanP_N.data[n] += p / choices.size; });
    }
    this.balance.forward(balanceLoss(this.load.forward(share_N), meanP_N));
  }
}

/** N · Σ share_i · mean p_i: 1 if all shares are equal, N if one expert gets all tokens (Fedus et al. 2021, eq. 4). */
function balanceLoss(share_N, meanP_N) {
  const sum = share_N.data.reduce((total, share, i) => total + share * meanP_N.data[i], 0);
  return new Tensor([], Float32Array.of(sum * share_N.data.length));
}

/** The k experts with the largest logits, and the softmax of these k logits: expert -> weight */
function chooseExperts(logits_N, k) {
  const chosen = [...logits_N.keys()].sort((i, j) => logits_N[j] - logits_N[i]).slice(0, k);
  const weights = softmax(new Tensor([1, k], Float32Array.from(chosen, (n) => logits_N[n])));
  return new Map(chosen.map((n, rank) => [n, weights.data[rank]]));
}
