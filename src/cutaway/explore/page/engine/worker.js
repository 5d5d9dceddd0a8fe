// A model in a worker, so that the page never waits for it.
//
//     page                                     worker
//     {id, method, input, options}     ──▶     the same call of a local model
//                                      ◀──     {id, token: [text, step]}, if the call has `onToken`
//     {id, method: "stop"}             ──▶     aborts the call
//                                      ◀──     {id, result} or {id, error}
//
// The first call loads the model. On a server, the worker is a module (worker_module.js). Browsers refuse that in a page
// that was opened from a file, so cutaway.js starts it from a URL made of its own text (`useScript`).

import {ConfigError, CutawayError, DataError, RunError} from "./errors.js";
import {localModel, Model} from "./model.js";
import {separateCallbacks} from "./options.js";
import {Run} from "./run.js";

const ERRORS = {CutawayError, ConfigError, DataError, RunError};
const READY = "ready";
let createWorker = null;

/** Set the function that creates a worker, which has to call `answerCalls`. Without one, there are no workers. */
export function useWorkers(create) {
  createWorker = create;
}

/** Create workers from the text of a classic script. */
export function useScript(text) {
  let url;
  useWorkers(() => new Worker(url ??= URL.createObjectURL(new Blob([text], {type: "text/javascript"}))));
}

// ---- In the page ---------------------------------------------------------------------------------------------------

/**
 * Load the model in a worker.
 * @param {object} files name -> content
 * @param {boolean} isOwned whether the bytes may be moved to the worker, instead of copied
 * @returns {Promise<Model | null>} null: this page cannot start workers
 */
export async function loadInWorker(files, isOwned) {
  const calls = await startCalls();
  if (!calls) return null;
  const transfer = isOwned ? Object.values(files).map(({buffer}) => buffer) : [];
  try {
    const {task, config, labels} = await calls.call("load", files, {}, transfer);
    return new Model({task, config, labels}, (...call) => calls.call(...call), () => calls.close());
  } catch (error) {
    calls.close();
    throw error;
  }
}

/**
 * The calls of a worker that has started, or null: refused by the page's rules (CSP), or by an old browser.
 * @param {(() => Worker) | null} create
 * @returns {Promise<WorkerCalls | null>}
 */
export function startCalls(create = createWorker) {
  if (!create) return null;
  return new Promise((resolve) => {
    const worker = create();
    worker.onmessage = () => resolve(new WorkerCalls(worker));
    worker.onerror = (event) => {
      event.preventDefault();
      worker.terminate();
      resolve(null);
    };
  }).catch(() => null);
}

class WorkerCalls {
  #open = new Map(); // id -> what to do with the messages of a call
  #nextId = 0;
  #ended = null; // why the worker has ended

  constructor(worker) {
    this.worker = worker;
    worker.onmessage = ({data: {id, ...message}}) => this.#open.get(id)?.(message);
    worker.onerror = (event) => {
      event.preventDefault();
      this.#end(`the worker failed: ${event.message}`);
    };
  }

  close() {
    this.#end("the model was closed");
  }

  #end(reason) {
    this.#ended ??= new RunError(`${reason}. Load the model again.`);
    this.worker.terminate();
    for (const receive of [...this.#open.values()]) receive({error: this.#ended});
  }

  async call(method, input, options, transfer = []) {
    if (this.#ended) throw this.#ended;
    const {onToken, signal, others} = separateCallbacks(options), id = this.#nextId++;
    signal?.throwIfAborted();
    let onAbort;
    try {
      return await new Promise((resolve, reject) => {
        const stop = (reason) => {
          this.worker.postMessage({id, method: "stop"});
          reject(reason);
        };
        onAbort = () => stop(signal.reason);
        signal?.addEventListener("abort", onAbort);
        this.#open.set(id, ({token, result, error}) => {
          if (token) callOrStop(onToken, token, stop);
          else if (error) reject(error instanceof Error ? error : restoreError(error));
          else resolve(result);
        });
        this.worker.postMessage({id, method, input, options: others, streams: Boolean(onToken)}, transfer);
      });
    } catch (error) {
      if (error?.name !== "DataCloneError") throw error;
      throw new DataError(`the input or an option cannot be sent to the worker: ${error.message}`);
    } finally {
      this.#open.delete(id);
      signal?.removeEventListener("abort", onAbort);
    }
  }
}

/** An error in the page's function ends the call, as without a worker. */
function callOrStop(onToken, token, stop) {
  try {
    onToken(...token);
  } catch (error) {
    stop(error);
  }
}

function restoreError({name, message}) {
  return ERRORS[name] ? new ERRORS[name](message) : Object.assign(new Error(message), {name});
}

// ---- In the worker -------------------------------------------------------------------------------------------------

/**
 * Answer the calls of a page.
 * @param {(input: any) => Promise<object>} open makes the object that has the methods, from the input of "load"
 */
export function answerCalls(scope = globalThis, open = async (files) => localModel(await Run.load(files))) {
  const running = new Map(); // id -> AbortController
  let target = null;

  async function answer({method, input, options}) {
    if (method !== "load") return target[method](input, options);
    target = await open(input);
    const {task, config, labels} = target;
    return {task, config, labels};
  }

  scope.onmessage = async ({data: {id, method, input, options, streams}}) => {
    if (method === "stop") return running.get(id)?.abort();
    const controller = new AbortController();
    running.set(id, controller);
    const callbacks = {signal: controller.signal};
    if (streams) callbacks.onToken = (...token) => scope.postMessage({id, token}); // only some methods know this option
    try {
      const full = method === "load" ? options : {...options, ...callbacks};
      scope.postMessage({id, result: await answer({method, input, options: full})});
    } catch (error) {
      scope.postMessage({id, error: {name: error.name, message: error.message}});
    } finally {
      running.delete(id);
    }
  };
  scope.postMessage(READY);
}
