// Alignment and coverage of the source, from attention weights.
//
// a_ij is the weight of source token i when the decoder generates token j: the cross-attention of the last layer,
// averaged over its heads.

const MIN_COVERAGE = 1e-9; // lower sums are raised to this, so that no score is infinite

/** How a search uses the attention weights. */
export class Coverage {
  /**
   * @param {number[]} lengths of each source, </s> included
   * @param {boolean} withAlignment whether hypotheses contain the weights
   * @param {number} beta strength of the coverage penalty
   */
  constructor(lengths, withAlignment = true, beta = 0) {
    this.lengths = lengths;
    this.withAlignment = withAlignment;
    this.beta = beta;
  }

  /** What a search needs, or null. */
  static of(search, lengths) {
    if (!search.needsSourceWeights) return null;
    return new Coverage(lengths, search.withAlignment, search.hasCoverage ? search.decode.coveragePenalty : 0);
  }

  /** The weights [S] of each generated token, without the padding of the source. */
  alignment(weights, text) {
    return this.withAlignment ? weights.map((weights_S) => Array.from(weights_S.slice(0, this.lengths[text]))) : null;
  }

  /**
   * cp = β Σ_i log(min(Σ_j a_ij, 1)), over all source tokens i, </s> included (Wu et al. 2016)
   * covered [S] is Σ_j a_ij over all tokens j, including prefix and </s>.
   */
  penalty(covered_S, text) {
    let sum = 0;
    for (const covered of covered_S.slice(0, this.lengths[text])) {
      sum += Math.log(Math.min(Math.max(covered, MIN_COVERAGE), 1));
    }
    return this.beta * sum;
  }
}
