// Generate one token after the other without going back: greedy search and sampling.
//
// A text can start with *forced* tokens (prompt and prefix). They are read, not chosen, and count neither for the
// length nor for the probability. Rows with a different number of forced tokens share each step:
//
//     row 0   forced a b c │ generated x y z
//     row 1   forced d │ generated u v w x y

import {DataError} from "./errors.js";
import {NO_TOKEN_ALLOWED, NON_FINITE_LOGITS} from "./request.js";
import {argmax, logSoftmax, softmax64} from "./topk.js";

/** Choose the most probable token at each step. The arguments are those of `generate`. */
export function greedy(stepper, first, maxLengths, eos, options) {
  return generate(stepper, first, maxLengths, eos, argmax, options);
}

/**
 * Sample each token from softmax(filters(logits)). Each text has its own random generator.
 *
 * Sampling inverts the cumulative distribution: it takes the first token whose cumulative probability exceeds a random
 * number from [0, 1). The log-probabilities in the result are those of softmax(logits), without the filters.
 */
export function sample(stepper, first, maxLengths, eos, filters, generators, options) {
  const draw = (logits_V, text) => {
    const filtered_V = Float64Array.from(logits_V);
    for (const apply of filters) apply(filtered_V);
    const cumulative_V = softmax64(filtered_V);
    for (let i = 1; i < cumulative_V.length; i++) cumulative_V[i] += cumulative_V[i - 1];
    const total = cumulative_V.at(-1), point = generators[text].random() * total;
    if (!Number.isFinite(total)) throw new DataError(reasonFor(filtered_V));
    // rounding can make the point equal to the total: no token comes after it
    return cumulative_V.findIndex((cumulative) => cumulative > point || cumulative === total);
  };
  return generate(stepper, first, maxLengths, eos, draw, options);
}

/**
 * The loop of greedy search and sampling. A finished row leaves the batch, so the others become faster.
 * @param stepper see stepper.js
 * @param {number[]} first the first token of each row: <s>, or the last token of a prompt
 * @param {number[]} maxLengths of each row, with </s> and without `forced` tokens
 * @param {number} eos
 * @param {(logits_V: ArrayLike<number>, text: number) => number} choose
 * @param {object} options
 *   forced           tokens that each text must start with
 *   onToken          (text, token, log-probability): called with each new token; returns whether to continue
 *   coverage         if given, hypotheses contain the source weights
 *   shouldContinue   (text): called for each row after each step
 * @returns {Hypothesis[]} see request.js
 */
export function generate(stepper, first, maxLengths, eos, choose, options = {}) {
  const {forced = [], onToken = null, coverage = null, shouldContinue = null} = options;
  const texts = maxLengths.map((limit) => new PartialHypothesis(limit));
  let live = texts.map((_, i) => i), tokens_N = first;
  for (let step = 0; live.length; step++) {
    const logits_NV = stepper.step(tokens_N);
    tokens_N = live.map((i, row) => {
      if (step < (forced[i]?.length ?? 0)) return forced[i][step];
      const token = choose(logits_NV[row], i), logP = logProbability(logits_NV[row], token);
      texts[i].add(token, logP, eos);
      if (coverage) texts[i].sourceWeights.push(stepper.sourceWeights[row]);
      if (onToken && token !== eos && !onToken(i, token, logP)) texts[i].isOver = true;
      return token;
    });
    const kept = [...live.keys()].filter((row) => !texts[live[row]].isOver && (shouldContinue?.(live[row]) ?? true));
    if (kept.length === live.length) continue;
    stepper.keep(kept);
    [tokens_N, live] = [kept.map((row) => tokens_N[row]), kept.map((row) => live[row])];
  }
  return texts.map((text, i) => text.hypothesis(coverage, i));
}

function logProbability(logits_V, token) {
  const logP = logSoftmax(logits_V)[token];
  if (Number.isNaN(logP)) throw new DataError(reasonFor(logits_V));
  return logP;
}

/** Why no token can be chosen. */
function reasonFor(logits_V) {
  return logits_V.every((logit) => logit === -Infinity) ? NO_TOKEN_ALLOWED : NON_FINITE_LOGITS;
}

/** A text during generation. */
class PartialHypothesis {
  tokens = [];
  tokenLogProbs = [];
  sourceWeights = [];
  finished = false;
  isOver = false;

  constructor(maxLength) {
    this.maxLength = maxLength;
  }

  add(token, logP, eos) {
    this.tokenLogProbs.push(logP);
    this.finished = token === eos;
    if (!this.finished) this.tokens.push(token);
    this.isOver = this.finished || this.tokens.length >= this.maxLength;
  }

  hypothesis(coverage, i) {
    const {tokens, tokenLogProbs, finished} = this, total = tokenLogProbs.reduce((a, b) => a + b, 0);
    const alignment = coverage ? coverage.alignment(this.sourceWeights, i) : null;
    return {tokens, logProbability: total, score: total, finished, tokenLogProbs, alignment};
  }
}
