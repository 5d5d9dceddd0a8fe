// The position-wise feed-forward network (the paper, section 3.3): applied to each token separately.

import {Linear, Module} from "./modules.js";
import {Probe} from "./probe.js";
import {combine, map} from "./tensor.js";

export const relu = (x) => Math.max(0, x);
export const silu = (x) => x / (1 + Math.exp(-x));
export const reluSquared = (x) => Math.max(0, x) ** 2; // Primer, So et al. 2021
export const gelu = (x) => 0.5 * x * (1 + erf(x / Math.SQRT2)); // x times the normal distribution's P(X ≤ x)

/** The approximation of GPT-2 */
export function geluTanh(x) {
  return 0.5 * x * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (x + 0.044715 * x ** 3)));
}

/** erf(x) = 2/sqrt(π) · exp(-x²) · Σ 2ⁿ x²ⁿ⁺¹ / (1 · 3 · 5 ··· (2n+1)). JavaScript has no such function. */
export function erf(x) {
  if (Math.abs(x) > 6) return Math.sign(x); // 1 - erf(6) is 2e-17
  let term = x, sum = x;
  for (let n = 1; Math.abs(term) > 1e-17 * Math.abs(sum); n++) {
    term *= 2 * x * x / (2 * n + 1);
    sum += term;
  }
  return 2 / Math.sqrt(Math.PI) * Math.exp(-x * x) * sum;
}

/** FFN(x) = activation(x W₁ + b₁) W₂ + b₂    (the paper, equation 2)    [B,T,D] -> [B,T,F] -> [B,T,D] */
export class FeedForward extends Module {
  constructor(dModel, dFf, activation, bias = true) {
    super();
    this.expand = new Linear(dModel, dFf, bias);
    this.contract = new Linear(dFf, dModel, bias);
    this.activation = activation;
    this.hidden = new Probe();
  }

  forward(x) {
    const hidden_BTF = this.hidden.forward(map(this.expand.forward(x), this.activation));
    return this.contract.forward(hidden_BTF);
  }
}

/**
 * FFN(x) = (activation(x W) ⊙ x V) W₂    (Shazeer 2020)
 * SwiGLU uses the activation SiLU, x · sigmoid(x); GEGLU uses GELU.
 */
export class GatedFeedForward extends Module {
  constructor(dModel, dFf, activation, bias = true) {
    super();
    this.gate = new Linear(dModel, dFf, bias);
    this.expand = new Linear(dModel, dFf, bias);
    this.contract = new Linear(dFf, dModel, bias);
    this.activation = activation;
    this.hidden = new Probe();
  }

  forward(x) {
    const gated = combine(map(this.gate.forward(x), this.activation), this.expand.forward(x), (a, b) => a * b);
    return this.contract.forward(this.hidden.forward(gated));
  }
}
