// The values of one part of the model, for the view of its details (explore/parts.py).

import {ConfigError} from "../engine/errors.js";
import {submodule} from "../engine/modules.js";
import {Tensor} from "../engine/tensor.js";
import {slices, summarizeValue, truncationNote} from "./values.js";

/**
 * The details of one part, with its values for this example.
 * @param {Object<string, object>} descriptions name -> what Python knows of the part: title, equation, source code, ...
 *   and the names and axes of its inputs and outputs
 */
export function describePart(model, example, name, descriptions) {
  const description = descriptions[name], module = submodule(model, name);
  if (!description || !module) throw new ConfigError(`this model has no part '${name}'.`);
  const {inputs, output} = recordCall(model, module, example), given = description.inputs;
  const outputs = output ? description.outputs.map((value) => describeValue(output, value, example, name)) : [];
  // an input that Python does not list has no values to show, such as the key-value cache
  const shown = inputs.slice(0, given.length).map((value, i) => describeValue(value, given[i], example, name));
  return {...description, inputs: shown, outputs};
}

/** The tensors that a part gets and returns when the model runs; of several calls, the last. */
function recordCall(model, module, example) {
  let inputs = [], output = null;
  const {forward} = module;
  module.forward = (...args) => {
    const result = forward.apply(module, args);
    inputs = args.map(toTensor).filter(Boolean);
    output = toTensor(result);
    return result;
  };
  try {
    example.logits(model);
  } finally {
    delete module.forward; // that of the class counts again
  }
  return {inputs, output};
}

/** A tensor, or token ids [B][T] as one; null for anything else, such as a mask. */
function toTensor(value) {
  if (value instanceof Tensor) return value;
  if (typeof value?.[0]?.[0] !== "number") return null;
  return new Tensor([value.length, value[0].length], Float64Array.from(value.flat()));
}

function describeValue(value, {name, axes}, example, part) {
  const isSoftmax = part.endsWith("_attention.weights") && name === "result";
  const summary = summarizeValue(value, axes, isSoftmax);
  const [rows, columns] = labelsOf(value, summary.axes.map(([axis]) => axis), example, part);
  return {name, ...summary, rows, columns, slices: slices(value), shown: truncationNote(value)};
}

/** The tokens of the rows and columns of the last two axes; null if an axis is not a sequence of tokens. */
function labelsOf({shape}, axes, {source, target_in: target}, part) {
  if (shape.length < 2) return [null, null];
  const own = !target.length || /^(encoder|source_embedding)/.test(part) ? source : target;
  const other = part.includes(".cross_attention") ? source : own;
  return [-2, -1].map((i) => {
    const tokens = {S: source, K: other}[axes.at(i)] ?? own;
    return "TSQKN".includes(axes.at(i)) && tokens.length === shape.at(i) ? tokens : null;
  });
}
