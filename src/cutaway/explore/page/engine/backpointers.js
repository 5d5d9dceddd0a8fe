// The history of all live prefixes of a beam search.
//
// Each step stores for each row the row that it extends, the new token and the total log-probability. So extending a
// prefix copies nothing, and a text is read from its end back to its start.

export class Backpointers {
  steps = []; // [{rows, tokens, totals}] of each step
  sourceWeights = []; // [N][S] for each step, in the order of its old rows
  #covered_NS = null; // the sum of the source weights of each row

  constructor(coverage) {
    this.coverage = coverage;
  }

  /** The number of steps. */
  get length() {
    return this.steps.length;
  }

  addSourceWeights(weights_NS) {
    if (this.coverage.withAlignment) this.sourceWeights.push(weights_NS);
    if (!this.coverage.beta) return;
    const before_NS = this.#covered_NS;
    this.#covered_NS = weights_NS.map((weights_S, row) => Float64Array.from(weights_S,
      (weight, i) => weight + (before_NS?.[row][i] ?? 0)));
  }

  add(rows, tokens, totals) {
    this.steps.push({rows, tokens, totals});
    this.#covered_NS &&= rows.map((row) => this.#covered_NS[row]);
  }

  /** The coverage penalty of a row. */
  penalty(row, text) {
    return this.#covered_NS ? this.coverage.penalty(this.#covered_NS[row], text) : 0;
  }

  /** A text found: {score, logP, step, row, token}, see Beam.add -> the hypothesis, without its forced tokens */
  hypothesis({score, logP, step, row, token}, text, nForced) {
    const tokens = token === null ? [] : [token], totals = [logP], weights = [];
    for (let i = step; i >= 0; i--) {
      if (this.sourceWeights.length) weights.unshift(this.sourceWeights[i][row]);
      if (i === 0) break;
      const {rows, tokens: added, totals: total} = this.steps[i - 1];
      tokens.unshift(added[row]);
      totals.unshift(total[row]);
      row = rows[row];
    }
    return {
      tokens: tokens.slice(nForced),
      logProbability: logP,
      score,
      finished: token === null,
      tokenLogProbs: totals.slice(nForced).map((total, i, all) => total - (i > 0 ? all[i - 1] : 0)),
      alignment: this.coverage ? this.coverage.alignment(weights.slice(nForced), text) : null,
    };
  }
}
