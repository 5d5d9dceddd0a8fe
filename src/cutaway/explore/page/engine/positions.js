// Position schemes: how a model knows the order of its tokens.
//
// A scheme can act in three places, and overrides the method that it needs:
//
//     embed             on the embedded tokens, once           sinusoidal, learned
//     rotate            on queries and keys, in every layer    rope
//     kernelArguments   on the scores, in every layer          alibi, relative_bias, relative (relative_positions.js)
//
// All take explicit positions instead of counting from 0. So decoding with a cache, one token at a time, needs no
// special case.

import {Module, Parameter} from "./modules.js";
import {size, Tensor} from "./tensor.js";

/** The interface. Its defaults do nothing, so the class itself is the scheme "none". */
export class Position extends Module {
  perLayer = false; // true: each layer has its own instance; false: all layers share one
  actsInAttention = false; // true: overrides `rotate` or `kernelArguments`

  constructor(maxLength = Infinity) {
    super();
    this.maxLength = maxLength;
  }

  /** Called once, on the embedded tokens at positions start, start + 1, ...    x [B,T,D] -> [B,T,D] */
  embed(x, start) {
    return x;
  }

  /** Called on the queries and on the keys of self-attention.    x [B,H,T,E], positions: a Span -> [B,H,T,E] */
  rotate(x, positions) {
    return x;
  }

  /** `bias` and `relativeValues` for the kernel (kernels.js).    q [B,H,Q,E], query and key: Spans */
  kernelArguments(q, query, key) {
    return {};
  }
}

/** PE(pos, 2i) = sin(pos / 10000^(2i/D)),  PE(pos, 2i+1) = cos(pos / 10000^(2i/D))    (the paper, section 3.5) */
export class SinusoidalPosition extends Position {
  constructor(dModel, maxLength) {
    super(maxLength);
    this.table = sinusoids(maxLength, dModel);
  }

  embed(x, start) {
    return addPositions(x, this.table, start);
  }
}

/** x + P[pos]: a trained vector for each position, like the embedding of a token. */
export class LearnedPosition extends Position {
  constructor(dModel, maxLength) {
    super(maxLength);
    this.table = new Parameter(maxLength, dModel);
  }

  embed(x, start) {
    return addPositions(x, this.table, start);
  }
}

/**
 * Rotate each pair of numbers of a query or key by an angle proportional to the position (RoPE, Su et al. 2021).
 *
 *     (x₂ᵢ, x₂ᵢ₊₁) ─▶ (x₂ᵢ cos θ - x₂ᵢ₊₁ sin θ,  x₂ᵢ sin θ + x₂ᵢ₊₁ cos θ),    θ = pos · base^(-2i/E)
 *
 * The dot product of two rotated vectors depends on the *difference* of their angles, so scores depend on distance.
 * `scaling` changes the frequencies, for texts longer than those of the first training.
 */
export class RotaryPosition extends Position {
  actsInAttention = true;

  constructor(dHead, maxLength, base = 10_000, scaling = null) {
    super(maxLength);
    this.frequencies = frequencies(dHead, base).map(scaling ?? ((frequency) => frequency));
  }

  rotate(x, positions) {
    const y = new Tensor(x.shape), T = x.shape.at(-2), E = x.shape.at(-1);
    for (let t = 0; t < T; t++) {
      for (let i = 0; i < E; i += 2) {
        const angle = (positions.start + t) * this.frequencies[i / 2], cos = Math.cos(angle), sin = Math.sin(angle);
        for (let at = t * E + i; at < x.data.length; at += T * E) { // in each head of each text
          const even = x.data[at], odd = x.data[at + 1];
          y.data[at] = even * cos - odd * sin;
          y.data[at + 1] = even * sin + odd * cos;
        }
      }
    }
    return y;
  }
}

/** Divide all frequencies by `factor`, as if positions were closer together (Chen et al. 2023). */
export function linearScaling(factor) {
  return (frequency) => frequency / factor;
}

/**
 * Divide only low frequencies by `factor`, as in Llama 3.1.
 *
 * A pair with many rotations within `originalLength` distinguishes near tokens and is kept. A pair with less than one
 * rotation would reach angles that the first training never had. Between `slow` and `fast` rotations, interpolate.
 */
export function llama3Scaling(factor, slow, fast, originalLength) {
  return (frequency) => {
    const turns = originalLength * frequency / (2 * Math.PI);
    const kept = Math.min(1, Math.max(0, (turns - slow) / (fast - slow)));
    return frequency * (kept + (1 - kept) / factor);
  };
}

/** The table of the paper's sinusoids: sines in even columns, cosines in odd ones. -> [length, D] */
function sinusoids(length, dModel) {
  const table = new Tensor([length, dModel]);
  frequencies(dModel).forEach((frequency, i) => {
    for (let position = 0; position < length; position++) {
      table.data[position * dModel + 2 * i] = Math.sin(position * frequency);
      table.data[position * dModel + 2 * i + 1] = Math.cos(position * frequency);
    }
  });
  return table;
}

/** base^(-2i/width): the angle of pair i at position 1. -> width / 2 numbers */
function frequencies(width, base = 10_000) {
  return Array.from({length: width / 2}, (_, i) => base ** (-2 * i / width));
}

/** x [B,T,D] plus the rows start, start + 1, ... of the table. */
function addPositions(x, table, start) {
  const y = new Tensor(x.shape), [, T, D] = x.shape, n = size([T, D]);
  for (let i = 0; i < y.data.length; i++) y.data[i] = x.data[i] + table.data[start * D + i % n];
  return y;
}
