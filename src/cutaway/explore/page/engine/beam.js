// Beam search: extend the k best prefixes in parallel, and return the best complete text.
//
// Definition. For a text y with log-probability log p(y) and |y| tokens, </s> included:
//
//     score(y) = log p(y) / lp(|y|) + cp(y)
//     lp(n)    = ((5 + n) / 6)^α                              (Wu et al. 2016; the Transformer's paper uses α = 0.6)
//     cp(y)    = β Σ_i log(min(Σ_j a_ij, 1))                  translation only, if β > 0: alignment.js
//
// Each step extends every live prefix by every token.
// 1. Among the extensions by tokens other than </s>, the k most probable stay live.
// 2. An extension by </s> is *found* if fewer than k of those others are more probable.
// 3. At the length limit, the prefixes that would stay live are found as they are, cut off.
// 4. The search ends when no live prefix can reach a better score than the n-th best text found. The log-probability of
//    a prefix only falls as it grows, and cp ≤ 0. So its best possible score is its log p over the largest possible lp.
//
// With k = 1, the search is greedy and ends with the first text found. Of equally probable extensions, the one of the
// better prefix counts, then the one by the lower token. (PyTorch's topk takes them in no fixed order.)
//
// Forced tokens (prompt and prefix) count neither for log p nor for |y|. Their attention weights count for cp.

import {Backpointers} from "./backpointers.js";
import {DataError} from "./errors.js";
import {NO_TOKEN_ALLOWED, NON_FINITE_LOGITS} from "./request.js";
import {logSoftmax, topk} from "./topk.js";

const IMPOSSIBLE = -Infinity;

export function lengthPenalty(length, alpha) {
  return ((5 + length) / 6) ** alpha;
}

/**
 * For each row of the stepper the `nBest` texts found, best first.
 * @param stepper see stepper.js
 * @param {number[]} first the first token of each row: <s>, or the last token of a prompt
 * @param {number[]} maxLengths of each row, with </s> and without `forced` tokens
 * @param {number} eos
 * @param {object} options beamSize, alpha, nBest, and
 *   onStep           called after each step without forced tokens, with a step:
 *                      total_BKV   the log-probability of each prefix extended by each token except </s>
 *                      ended_BK    the log-probability of each prefix extended by </s>
 *                      found_BK    whether the extension by </s> is a text found
 *                      logP_BK     the log-probabilities of the new live prefixes; at the length limit, of the texts
 *                      rows_N      the old prefix that each of them extends
 *                      tokens_N    the token that it adds
 *   forced           tokens that each text must start with
 *   coverage         see alignment.js
 *   shouldContinue   (text): when it returns false, the row ends with the texts found so far, perhaps none
 * @returns {Hypothesis[][]} see request.js
 */
export function beamSearch(stepper, first, maxLengths, eos, options = {}) {
  const {beamSize = 4, alpha = 0.6, nBest = 1, onStep = null, forced = [], coverage = null, shouldContinue} = options;
  const beams = maxLengths.map((limit, i) => new Beam(i, limit, beamSize, alpha, nBest, forced[i]?.length ?? 0));
  const longestForced = forced.reduce((longest, {length}) => Math.max(longest, length), 0);
  const history = new Backpointers(coverage);
  let live = beams, logP_BK = beams.map(() => [0]), rows_N, tokens_N = first;
  while (live.length) {
    const logP_NV = stepper.step(tokens_N).map(logProbabilities), before_BK = logP_BK;
    checkFinite(live, logP_NV, history.length);
    if (coverage) history.addSourceWeights(stepper.sourceWeights);
    const ended_BK = byBeam(logP_NV.map((logP_V) => logP_V[eos]), before_BK[0].length)
      .map((ended_K, b) => ended_K.map((logP, k) => before_BK[b][k] + logP));
    for (const logP_V of logP_NV) logP_V[eos] = IMPOSSIBLE;
    ({logP_BK, rows_N, tokens_N} = bestExtensions(before_BK, logP_NV, beamSize));
    forcePrefixes(live, forced, history.length, {ended_BK, logP_BK, rows_N, tokens_N});
    const found_BK = collectFound(live, history, {ended_BK, logP_BK, rows_N, tokens_N});
    if (onStep && history.length >= longestForced) {
      const total_BKV = byBeam(logP_NV, before_BK[0].length)
        .map((logP_KV, b) => logP_KV.map((logP_V, k) => logP_V.map((logP) => before_BK[b][k] + logP)));
      onStep({total_BKV, ended_BK, found_BK, logP_BK, rows_N, tokens_N});
    }
    const kept = [...live.keys()].filter((b) => !live[b].isOver && (shouldContinue?.(live[b].text) ?? true));
    if (kept.length < live.length) {
      const select = (x_N) => kept.flatMap((b) => byBeam(x_N, logP_BK[0].length)[b]);
      [rows_N, tokens_N] = [select(rows_N), select(tokens_N)];
      [live, logP_BK] = [kept.map((b) => live[b]), kept.map((b) => logP_BK[b])];
    }
    history.add(rows_N, tokens_N, logP_BK.flat());
    stepper.keep(rows_N);
  }
  return beams.map((beam) => beam.hypotheses(history));
}

