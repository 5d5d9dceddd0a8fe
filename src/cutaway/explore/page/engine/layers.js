// A layer of the encoder or decoder, and a stack of layers: figure 1 of the paper.
//
// encoder layer          decoder layer               decoder-only layer (GPT)
//
//     feed-forward           feed-forward                feed-forward
//     self-attention         cross-attention ◀─ memory   self-attention, masked
//                            self-attention, masked

import {KVCache} from "./cache.js";
import {DataError} from "./errors.js";
import {Module} from "./modules.js";
import {add} from "./tensor.js";

/** Self-attention, cross-attention (optional) and feed-forward, each with a residual connection. */
export class Layer extends Module {
  constructor({selfAttention, selfAttentionResidual, crossAttention = null, crossAttentionResidual = null, feedForward,
               feedForwardResidual}) {
    super();
    Object.assign(this, {selfAttention, selfAttentionResidual, crossAttention, crossAttentionResidual, feedForward,
                         feedForwardResidual});
  }

  /** x [B,T,D], memory [B,S,D] -> [B,T,D]. `mask` is for self-attention, `memoryMask` for cross-attention. */
  forward(x, mask = null, memory = null, memoryMask = null, cache = null) {
    x = this.selfAttentionResidual.forward(x, (x) =>
      this.selfAttention.forward(x, null, mask, cache?.selfAttention));
    if (this.crossAttention) {
      x = this.crossAttentionResidual.forward(x, (x) =>
        this.crossAttention.forward(x, requireMemory(memory), memoryMask, cache?.crossAttention));
    }
    return this.feedForwardResidual.forward(x, (x) => this.feedForward.forward(x, tokenMask(x, mask)));
  }
}

/**
 * x + attention(norm(x)) + feedForward(norm(x)): one norm and one residual connection (GPT-J, PaLM)
 * All sub-layers read the same input. Their outputs are added.
 */
export class ParallelLayer extends Module {
  constructor({selfAttention, crossAttention = null, feedForward, residual}) {
    super();
    Object.assign(this, {selfAttention, crossAttention, feedForward, residual});
  }

  forward(x, mask = null, memory = null, memoryMask = null, cache = null) {
    return this.residual.forward(x, (x) => {
      const y = add(this.selfAttention.forward(x, null, mask, cache?.selfAttention),
                    this.feedForward.forward(x, tokenMask(x, mask)));
      if (!this.crossAttention) return y;
      return add(y, this.crossAttention.forward(x, requireMemory(memory), memoryMask, cache?.crossAttention));
    });
  }
}

/** N layers and a final norm. With post-norm it is the identity, because each layer already ends with a norm. */
export class Stack extends Module {
  constructor(layers, norm) {
    super();
    this.layers = layers;
    this.norm = norm;
  }

  forward(x, mask = null, memory = null, memoryMask = null, cache = null) {
    this.layers.forEach((layer, i) => {
      x = layer.forward(x, mask, memory, memoryMask, cache?.layers[i]);
    });
    return this.norm.forward(x);
  }

  newCache() {
    return new KVCache(this.layers.length);
  }
}

function requireMemory(memory) {
  if (!memory) {
    throw new DataError("this model has cross-attention but got no memory. Pass `memory`, the output of an encoder.");
  }
  return memory;
}

/** Which of x [B,T,D] are tokens, not padding: [B,T]. With a cache the mask has more columns; the last T are x. */
function tokenMask(x, mask) {
  return mask?.isToken?.map((isToken_K) => isToken_K.slice(-x.shape[1])) ?? null;
}
