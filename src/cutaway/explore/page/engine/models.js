// Whole models. Token ids are lists of numbers [B][T]. Token masks [B][T] are true at tokens and false at padding;
// null: no padding. `rules` restrict the self-attention.

import {ClassHead, VectorHead} from "./heads.js";
import {Causal, Mask, Span} from "./masks.js";
import {Module} from "./modules.js";

/**
 * The Transformer of the paper: p(target | source), one target token at a time.
 *
 *     source ──▶ sourceEmbedding ──▶ encoder ──▶ memory
 *                                                  │
 *     targetIn ──▶ targetEmbedding ──▶ decoder ◀───┘ ──▶ head ──▶ logits
 */
export class EncoderDecoder extends Module {
  constructor({sourceEmbedding, targetEmbedding, encoder, decoder, head, rules = []}) {
    super();
    Object.assign(this, {sourceEmbedding, targetEmbedding, encoder, decoder, head, rules});
  }

  /** source [B,S], targetIn [B,T] -> logits [B,T,V] for the next token at each position. */
  forward(source, targetIn, sourceMask = null, targetMask = null) {
    const memory = this.encode(source, sourceMask);
    return this.head.forward(this.decode(targetIn, memory, sourceMask, targetMask));
  }

  /** source [B,S] -> memory [B,S,D] */
  encode(source, sourceMask = null) {
    const positions = new Span(0, source[0]?.length);
    return this.encoder.forward(
      this.sourceEmbedding.forward(source), new Mask(positions, positions, this.rules, sourceMask));
  }

  /**
   * targetIn [B,T], memory [B,S,D] -> x [B,T,D]
   * With a cache, targetIn is the new tokens only; targetMask, if given, covers cached and new tokens.
   */
  decode(targetIn, memory, sourceMask = null, targetMask = null, cache = null) {
    const start = cache?.length ?? 0, queries = new Span(start, start + targetIn[0]?.length);
    const x_BTD = this.decoder.forward(
      this.targetEmbedding.forward(targetIn, start),
      new Mask(queries, new Span(0, queries.stop), [new Causal(), ...this.rules], targetMask),
      memory,
      new Mask(queries, new Span(0, memory.shape[1]), [], sourceMask),
      cache,
    );
    cache?.advance(targetIn[0].length);
    return x_BTD;
  }

  newCache() {
    return this.decoder.newCache();
  }
}

/**
 * The decoder-only model (GPT): p(text), one token at a time.
 *
 *     ids ──▶ embedding ──▶ decoder ──▶ head ──▶ logits
 *                              ▲
 *                            memory (only if the layers have cross-attention)
 */
export class DecoderOnly extends Module {
  constructor({embedding, decoder, head, rules = []}) {
    super();
    Object.assign(this, {embedding, decoder, head, rules});
  }

  /** ids [B,T] -> logits [B,T,V] for the next token at each position. */
  forward(ids, mask = null, memory = null, memoryMask = null) {
    return this.head.forward(this.decode(ids, mask, memory, memoryMask));
  }

  /**
   * ids [B,T], memory [B,S,D] -> x [B,T,D]
   * With a cache, ids are the new tokens only; the mask, if given, covers cached and new tokens.
   */
  decode(ids, mask = null, memory = null, memoryMask = null, cache = null) {
    const start = cache?.length ?? 0, queries = new Span(start, start + ids[0]?.length);
    const x_BTD = this.decoder.forward(
      this.embedding.forward(ids, start),
      new Mask(queries, new Span(0, queries.stop), [new Causal(), ...this.rules], mask),
      memory,
      memory && new Mask(queries, new Span(0, memory.shape[1]), [], memoryMask),
      cache,
    );
    cache?.advance(ids[0].length);
    return x_BTD;
  }

  newCache() {
    return this.decoder.newCache();
  }
}

/**
 * The encoder-only model (BERT):    ids ──▶ embedding ──▶ encoder ──▶ head ──▶ logits
 *
 * The head is a MaskedLanguageHead (hidden tokens), a TagHead (a class for each token), a ClassHead (a class for the
 * text) or a VectorHead (a vector for the text).
 */
export class EncoderOnly extends Module {
  constructor({embedding, encoder, head, rules = []}) {
    super();
    Object.assign(this, {embedding, encoder, head, rules});
  }

  /** ids [B,T] -> logits [B,T,V] of the vocabulary, [B,T,C] of tags, [B,C] of classes; or vectors [B,D] */
  forward(ids, mask = null, segments = null) {
    const x_BTD = this.encode(ids, mask, segments);
    const isPooled = this.head instanceof ClassHead || this.head instanceof VectorHead;
    return isPooled ? this.head.forward(x_BTD, mask) : this.head.forward(x_BTD);
  }

  /** ids [B,T] -> x [B,T,D] */
  encode(ids, mask = null, segments = null) {
    const positions = new Span(0, ids[0]?.length);
    return this.encoder.forward(
      this.embedding.forward(ids, 0, segments), new Mask(positions, positions, this.rules, mask));
  }
}

/** The Vision Transformer (Dosovitskiy et al. 2021):    images ──▶ patches ──▶ encoder ──▶ head ──▶ logits */
export class VisionTransformer extends Module {
  constructor({embedding, encoder, head, rules = []}) {
    super();
    Object.assign(this, {embedding, encoder, head, rules});
  }

  /** images [B,C,H,W], a Tensor -> logits [B, classes] */
  forward(images) {
    return this.head.forward(this.encode(images));
  }

  /** images [B,C,H,W] -> x [B,N,D], one vector for each patch. */
  encode(images) {
    const x_BND = this.embedding.forward(images), positions = new Span(0, x_BND.shape[1]);
    return this.encoder.forward(x_BND, new Mask(positions, positions, this.rules));
  }
}