/** log softmax. A row in which all tokens are forbidden becomes -Infinity; NaN from the model stays NaN. */
function logProbabilities(logits_V) {
  return logits_V.every((logit) => logit === IMPOSSIBLE) ? Float64Array.from(logits_V) : logSoftmax(logits_V);
}

/** Forced tokens need no logits, so theirs may have NaN. */
function checkFinite(live, logP_NV, step) {
  byBeam(logP_NV, logP_NV.length / live.length).forEach((logP_KV, b) => {
    if (step >= live[b].nForced && logP_KV.some((logP_V) => Number.isNaN(logP_V[0]))) {
      throw new DataError(NON_FINITE_LOGITS);
    }
  });
}

/** [N] -> [B][K] */
function byBeam(x_N, K) {
  return Array.from({length: x_N.length / K}, (_, b) => x_N.slice(b * K, (b + 1) * K));
}

/**
 * The k best of a beam's K·V extensions: their log-probabilities [B][k], old rows [B·k] and new tokens [B·k].
 *
 * K is 1 at the first step and k later; the stepper has N = B·K rows. The k best are among the k best of each row. If
 * fewer than k exist, the best one fills the remaining places with log-probability -Infinity.
 */
function bestExtensions(logP_BK, logP_NV, beamSize) {
  const logPs = [], rows_N = [], tokens_N = [];
  logP_BK.forEach((logP_K, b) => {
    const extensions = logP_K.flatMap((logP, k) => {
      const row = b * logP_K.length + k, logP_V = logP_NV[row];
      return topk(logP_V, beamSize).map((token) => ({row, token, total: logP + logP_V[token]}));
    });
    const best = topk(extensions.map(({total}) => total), beamSize).map((i) => extensions[i]);
    logPs.push(best.map(({total}) => total));
    for (const one of best) {
      const {row, token} = one.total === IMPOSSIBLE ? best[0] : one;
      rows_N.push(row);
      tokens_N.push(token);
    }
  });
  return {logP_BK: logPs, rows_N, tokens_N};
}

/** Replace the extensions of sentences with forced tokens left: one prefix, log-probability 0, nothing found. */
function forcePrefixes(live, forced, step, {ended_BK, logP_BK, rows_N, tokens_N}) {
  const width = logP_BK[0].length, rowsBefore = ended_BK[0].length;
  live.forEach((beam, b) => {
    if (step >= beam.nForced) return;
    ended_BK[b].fill(IMPOSSIBLE);
    logP_BK[b].fill(IMPOSSIBLE)[0] = 0;
    rows_N.fill(b * rowsBefore, b * width, (b + 1) * width);
    tokens_N.fill(forced[beam.text][step], b * width, (b + 1) * width);
  });
}

/** Add the texts found at this step to each beam. Return which extensions by </s> were found. */
function collectFound(live, history, {ended_BK, logP_BK, rows_N, tokens_N}) {
  const old = ended_BK[0].length, width = logP_BK[0].length;
  return live.map((beam, b) => {
    beam.length = history.length + 1 - beam.nForced;
    const threshold = logP_BK[b].at(-1); // that of the k-th; -Infinity if fewer than k exist, because </s> is then last
    const found_K = ended_BK[b].map((logP) => logP >= threshold && logP > IMPOSSIBLE);
    ended_BK[b].forEach((logP, k) => found_K[k] && beam.add(history, logP, b * old + k));
    if (beam.length === beam.maxLength) {
      logP_BK[b].forEach((logP, k) => {
        if (logP > IMPOSSIBLE) beam.add(history, logP, rows_N[b * width + k], tokens_N[b * width + k]);
      });
    }
    beam.bestLive = logP_BK[b][0];
    return found_K;
  });
}

/** The search for one sentence: the texts it has found, and whether it is over. */
class Beam {
  constructor(text, maxLength, size, alpha, nBest, nForced) {
    Object.assign(this, {text, maxLength, size, alpha, nBest, nForced, length: -nForced, bestLive: 0});
    this.best = []; // best first
  }

  /** A complete text: it extends a row of a step by </s> (token null) or, cut off, by a token. */
  add(history, logP, row, token = null) {
    const score = logP / lengthPenalty(this.length, this.alpha) + history.penalty(row, this.text);
    let place = this.best.length;
    while (place > 0 && this.best[place - 1].score < score) place -= 1;
    this.best.splice(place, 0, {score, logP, step: history.length, row, token});
    this.best.length = Math.min(this.best.length, this.nBest);
  }

  get isOver() {
    if (this.length === this.maxLength || this.bestLive === IMPOSSIBLE) return true;
    if (this.best.length < this.nBest) return false;
    return this.size === 1 || this.best.at(-1).score >= this.bestLive / lengthPenalty(this.maxLength, this.alpha);
  }

  hypotheses(history) {
    if (!this.best.length && this.bestLive === IMPOSSIBLE) throw new DataError(NO_TOKEN_ALLOWED);
    return this.best.map((found) => history.hypothesis(found, this.text, this.nForced));
  }
}
