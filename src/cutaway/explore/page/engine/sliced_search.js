// The searches of search.js for one text, in slices.

import {buildFilters} from "./filters.js";
import {buildRules, RuledStepper, TokenHistory} from "./rules.js";
import {greedy, sample} from "./sampling.js";
import {runSearch} from "./search.js";
import {SLICE} from "./slices.js";

/**
 * The hypotheses for one text, as from `runSearch`.
 * @param {(token: number, logP: number) => boolean} onToken called with each new token; returns whether to continue
 */
export async function searchInSlices(stepper, start, search, coverage, slices, onToken = () => true) {
  if (search.decode.strategy === "beam") return beamInSlices(stepper, start, search, coverage, slices);
  return [await tokenByToken(stepper, start, search, slices, onToken)];
}

/** Greedy search or sampling. Each token is a search for one token, which continues from the state of the stepper. */
async function tokenByToken(stepper, start, search, slices, onToken) {
  const {decode, eos, limits: [limit]} = search, generators = search.generators(), filters = buildFilters(decode);
  if (search.hasRules) stepper = new RuledStepper(stepper, buildRules(search), new TokenHistory(start));
  const oneRow = {step: (tokens) => stepper.step(tokens), keep() {}}; // the row stays when its search is over
  const next = decode.strategy === "sample"
    ? (token) => sample(oneRow, [token], [1], eos, filters, generators)
    : (token) => greedy(oneRow, [token], [1], eos);
  let [token] = start.first, finished = false;
  for (const forced of start.forced[0]) {
    await slices.rest();
    stepper.step([token]);
    token = forced;
  }
  const tokens = [], tokenLogProbs = [];
  while (tokens.length < limit && !finished) {
    await slices.rest();
    const [found] = next(token);
    tokens.push(...found.tokens);
    tokenLogProbs.push(...found.tokenLogProbs);
    ({finished} = found);
    token = tokens.at(-1);
    if (!finished && !onToken(token, tokenLogProbs.at(-1))) break;
  }
  const total = tokenLogProbs.reduce((a, b) => a + b, 0);
  return {tokens, logProbability: total, score: total, finished, tokenLogProbs, alignment: null};
}

const PAUSE = Symbol("pause");

/**
 * Beam search. It cannot be continued in the middle, so each slice repeats it with the recorded output of the model.
 * Only new steps call the model. A slice makes new steps for at least as long as the repetition took.
 */
async function beamInSlices(stepper, start, search, coverage, slices) {
  const recorded = new RecordedStepper(stepper);
  await slices.rest();
  for (;;) {
    recorded.restart();
    search.onStart?.();
    try {
      return runSearch(recorded, start, search, coverage)[0];
    } catch (error) {
      if (error !== PAUSE) throw error;
      await slices.next();
    }
  }
}

class RecordedStepper {
  #steps = []; // the output of each step
  #kept = 0; // calls of `keep`

  constructor(stepper) {
    this.stepper = stepper;
  }

  restart() {
    this.start = performance.now();
    this.repeated = null; // when the repetition ended
    this.stepsNow = this.keptNow = 0;
  }

  step(tokens) {
    if (this.stepsNow === this.#steps.length) {
      const now = performance.now();
      this.repeated ??= now;
      if (now - this.repeated > Math.max(SLICE, this.repeated - this.start)) throw PAUSE;
      this.#steps.push({logits_NV: this.stepper.step(tokens), sourceWeights: this.stepper.sourceWeights});
    }
    const {logits_NV, sourceWeights} = this.#steps[this.stepsNow++];
    this.sourceWeights = sourceWeights;
    return logits_NV;
  }

  keep(rows) {
    if (this.keptNow++ < this.#kept) return;
    this.#kept += 1;
    this.stepper.keep(rows);
  }
}
