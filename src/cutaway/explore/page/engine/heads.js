// Output heads and pooling: from the vectors of an encoder to logits or to one vector per text.

import {gelu} from "./feedforward.js";
import {Linear, Module, Parameter} from "./modules.js";
import {Probe} from "./probe.js";
import {linear, map, softmax, Tensor} from "./tensor.js";

/** logits = norm(gelu(x W₁ + b₁)) Wᵀ + b for the hidden tokens (BERT).    [B,T,D] -> [B,T,V] */
export class MaskedLanguageHead extends Module {
  constructor(vocabSize, dModel, norm, shared = null) {
    super();
    this.transform = new Linear(dModel, dModel);
    this.norm = norm;
    this.weight = shared ?? new Parameter(vocabSize, dModel);
    this.bias = new Parameter(vocabSize);
    this.logits = new Probe();
  }

  forward(x) {
    return this.logits.forward(linear(this.norm.forward(map(this.transform.forward(x), gelu)), this.weight, this.bias));
  }
}

/** logits = x W + b: one class per token.    [B,T,D] -> [B,T,C] */
export class TagHead extends Module {
  constructor(nClasses, dModel) {
    super();
    this.classify = new Linear(dModel, nClasses);
    this.logits = new Probe();
  }

  forward(x) {
    return this.logits.forward(this.classify.forward(x));
  }
}

/** logits = pool(x) W + b: one class per text or image.    [B,T,D] -> [B,C] */
export class ClassHead extends Module {
  constructor(pool, nClasses, dModel) {
    super();
    this.pool = pool;
    this.classify = new Linear(dModel, nClasses);
    this.pooled = new Probe();
    this.logits = new Probe();
  }

  /** x [B,T,D], isToken [B,T] (null: no padding) -> [B,C] */
  forward(x, isToken = null) {
    return this.logits.forward(this.classify.forward(this.pooled.forward(this.pool.forward(x, isToken))));
  }
}

/** pool(x): one vector per text, to compare texts.    [B,T,D] -> [B,D] */
export class VectorHead extends Module {
  constructor(pool) {
    super();
    this.pool = pool;
    this.pooled = new Probe();
  }

  forward(x, isToken = null) {
    return this.pooled.forward(this.pool.forward(x, isToken));
  }
}

/** The vector of the first token: [CLS] of BERT, the class token of ViT. */
export class FirstPool extends Module {
  forward(x) {
    return poolTokens(x, null, (pooled_D, tokens) => pooled_D.set(tokens[0]));
  }
}

/** tanh(x₀ W + b) of the first token: the "pooler" of BERT. */
export class FirstTanhPool extends Module {
  constructor(dModel) {
    super();
    this.dense = new Linear(dModel, dModel);
  }

  forward(x) {
    return map(this.dense.forward(new FirstPool().forward(x)), Math.tanh);
  }
}

/** The mean over the tokens, without padding. */
export class MeanPool extends Module {
  forward(x, isToken = null) {
    return poolTokens(x, isToken, (pooled_D, tokens) => {
      for (let d = 0; d < pooled_D.length; d++) {
        pooled_D[d] = tokens.reduce((sum, x_D) => sum + x_D[d], 0) / Math.max(1, tokens.length);
      }
    });
  }
}

/** The maximum of each of the D numbers over the tokens, without padding. */
export class MaxPool extends Module {
  forward(x, isToken = null) {
    return poolTokens(x, isToken, (pooled_D, tokens) => {
      for (let d = 0; d < pooled_D.length; d++) {
        pooled_D[d] = tokens.reduce((max, x_D) => Math.max(max, x_D[d]), -Infinity);
      }
    });
  }
}

/** Σ softmax(x w)_t · x_t: a weighted mean with a learned query w (Lin et al. 2017, with one row). */
export class AttentionPool extends Module {
  constructor(dModel) {
    super();
    this.question = new Linear(dModel, 1, false);
    this.weights = new Probe();
  }

  forward(x, isToken = null) {
    const [B, T] = x.shape, scores_BT = this.question.forward(x).view(B, T);
    isToken?.flat().forEach((is, i) => {
      if (!is) scores_BT.data[i] = -Infinity;
    });
    const weights_BT = this.weights.forward(softmax(scores_BT));
    return poolTokens(x, null, (pooled_D, tokens, b) => {
      for (let d = 0; d < pooled_D.length; d++) {
        pooled_D[d] = tokens.reduce((sum, x_D, t) => sum + weights_BT.row(b)[t] * x_D[d], 0);
      }
    });
  }
}

/** Call pool(result [D], vectors of the tokens, b) for each text b.    [B,T,D] -> [B,D] */
function poolTokens(x, isToken, pool) {
  const [B, T, D] = x.shape, pooled_BD = new Tensor([B, D]);
  for (let b = 0; b < B; b++) {
    const tokens = Array.from({length: T}, (_, t) => x.row(b * T + t));
    pool(pooled_BD.row(b), tokens.filter((_, t) => isToken?.[b][t] ?? true), b);
  }
  return pooled_BD;
}
