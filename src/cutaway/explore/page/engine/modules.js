// Modules and parameters, and how they get their names.
//
// A module is a class with a method `forward`. Its attributes are parameters, other modules, or lists of modules. The
// name of each is its attribute path, such as encoder.layers.0.self_attention.query.weight. The PyTorch model has the
// same attributes, so the names in a weights file are the names here.

import {RunError} from "./errors.js";
import {toSnakeCase} from "./names.js";
import {linear, Tensor} from "./tensor.js";

export class Module {}

/** A trained tensor. It has no data until weights are loaded. */
export class Parameter extends Tensor {
  constructor(...shape) {
    super(shape, null);
  }
}

/** y = x Wᵀ + b    [...,I] -> [...,O] */
export class Linear extends Module {
  constructor(dIn, dOut, bias = true) {
    super();
    this.weight = new Parameter(dOut, dIn);
    this.bias = bias ? new Parameter(dOut) : null;
  }

  forward(x) {
    return linear(x, this.weight, this.bias);
  }
}

export class Identity extends Module {
  forward(x) {
    return x;
  }
}

/** The module and all modules in it, by name. A shared module has the name of its first occurrence. */
export function namedModules(module, name = "", found = new Map(), seen = new Set()) {
  if (seen.has(module)) return found;
  found.set(name, module);
  seen.add(module);
  for (const [attribute, value] of namedAttributes(module)) {
    if (value instanceof Module) namedModules(value, name ? `${name}.${attribute}` : attribute, found, seen);
  }
  return found;
}

/** The module with this name, such as encoder.layers.0; "" is the module itself. null: there is none. */
export function submodule(module, name) {
  if (!name) return module;
  for (const [attribute, value] of namedAttributes(module)) {
    if (!(value instanceof Module) || !`${name}.`.startsWith(`${attribute}.`)) continue;
    return submodule(value, name.slice(attribute.length + 1));
  }
  return null;
}

/** The parameters of the module, by name. A shared matrix has the name of its first occurrence. */
function namedParameters(module) {
  const found = new Map(), seen = new Set();
  for (const [path, part] of namedModules(module)) {
    for (const [attribute, value] of namedAttributes(part)) {
      if (!(value instanceof Parameter) || seen.has(value)) continue;
      seen.add(value);
      found.set(path ? `${path}.${attribute}` : attribute, value);
    }
  }
  return found;
}

/** [name, value] of each attribute; the elements of a list have the names layers.0, layers.1, ... */
function namedAttributes(module) {
  return Object.entries(module).flatMap(([key, value]) => {
    const name = toSnakeCase(key);
    return Array.isArray(value) ? value.map((element, i) => [`${name}.${i}`, element]) : [[name, value]];
  });
}

/**
 * Give the parameters of a model their numbers. All names and shapes must be the same.
 * @param {Map<string, Tensor>} weights
 * @param {string} where the name of the file, for the error
 */
export function loadWeights(model, weights, where = "the weights file") {
  const parameters = namedParameters(model), hint = "Check that config.json belongs to these weights.";
  const missing = [...parameters.keys()].filter((name) => !weights.has(name));
  const unknown = [...weights.keys()].filter((name) => !parameters.has(name));
  if (missing.length || unknown.length) {
    throw new RunError(`${where} does not fit the model: missing ${listSome(missing)}, unknown ${listSome(unknown)}. `
      + hint);
  }
  for (const [name, parameter] of parameters) {
    const {shape, data} = weights.get(name);
    if (String(shape) !== String(parameter.shape)) {
      throw new RunError(`${where} does not fit the model: ${name} has the shape [${shape}] instead of `
        + `[${parameter.shape}]. ${hint}`);
    }
    parameter.data = data;
  }
}

/** The first three names, for a message. */
function listSome(names) {
  const shown = names.sort().slice(0, 3).join(", ");
  return shown ? shown + (names.length > 3 ? ` and ${names.length - 3} more` : "") : "nothing";
}
