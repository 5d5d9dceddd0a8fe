// Beam search as a tree: the prefixes in the beam, the finished hypotheses, and the best pruned branches.

import {lengthPenalty} from "./beam.js";
import {topk} from "./topk.js";

const TOP_EXTENSIONS = 2; // of each prefix, the most probable extensions are shown even if they were pruned

/**
 * The tree of one search, built step by step in `watch`, the `onStep` of the search.
 *
 * A node is a prefix: its last token, the probability of that token (p), the log-probability of the prefix (log_p), its
 * score (log_p divided by the length penalty), and its state: alive, pruned, found (ended by </s>) or cut (at the
 * maximum length). The names are those of the Python server, so that the page can show both.
 */
export class BeamTree {
  /**
   * @param {string} root the name of the first token
   * @param {number} alpha the exponent of the length penalty
   * @param {number} limit the largest number of tokens
   * @param {(ids: number[]) => string[]} names as Tokenizer.tokens
   */
  constructor(root, alpha, limit, names, eos) {
    Object.assign(this, {alpha, limit, names, eos, depth: 0});
    this.nodes = [{id: 0, parent: null, depth: 0, token: root, p: 1, log_p: 0, score: 0, state: "root"}];
    this.live = [0]; // the nodes of the live prefixes
  }

  /** Add the nodes of one search step. */
  watch = (step) => {
    this.depth += 1;
    const parents = this.live, state = this.depth === this.limit ? "cut" : "alive";
    this.live = step.rows_N.map((row, i) => this.add(parents[row], step.tokens_N[i], step.logP_BK[0][i], state));
    step.found_BK[0].forEach((isFound, row) => {
      if (isFound) this.add(parents[row], this.eos, step.ended_BK[0][row], "found");
    });
    const taken = new Set(step.rows_N.map((row, i) => `${row} ${step.tokens_N[i]}`));
    step.total_BKV[0].forEach((total_V, row) => {
      for (const token of topk(total_V, TOP_EXTENSIONS)) {
        if (taken.has(`${row} ${token}`) || total_V[token] === -Infinity) continue;
        this.add(parents[row], token, total_V[token], "pruned");
      }
    });
  };

  /** Add a node. -> its id */
  add(parent, token, logP, state) {
    const id = this.nodes.length, p = Math.exp(logP - this.nodes[parent].log_p);
    this.nodes.push({
      id,
      parent,
      depth: this.depth,
      token: this.names([token])[0],
      token_id: token,
      p: Math.round(p * 1e6) / 1e6,
      log_p: logP,
      score: logP / lengthPenalty(this.depth, this.alpha),
      state,
    });
    return id;
  }

  /** The finished hypotheses, best first. */
  hypotheses() {
    return this.nodes.filter(({state, log_p: logP}) => (state === "found" || state === "cut") && logP > -Infinity)
      .sort((a, b) => b.score - a.score)
      .map(({id, depth, log_p, score}) => (
        {node: id, length: depth, penalty: lengthPenalty(depth, this.alpha), log_p, score}));
  }

  /** The token ids from the root to this node, without </s>. */
  tokensTo(node) {
    const path = [];
    for (let at = this.nodes[node]; at.parent !== null; at = this.nodes[at.parent]) path.unshift(at.token_id);
    return path.filter((id) => id !== this.eos);
  }
}
