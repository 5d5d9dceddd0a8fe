// Run a search with the strategy that its settings name.

import {beamSearch} from "./beam.js";
import {buildFilters} from "./filters.js";
import {buildRules, RuledStepper, TokenHistory} from "./rules.js";
import {greedy, sample} from "./sampling.js";

/**
 * @param stepper see stepper.js
 * @param {Start} start the tokens that each row starts with; see request.js
 * @param {Search} search see request.js
 * @param {Coverage | null} coverage how the search uses the attention weights; see alignment.js
 * @returns {Hypothesis[][]} for each row the texts found, best first
 */
export function runSearch(stepper, start, search, coverage = null) {
  const {decode, limits, eos, onToken, onStep, nBest, shouldContinue} = search, {forced} = start;
  if (search.hasRules) stepper = new RuledStepper(stepper, buildRules(search), new TokenHistory(start));
  if (decode.strategy === "beam") {
    const {beamSize, lengthPenalty: alpha} = decode;
    return beamSearch(stepper, start.first, limits, eos,
      {beamSize, alpha, nBest, onStep, forced, coverage, shouldContinue});
  }
  const options = {forced, onToken, coverage, shouldContinue};
  const texts = decode.strategy === "sample"
    ? sample(stepper, start.first, limits, eos, buildFilters(decode), search.generators(), options)
    : greedy(stepper, start.first, limits, eos, options);
  return texts.map((text) => [text]);
}
