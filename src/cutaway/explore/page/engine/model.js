// What `load` returns: a model and what can be done with it. The work is done here or in a worker.

import {ConfigError} from "./errors.js";
import {Classifier, Tagger} from "./classification.js";
import {Embedder} from "./embedder.js";
import {TextGenerator, Translator} from "./generation.js";

const PIPELINES = {translate: Translator, generate: TextGenerator, classify: Classifier, tag: Tagger, embed: Embedder};

export class Model {
  #call;

  /**
   * @param {string} task such as "translation"
   * @param {object} config the content of config.json
   * @param {string[]} labels the names of the classes
   * @param {(method: string, input: any, options: object) => Promise} call
   * @param {() => void} close ends the worker, if there is one
   */
  constructor({task, config, labels}, call, close = () => {}) {
    Object.assign(this, {task, config, labels, close});
    this.#call = call;
  }

  async translate(text, options) {
    return this.#call("translate", text, options);
  }

  async generate(prompt, options) {
    return this.#call("generate", prompt, options);
  }

  async classify(example, options) {
    return this.#call("classify", example, options);
  }

  async tag(text, options) {
    return this.#call("tag", text, options);
  }

  async embed(text, options) {
    return this.#call("embed", text, options);
  }
}

/** A model that computes here. A call is divided into slices (slices.js). */
export function localModel(run) {
  return new Model(run, async (method, input, options) => {
    const Pipeline = PIPELINES[method];
    if (!Pipeline.tasks.includes(run.task)) throw new ConfigError(wrongTaskMessage(method, run.task));
    const result = await new Pipeline(run, input, options).result();
    options?.signal?.throwIfAborted(); // a call that took one slice was perhaps stopped meanwhile
    return result;
  });
}

function wrongTaskMessage(method, task) {
  const possible = Object.keys(PIPELINES).filter((name) => PIPELINES[name].tasks.includes(task));
  return `this model was trained for ${task.replaceAll("_", " ")}, so ${method}() cannot use it. Use `
    + `${possible.map((name) => `${name}()`).join(" or ")}.`;
}
