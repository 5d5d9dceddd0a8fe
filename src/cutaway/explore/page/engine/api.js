// Use a trained model in a page or in Node: text in, text out.
//
//     const model = await load("./");                            // a folder: a web export or a run
//     const {text} = await model.translate("The small cat sleeps.");
//
// cutaway.d.ts describes every function, option and result.

import {ConfigError, CutawayError, DataError, RunError} from "./errors.js";
import {localModel} from "./model.js";
import {Run} from "./run.js";
import {fetchFolder, givenFiles} from "./run_files.js";
import {answerCalls, loadInWorker, useScript} from "./worker.js";

/**
 * @param {string | URL | object} source a folder, or file name -> content; without it, what model.js has set
 * @param {{worker?: boolean}} options worker: compute in a worker if the page can start one (default: true)
 */
export async function load(source, {worker = true} = {}) {
  const isFolder = typeof source === "string" || source instanceof URL;
  const files = isFolder ? await fetchFolder(String(source)) : givenFiles(source);
  return (worker && await loadInWorker(files, isFolder)) || loadHere(files);
}

async function loadHere(files) {
  const run = await Run.load(files), model = localModel(run);
  // the browser compiles functions while they run; without this, the first long text would stop the page for too long
  if (run.tokenizer) for (let i = 0; i < 3; i++) await model.embed("a b c d e f g h", {cut: true});
  return model;
}

export {ConfigError, CutawayError, DataError, RunError, answerCalls, useScript};
