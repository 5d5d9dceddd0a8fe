// Run changed versions of one forward pass, one after the other (explore/variants.py).
//
// A variant is an object: probe name -> a function of that probe's value [1,...].

import {editActivations, recordActivations} from "../engine/probe.js";
import {Tensor} from "../engine/tensor.js";

/**
 * What `measure` returns for the logits [N][V] of each variant.
 * @param {import("../engine/slices.js").Slices} slices
 */
export async function runVariants(model, example, variants, slices, measure) {
  const found = [];
  for (const variant of variants) {
    await slices.rest();
    const edit = editActivations(model, variant);
    try {
      found.push(measure(example.logits(model)));
    } finally {
      edit.stop();
    }
  }
  return found;
}

/** The values of these probes for an example: name -> tensor [1,...]. */
export function recordValues(model, example, ...patterns) {
  const recorded = recordActivations(model, ...patterns);
  try {
    example.logits(model);
  } finally {
    recorded.stop();
  }
  return recorded;
}

/** An edit that replaces the vector of one token in a value [1,T,D]. */
export function replaceRow(t, vector_D) {
  return (value) => {
    const changed = copy(value);
    changed.row(t).set(vector_D);
    return changed;
  };
}

/** An edit that replaces the output of one head in a value [1,H,Q,E]. */
export function replaceHead(head, matrix_QE) {
  return (value) => {
    const changed = copy(value);
    changed.matrix(head).set(matrix_QE);
    return changed;
  };
}

function copy({shape, data}) {
  return new Tensor(shape, data.slice());
}
