// Embeddings and output projection (the paper, section 3.4): from token ids to vectors, and from vectors to logits.

import {DataError} from "./errors.js";
import {Identity, Module, Parameter} from "./modules.js";
import {Probe} from "./probe.js";
import {add, linear, Tensor} from "./tensor.js";

/** A learned vector for each token, times sqrt(D) if `scaled` (the paper, section 3.4).    [B,T] -> [B,T,D] */
export class TokenEmbedding extends Module {
  constructor(vocabSize, dModel, scaled = true) {
    super();
    this.weight = new Parameter(vocabSize, dModel);
    this.scale = scaled ? Math.sqrt(dModel) : 1;
  }

  /** @param {number[][]} ids */
  forward(ids) {
    const [V, D] = this.weight.shape, [B, T] = [ids.length, ids[0].length];
    const x_BTD = new Tensor([B, T, D]);
    ids.flat().forEach((id, i) => {
      if (!(id >= 0 && id < V)) throw new DataError(`the token id ${id} is not between 0 and ${V - 1}.`);
      const from = this.weight.row(id), into = x_BTD.row(i);
      for (let d = 0; d < D; d++) into[d] = from[d] * this.scale;
    });
    return x_BTD;
  }
}

/**
 * norm(position.embed(token embedding + segment embedding))    ids [B,T] -> [B,T,D]
 *
 * Norm and segments are those of BERT (Devlin et al. 2019). A segment is one of two sentences in an input; by default
 * all tokens belong to the first.
 */
export class InputEmbedding extends Module {
  constructor(tokens, position, norm = null, segments = null) {
    super();
    this.tokens = tokens;
    this.segments = segments;
    this.position = position;
    this.norm = norm ?? new Identity();
    this.embedded = new Probe();
  }

  /** ids [B,T] at positions start, start + 1, ... -> [B,T,D] */
  forward(ids, start = 0, segments = null) {
    this.check(ids, start);
    let x = this.tokens.forward(ids);
    if (this.segments) x = add(x, this.segments.forward(segments ?? ids.map((row) => row.map(() => 0))));
    return this.embedded.forward(this.norm.forward(this.position.embed(x, start)));
  }

  check(ids, start) {
    const T = ids[0]?.length ?? 0, {maxLength} = this.position;
    if (!T || ids.some((row) => row.length !== T)) {
      const lengths = ids.map((row) => row.length).join(", ");
      throw new DataError(`the texts of a batch have ${lengths || "no"} tokens. Pad them to one length, at least 1.`);
    }
    if (start + T > maxLength) {
      throw new DataError(`the text has ${start + T} tokens; this model has positions for ${maxLength}. `
        + "Shorten it, or train with a larger model.max_length.");
    }
  }
}

/**
 * logits = x Wᵀ + b: a score for each token of the vocabulary.    [B,T,D] -> [B,T,V]
 *
 * `shared`: the matrix of an embedding, used as W. Then a logit is the dot product of x and the token's embedding.
 */
export class LanguageHead extends Module {
  constructor(vocabSize, dModel, shared = null, bias = false) {
    super();
    this.weight = shared ?? new Parameter(vocabSize, dModel);
    this.bias = bias ? new Parameter(vocabSize) : null;
    this.logits = new Probe();
  }

  forward(x) {
    return this.logits.forward(linear(x, this.weight, this.bias));
  }
}
