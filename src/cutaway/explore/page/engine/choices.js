// Outputs that must be one of several choices: the tokens that may come next.

import {DataError} from "./errors.js";

/**
 * The decoding settings of a run, without sampling if there are choices. A run that samples uses a beam as wide as the
 * number of choices instead, which finds the most probable one.
 */
export function decodeForChoices(decode, choices) {
  if (!choices?.length || decode.strategy !== "sample") return decode;
  return {...decode, strategy: "beam", beamSize: choices.length, lengthPenalty: 0};
}

/**
 * The output is exactly one of these texts (token ids). `allowed` is the function of a Search, the same for every row.
 *
 * The texts form a trie of tokens. The children of a node are the tokens that may come next; </s> ends a text. After a
 * beginning that is not in the trie, no token is allowed.
 *
 *     choices "ja", "jain", "nein"        j ── a ──┬── </s>
 *                                     ──┤          └── i ── n ── </s>
 *                                         n ── e ── i ── n ── </s>
 */
export class ChoiceTrie {
  constructor(choices, eos) {
    if (!choices.length) throw new DataError("the list of choices is empty. Give at least one choice.");
    this.longest = choices.reduce((longest, choice) => Math.max(longest, choice.length), 0) + 1; // with </s>
    this.root = new Map();
    for (const choice of choices) {
      let node = this.root;
      for (const token of [...choice, eos]) {
        if (!node.has(token)) node.set(token, new Map());
        node = node.get(token);
      }
    }
  }

  allowed = (row, tokens) => {
    let node = this.root;
    for (const token of tokens) node = node?.get(token);
    return node ? [...node.keys()] : [];
  };
}
