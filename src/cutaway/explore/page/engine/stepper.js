// The step function that every search calls, and the models behind it.
//
// A stepper generates several texts, one per row, and keeps its own state between steps. It has two methods:
//
//     step(tokens)   the latest token of each row [N] -> logits [N][V] for the next token
//     keep(rows)     row i continues from the state of row rows[i]. So rows can be dropped, repeated and reordered.

import {Tensor} from "./tensor.js";

/**
 * An EncoderDecoder that translates `source` [B,S]: encode once, then one cached step per token.
 * With `recordSourceWeights`, each step sets `sourceWeights` [N][S]: the cross-attention weights of the last layer,
 * averaged over its heads.
 */
export class TranslationStepper {
  constructor(model, source, sourceMask = null, recordSourceWeights = false) {
    this.model = model;
    this.memory = model.encode(source, sourceMask);
    this.sourceMask = sourceMask;
    this.cache = model.newCache();
    this.recordSourceWeights = recordSourceWeights;
    this.sourceWeights = null;
  }

  step(tokens) {
    if (!this.recordSourceWeights) return this.nextLogits(tokens);
    const remove = this.model.decoder.layers.at(-1).crossAttention.weights.watch((weights_NHQS) => {
      this.sourceWeights = meanOverHeads(weights_NHQS);
    });
    try {
      return this.nextLogits(tokens);
    } finally {
      remove();
    }
  }

  nextLogits(tokens) {
    const x_N1D = this.model.decode(asColumn(tokens), this.memory, this.sourceMask, null, this.cache);
    return rowsOf(this.model.head.forward(x_N1D));
  }

  keep(rows) {
    this.cache.reorder(rows);
    const [, S, D] = this.memory.shape, memory = new Tensor([rows.length, S, D]);
    rows.forEach((row, i) => memory.matrix(i).set(this.memory.matrix(row)));
    this.memory = memory;
    this.sourceMask = this.sourceMask && rows.map((row) => this.sourceMask[row]);
  }
}

/**
 * A DecoderOnly that continues prompts [B,T] of the same length.
 * It reads all but the last token of the prompts at once. The first step of the search reads the last one.
 */
export class TextStepper {
  constructor(model, prompts) {
    this.model = model;
    this.cache = model.newCache();
    if (prompts[0].length > 1) model.decode(prompts.map((prompt) => prompt.slice(0, -1)), null, null, null, this.cache);
  }

  step(tokens) {
    return rowsOf(this.model.head.forward(this.model.decode(asColumn(tokens), null, null, null, this.cache)));
  }

  keep(rows) {
    this.cache.reorder(rows);
  }
}

/** [N] -> [N][1]: each row has one new token. */
function asColumn(tokens) {
  return Array.from(tokens, (token) => [token]);
}

/** logits [N,1,V] -> N arrays of V numbers */
function rowsOf(logits) {
  return Array.from({length: logits.shape[0]}, (_, n) => logits.row(n));
}

/** weights [N,H,1,S] -> [N][S] */
function meanOverHeads(weights) {
  const [N, H, , S] = weights.shape;
  return Array.from({length: N}, (_, n) => Float32Array.from({length: S}, (_, s) => {
    let sum = 0;
    for (let h = 0; h < H; h++) sum += weights.row(n * H + h)[s];
    return sum / H;
  }));
}
