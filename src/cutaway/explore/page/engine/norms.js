// The norms. Each works on the numbers of the last dimension, which for a token are its D numbers.

import {Module, Parameter} from "./modules.js";
import {Tensor} from "./tensor.js";

/** (x - mean(x)) / sqrt(var(x) + ε) · weight + bias    (Ba et al. 2016, the paper) */
export class LayerNorm extends Module {
  constructor(width, epsilon) {
    super();
    this.epsilon = epsilon;
    this.weight = new Parameter(width);
    this.bias = new Parameter(width);
  }

  forward(x) {
    const y = new Tensor(x.shape), D = x.shape.at(-1), weight = this.weight.data, bias = this.bias.data;
    for (let start = 0; start < x.data.length; start += D) {
      let mean = 0, variance = 0;
      for (let d = 0; d < D; d++) mean += x.data[start + d] / D;
      for (let d = 0; d < D; d++) variance += (x.data[start + d] - mean) ** 2 / D;
      const factor = 1 / Math.sqrt(variance + this.epsilon);
      for (let d = 0; d < D; d++) y.data[start + d] = (x.data[start + d] - mean) * factor * weight[d] + bias[d];
    }
    return y;
  }
}

/** x / sqrt(mean(x²) + ε) · weight    (Zhang & Sennrich 2019; T5, Llama) */
export class RMSNorm extends Module {
  constructor(width, epsilon) {
    super();
    this.epsilon = epsilon;
    this.weight = new Parameter(width);
  }

  forward(x) {
    const y = new Tensor(x.shape), D = x.shape.at(-1), weight = this.weight.data;
    for (let start = 0; start < x.data.length; start += D) {
      let square = 0;
      for (let d = 0; d < D; d++) square += x.data[start + d] ** 2 / D;
      const factor = 1 / Math.sqrt(square + this.epsilon);
      for (let d = 0; d < D; d++) y.data[start + d] = x.data[start + d] * factor * weight[d];
    }
    return y;
  }
}
