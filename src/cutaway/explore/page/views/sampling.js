// Sampling: temperature, then top-k, then top-p, in the order and with the ties of decode/filters.py. Pure functions.
//
// A step has its most probable tokens one by one, and all others in bins [logit, count]. Here a token is a bin of one.

/** The bins of a step, most probable first: [{logit, count, index}]; index is null in the tail. */
export function binsOf(step) {
  const named = step.logits.map((logit, index) => ({logit, count: 1, index}));
  const tail = (step.tail ?? []).filter(([, count]) => count > 0).map(([logit, count]) => ({logit, count,
    index: null}));
  return [...named, ...tail.sort((a, b) => b.logit - a.logit)];
}

/** The probability of one token of each bin; 0 for a bin with count 0. */
export function softmax(logits, counts) {
  let largest = -Infinity;
  logits.forEach((logit, i) => { if (counts[i] > 0 && logit > largest) largest = logit; });
  const exponentials = logits.map((logit, i) => (counts[i] > 0 ? Math.exp(logit - largest) : 0));
  const total = exponentials.reduce((sum, value, i) => sum + value * counts[i], 0);
  return exponentials.map((value) => value / total);
}

/** The candidates of a step with the model's probabilities: [{token, id, p}]. */
export function topCandidates(step) {
  const bins = binsOf(step);
  const p = softmax(bins.map((bin) => bin.logit), bins.map((bin) => bin.count));
  return step.ids.map((id, i) => ({token: step.tokens[i], id, p: p[i]}));
}

/** How many tokens of each bin top-k keeps: the k most probable, and those with the same logit as the k-th. */
export function topK(logits, counts, k) {
  if (!k) return counts;
  let seen = 0;
  let least = -Infinity;
  for (let i = 0; i < logits.length; i++) {
    seen += counts[i];
    if (seen >= k) { least = logits[i]; break; }
  }
  return counts.map((count, i) => (logits[i] < least ? 0 : count));
}

/** How many tokens of each bin top-p keeps: a token is kept if the tokens before it have less than p in total. */
export function topP(logits, counts, p) {
  if (p >= 1) return counts;
  const probability = softmax(logits, counts);
  let reached = 0;
  return counts.map((count, i) => {
    const before = reached;
    reached += probability[i] * count;
    if (count === 0) return 0;
    if (count === 1) return reached - probability[i] >= p ? 0 : 1;
    return before >= p ? 0 : Math.min(count, Math.ceil((p - before) / probability[i]));
  });
}

/** −Σ p log₂ p, in bits. */
export function entropy(probability, counts) {
  return probability.reduce((sum, p, i) => (p > 0 && counts[i] > 0 ? sum - counts[i] * p * Math.log2(p) : sum), 0);
}

/**
 * A step under {temperature, topK, topP} ->
 * candidates   [{index, token, id, logit, p, q, kept}]: p of the model, q for sampling
 * tail         {count, kept, p, q}: all other tokens together
 * kept, of     how many tokens can be sampled, and how many there are
 * mass         the probability of the kept tokens after temperature
 * before, after  entropies of p and q in bits
 */
export function filterStep(step, {temperature = 1, topK: k = 0, topP: nucleus = 1} = {}) {
  const bins = binsOf(step);
  const counts = bins.map((bin) => bin.count);
  const raw = bins.map((bin) => bin.logit);
  const p = softmax(raw, counts);
  const scaled = temperature === 1 ? raw : raw.map((logit) => logit / temperature);
  const kept = topP(scaled, topK(scaled, counts, k), nucleus);
  const q = softmax(scaled, kept);
  const sum = (values, numbers, chosen) => values.reduce((total, v, i) => (chosen(i) ? total + v * numbers[i] : total),
    0);
  const inTail = (i) => bins[i].index === null;
  const every = () => true;
  return {
    candidates: bins.flatMap((bin, i) => bin.index === null ? [] : [{
      index: bin.index, token: step.tokens[bin.index], id: step.ids[bin.index], logit: bin.logit,
      p: p[i], q: q[i], kept: kept[i] > 0,
    }]),
    tail: {count: sum(counts, counts.map(() => 1), inTail), kept: sum(kept, counts.map(() => 1), inTail),
      p: sum(p, counts, inTail), q: sum(q, kept, inTail)},
    kept: sum(kept, counts.map(() => 1), every),
    of: sum(counts, counts.map(() => 1), every),
    mass: sum(softmax(scaled, counts), kept, every),
    before: entropy(p, counts),
    after: entropy(q, kept),
  };
}

/** The next seed of a small linear congruential generator (Numerical Recipes): 32 bits in, 32 bits out. */
export function nextSeed(seed) {
  return (Math.imul(1664525, seed >>> 0) + 1013904223) >>> 0;
}

/** A seed as a number in [0, 1). */
export function uniform(seed) {
  return (seed >>> 0) / 4294967296;
}

/** Sample by the inverse of the cumulative distribution at u: a candidate, or null for a token of the tail. */
export function sample(distribution, u) {
  let reached = 0;
  for (const candidate of distribution.candidates) {
    reached += candidate.q;
    if (u < reached) return candidate;
  }
  const last = distribution.candidates.filter((candidate) => candidate.kept).at(-1);
  return distribution.tail.kept > 0 ? null : last ?? null;
}
