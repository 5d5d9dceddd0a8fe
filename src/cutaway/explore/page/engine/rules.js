// Rules that change the logits before the softmax. The order is the same for all strategies:
//
//     repetition_penalty   the logit x of each token in the history becomes x / r if x > 0, else x · r
//                          (Keskar et al. 2019; once, even if the token is there several times)
//     no_repeat_ngram      forbid a token that would complete an n-gram of the history
//     suppress             forbid these tokens always
//     min_length           forbid </s> until this many tokens are generated
//     allowed              forbid all tokens except those that a function returns
//
// A forbidden token has the logit -Infinity. Log-probabilities are those of the changed distribution.
//
// The history is everything that the decoder has read. For a text generator: prompt, prefix and generated tokens. For a
// translator: prefix and generated tokens, without <s>. min_length counts only tokens after the prefix.

const FORBIDDEN = -Infinity;

/** The tokens that each row has read [N][T], and the text that each row belongs to. */
export class TokenHistory {
  constructor(start) {
    this.text_N = start.forced.map((_, text) => text);
    this.tokens_NT = start.history.map((tokens) => [...tokens]);
    this.answerStarts = start.answerStarts;
    const read = start.history[0]?.length ?? 0;
    // the index of the first generated token of each text
    this.generatedFrom = start.forced.map((forced) => read + (start.isHistory ? 1 : 0) + forced.length);
    this.skipFirst = !start.isHistory; // <s> of a translation is not part of the history
  }

  add(tokens_N) {
    if (!this.skipFirst) this.tokens_NT.forEach((tokens_T, row) => tokens_T.push(tokens_N[row]));
    this.skipFirst = false;
  }

  keep(rows) {
    this.text_N = rows.map((row) => this.text_N[row]);
    this.tokens_NT = rows.map((row) => [...this.tokens_NT[row]]);
  }

  /** The number of tokens that a row has generated; negative before the end of its forced tokens. */
  countGenerated(row) {
    return this.tokens_NT[row].length - this.generatedFrom[this.text_N[row]];
  }
}

/** A stepper that applies rules to the logits. */
export class RuledStepper {
  constructor(stepper, rules, history) {
    this.stepper = stepper;
    this.rules = rules;
    this.history = history;
  }

  step(tokens) {
    this.history.add(tokens);
    return this.stepper.step(tokens).map((logits_V, row) => {
      const ruled_V = Float64Array.from(logits_V);
      for (const apply of this.rules) apply(ruled_V, this.history, row);
      return ruled_V;
    });
  }

  keep(rows) {
    this.stepper.keep(rows);
    this.history.keep(rows);
  }

  get sourceWeights() {
    return this.stepper.sourceWeights;
  }
}

/** Those that change anything. A rule changes the logits [V] of a row. */
export function buildRules(search) {
  const {decode} = search, rules = [];
  if (decode.repetitionPenalty !== 1) rules.push(repetitionPenalty(decode.repetitionPenalty));
  if (decode.noRepeatNgram) rules.push(noRepeatNgram(decode.noRepeatNgram));
  if (decode.suppress.length) rules.push(suppress(decode.suppress));
  if (decode.minLength) rules.push(minLength(decode.minLength, search.eos));
  if (search.allowed) rules.push(allowOnly(search.allowed));
  return rules;
}

/** x / r if x > 0, else x · r, once for each distinct token of the history. */
function repetitionPenalty(r) {
  return (logits_V, history, row) => {
    for (const token of new Set(history.tokens_NT[row])) {
      const x = logits_V[token];
      logits_V[token] = x > 0 ? x / r : x * r;
    }
  };
}

/** Forbid each token that followed the last n - 1 tokens earlier in the history. */
function noRepeatNgram(n) {
  return (logits_V, history, row) => {
    const tokens_T = history.tokens_NT[row], last = tokens_T.length - n + 1; // where the last n - 1 tokens start
    for (let start = 0; start < last; start++) {
      let i = 0;
      while (i < n - 1 && tokens_T[start + i] === tokens_T[last + i]) i += 1;
      if (i === n - 1) logits_V[tokens_T[start + i]] = FORBIDDEN;
    }
  };
}

function suppress(tokens) {
  return (logits_V) => {
    for (const token of tokens) logits_V[token] = FORBIDDEN;
  };
}

function minLength(length, eos) {
  return (logits_V, history, row) => {
    if (history.countGenerated(row) < length) logits_V[eos] = FORBIDDEN;
  };
}

/** Forbid all tokens except those that `allowed` returns, after the forced tokens. */
function allowOnly(allowed) {
  return (logits_V, history, row) => {
    if (history.countGenerated(row) < 0) return;
    const text = history.text_N[row];
    const tokens = allowed(text, history.tokens_NT[row].slice(history.answerStarts[text]));
    if (tokens === null) return;
    const kept = tokens.map((token) => logits_V[token]);
    logits_V.fill(FORBIDDEN);
    tokens.forEach((token, i) => {
      logits_V[token] = kept[i];
    });
  };
}
