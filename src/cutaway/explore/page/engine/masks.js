// Masks: which query may attend to which key. True = may attend. A mask consists of rules, which depend only on
// positions, and of the keys that are tokens, not padding. Rows are queries, columns are keys:
//
//     Causal()       SlidingWindow(2)    SlidingWindow(2), Causal()    Strided(2), Causal()
//
//       a b c d e      a b c d e           a b c d e                     a b c d e
//     a ■ · · · ·    a ■ ■ · · ·         a ■ · · · ·                   a ■ · · · ·
//     b ■ ■ · · ·    b ■ ■ ■ · ·         b ■ ■ · · ·                   b ■ ■ · · ·
//     c ■ ■ ■ · ·    c · ■ ■ ■ ·         c · ■ ■ · ·                   c ■ ■ ■ · ·
//     d ■ ■ ■ ■ ·    d · · ■ ■ ■         d · · ■ ■ ·                   d · ■ ■ ■ ·
//     e ■ ■ ■ ■ ■    e · · · ■ ■         e · · · ■ ■                   e ■ · ■ ■ ■
//
// Because positions are explicit, a cached step needs no special case: if the keys of a to d are in a cache, the mask
// of e is the last row.

/** Consecutive positions start, ..., stop - 1. */
export class Span {
  constructor(start, stop) {
    this.start = start;
    this.stop = stop;
  }

  get size() {
    return this.stop - this.start;
  }
}

/** A query may attend to its own position and earlier ones: key ≤ query. */
export class Causal {
  allows(query, key) {
    return key <= query;
  }
}

/** Near tokens only: |query - key| < width (Longformer, Beltagy et al. 2020; with `Causal`, Mistral's window). */
export class SlidingWindow {
  constructor(width) {
    this.width = width;
  }

  allows(query, key) {
    return Math.abs(query - key) < this.width;
  }
}

/**
 * Near tokens and every width-th token: |query - key| < width or (query - key) mod width = 0.
 *
 * The strided pattern of the Sparse Transformer (Child et al. 2019, section 4.2, its two heads combined).
 */
export class Strided {
  constructor(width) {
    this.width = width;
  }

  allows(query, key) {
    return Math.abs(query - key) < this.width || (query - key) % this.width === 0;
  }
}

/** The positions of queries and keys, the rules (all must allow a pair), and which keys are tokens. */
export class Mask {
  #dense;

  /**
   * @param {Span} queries
   * @param {Span} keys
   * @param {boolean[][] | null} isToken [B,K], false at padding, which no query may attend to; null: no padding
   */
  constructor(queries, keys, rules = [], isToken = null) {
    this.queries = queries;
    this.keys = keys;
    this.rules = rules;
    this.isToken = isToken;
  }

  /** For each text, the matrix [Q,K] of 0 and 1; one matrix for all texts if there is no padding; null: all allowed. */
  dense() {
    if (this.#dense === undefined) {
      const matrices = (this.isToken ?? [null]).map((isToken_K) => this.matrix(isToken_K));
      this.#dense = matrices.every((matrix) => matrix.every(Boolean)) ? null : matrices;
    }
    return this.#dense;
  }

  matrix(isToken_K) {
    const {queries, keys, rules} = this, matrix = new Uint8Array(queries.size * keys.size);
    let at = 0;
    for (let query = queries.start; query < queries.stop; query++) {
      for (let key = keys.start; key < keys.stop; key++) {
        const isAllowed = !isToken_K || isToken_K[key - keys.start];
        matrix[at++] = isAllowed && rules.every((rule) => rule.allows(query, key));
      }
    }
    return matrix;
  }
}
