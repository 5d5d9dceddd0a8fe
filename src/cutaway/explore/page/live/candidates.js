// The candidates of each prediction: the most probable tokens with their logits, and a histogram of the others
// (explore/candidates.py).

import {logSoftmax, topk} from "../engine/topk.js";
import {round} from "./values.js";

const NAMED = 128; // candidates that are listed by name
const BINS = 48, WIDTH = 0.5; // the others are counted in bins; WIDTH in nats, counted down from the last named one

/**
 * For each prediction: the answer, its probability and rank, and the most probable candidates with their logits.
 *
 * The logits and the bins suffice to apply any temperature, top-k and top-p later, without the model: a bin stands for
 * `count` candidates with one logit, chosen so that their probabilities add up.
 */
export function candidates(example, logits_NV) {
  return logits_NV.map((logits_V, n) => {
    const id = example.answers[n], ids = topk(logits_V, Math.min(NAMED, logits_V.length));
    return {
      token: example.names([id])[0],
      id,
      p: round(Math.exp(logSoftmax(logits_V)[id]), 6),
      rank: logits_V.reduce((rank, logit) => rank + (logit > logits_V[id] ? 1 : 0), 0),
      ids,
      tokens: example.names(ids),
      logits: ids.map((each) => round(logits_V[each])),
      tail: bins(logits_V, new Set(ids), logits_V[ids.at(-1)]),
    };
  });
}

/** [[logit, count], ...] of the candidates that are not named. */
function bins(logits_V, named, last) {
  const counts = new Float64Array(BINS), sums = new Float64Array(BINS);
  for (let id = 0; id < logits_V.length; id++) {
    if (named.has(id)) continue;
    const below = last - logits_V[id], bin = Math.min(BINS - 1, Math.max(0, Math.trunc(below / WIDTH)));
    counts[bin] += 1;
    sums[bin] += Math.exp(-below);
  }
  return Array.from(counts, (count, bin) => [round(last + Math.log(sums[bin] / count)), count])
    .filter(([level, count]) => count && level > -Infinity);
}
