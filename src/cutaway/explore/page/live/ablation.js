// Heads and sub-layers that can be switched off, by name, and the effect on the output (explore/ablation.py).

import {ConfigError} from "../engine/errors.js";
import {editActivations, withoutHead} from "../engine/probe.js";
import {Tensor} from "../engine/tensor.js";

const zeros = (value) => new Tensor(value.shape);

/**
 * Switch these heads and sub-layers off, until `stop` is called.
 * @param {object[]} targets those of the model: {id, head (null: a sub-layer), probe, ...}
 * @param {string[]} off ids
 */
export function ablate(model, targets, off) {
  const known = new Map(targets.map((target) => [target.id, target])), heads = {}, edits = {};
  for (const id of off) {
    if (!known.has(id)) {
      const names = targets.filter(({head}) => head === null).map((target) => target.id).join(", ");
      throw new ConfigError(`this model has no head or sub-layer '${id}'. Sub-layers: ${names}.`);
    }
    const {head, probe} = known.get(id);
    if (head === null) edits[probe] = zeros;
    else (heads[probe] ??= []).push(head);
  }
  for (const [probe, chosen] of Object.entries(heads)) edits[probe] = withoutHead(...chosen);
  return editActivations(model, edits);
}

/** What `measure` returns with each target switched off (in addition to earlier edits). */
export async function measureEach(model, targets, slices, measure) {
  const found = [];
  for (const {id} of targets) {
    await slices.rest();
    const edit = ablate(model, targets, [id]);
    try {
      found.push(measure());
    } finally {
      edit.stop();
    }
  }
  return found;
}

/** The log-probability of the same answer, in nats, with each target switched off. */
export async function measureAblations(model, targets, example, slices) {
  const found = await measureEach(model, targets, slices, () => example.totalLogP(example.logits(model)));
  return targets.map(({id}, i) => ({id, log_p: found[i]}));
}
