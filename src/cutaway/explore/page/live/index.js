// The explorer's answers without a server: the model runs in a worker of this page.
//
//     const explorer = await openExplorer();
//     await explorer.call("addRun", {number: 0, description});
//     const trace = await explorer.call("trace", {text: "The small cat sleeps."}, {signal});

import {answerCalls, startCalls, useScript} from "../engine/worker.js";
import {Explorer} from "./explorer.js";

/** @param {(() => Worker) | undefined} createWorker if the page comes from a server; otherwise its script is used */
export async function openExplorer(createWorker) {
  const calls = await startCalls(createWorker);
  if (calls) {
    await calls.call("load");
    return calls;
  }
  const explorer = new Explorer(); // this page cannot start workers
  return {call: (method, input, options) => explorer[method](input, options)};
}

/** In the worker. */
export function answerExplorerCalls() {
  answerCalls(globalThis, async () => new Explorer());
}

export {useScript};
