// Probes: named places in a model where a value can be recorded or changed.
//
//     const recorded = recordActivations(model, "*.weights");                                        // record
//     model.forward(source, targetIn);
//     recorded.stop();
//     recorded.get("encoder.layers.0.self_attention.weights")                                        // [B,H,Q,K]
//
//     const edit = editActivations(model, {"decoder.layers.1.*.heads": withoutHead(2)});             // change
//     model.forward(source, targetIn);
//     edit.stop();

import {ConfigError} from "./errors.js";
import {Module, namedModules} from "./modules.js";
import {Tensor} from "./tensor.js";

/** The identity. Each watcher is called with the value; if it returns a tensor, that replaces the value. */
export class Probe extends Module {
  #watchers = new Set();

  get isWatched() {
    return this.#watchers.size > 0;
  }

  forward(value) {
    for (const watcher of this.#watchers) value = watcher(value) ?? value;
    return value;
  }

  /** Add a watcher. -> a function that removes it */
  watch(watcher) {
    const added = (value) => watcher(value); // a function of its own, because a set keeps each function once
    this.#watchers.add(added);
    return () => this.#watchers.delete(added);
  }
}

/** Probe name -> its last value, in the order of computation. */
class Recording extends Map {
  #removals = [];

  record(name, probe) {
    this.#removals.push(probe.watch((value) => {
      this.delete(name); // a probe that runs twice moves to the end
      this.set(name, value);
    }));
  }

  /** End the recording. The values remain. */
  stop() {
    this.#removals.splice(0).forEach((remove) => remove());
  }
}

/** All probes of a model, by name. */
export function probes(model) {
  return new Map([...namedModules(model)].filter(([, module]) => module instanceof Probe));
}

/** Record every probe whose name matches one of the patterns (default: all), until `stop` is called. */
export function recordActivations(model, ...patterns) {
  const recorded = new Recording();
  for (const [name, probe] of findProbes(model, patterns.length ? patterns : ["*"])) recorded.record(name, probe);
  return recorded;
}

/**
 * Change values until `stop` is called.
 * @param {Object<string, Tensor | function(Tensor): Tensor>} edits pattern -> a replacement, or a function of the value
 */
export function editActivations(model, edits) {
  const removals = Object.entries(edits).flatMap(([pattern, edit]) =>
    [...findProbes(model, [pattern]).values()].map((probe) =>
      probe.watch(edit instanceof Tensor ? replaceBy(edit) : edit)));
  return {stop: () => removals.splice(0).forEach((remove) => remove())};
}

/** The probes that match at least one pattern. A pattern without a match is an error. */
function findProbes(model, patterns) {
  const all = probes(model), found = new Set();
  for (const pattern of patterns) {
    const matches = [...all.keys()].filter((name) => toRegExp(pattern).test(name));
    if (!matches.length) {
      throw new ConfigError(`no probe matches '${pattern}'. Allowed: ${[...all.keys()].join(", ")}.`);
    }
    matches.forEach((name) => found.add(name));
  }
  return new Map([...all].filter(([name]) => found.has(name)));
}

/** A pattern in which * stands for any characters, and ? for one. */
function toRegExp(pattern) {
  const escaped = pattern.replace(/[.+^${}()|[\]\\]/g, "\\$&");
  return new RegExp(`^${escaped.replaceAll("*", ".*").replaceAll("?", ".")}$`);
}

function replaceBy(replacement) {
  return (value) => {
    if (String(value.shape) !== String(replacement.shape)) {
      throw new ConfigError(`cannot patch a value of shape [${value.shape}] with one of shape [${replacement.shape}]. `
        + "Record the replacement on inputs of the same lengths.");
    }
    return replacement;
  };
}

/** An edit for a `heads` probe [B,H,Q,E]: set these heads to 0. */
export function withoutHead(...heads) {
  return (value) => {
    const [B, H] = value.shape, changed = new Tensor(value.shape, value.data.slice());
    for (let b = 0; b < B; b++) for (const h of heads) changed.matrix(b * H + h).fill(0);
    return changed;
  };
}
