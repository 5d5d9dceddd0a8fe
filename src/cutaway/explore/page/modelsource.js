// Answers that this page computes itself: the engine in JavaScript runs the model in a worker (live/).

export const DAMAGED = "This page is damaged. Copy it again.";
const NO_HEADS = "This page has no statistics of the heads, because the run has no held-out data.";

/**
 * The models in this page.
 * @param {Document} page has the weights as scripts (#weights-RUN, #weights-RUN-STEP) and the engine (CutawayExplorer)
 * @param {object} data info; runs: {files, parts, gold, heads} of each run
 */
export function embeddedSource(page, {info, runs}) {
  const heads = async (run) => {
    if (!runs[run].heads) throw new Error(NO_HEADS);
    return runs[run].heads;
  };
  const takeWeights = async (run, step) => {
    const script = page.getElementById(step === null ? `weights-${run}` : `weights-${run}-${step}`);
    if (!script) throw new Error(DAMAGED);
    const {textContent} = script;
    script.remove(); // the worker has them now
    return textContent;
  };
  const open = async () => {
    if (!globalThis.CutawayExplorer) throw new Error(DAMAGED);
    return globalThis.CutawayExplorer.openExplorer();
  };
  const answers = answersOf({info, open, describeRun: async (run) => runs[run], weights: takeWeights});
  return {recorded: false, info: async () => info, heads, ...answers};
}

/** The models of a server. Scores and the statistics of heads need its data, so the server computes them. */
export function servedModelSource(server) {
  let answers = null;
  const createWorker = () => new Worker(new URL("live/worker.js", document.baseURI), {type: "module"});
  const open = async () => (await import("./live/index.js")).openExplorer(createWorker);
  const info = async (signal) => {
    const found = await server.info(signal);
    answers = answersOf({info: found, open, describeRun: server.describeRun, weights: server.weights});
    return found;
  };
  const ask = (name) => (...given) => answers[name](...given);
  return {...server, info, trace: ask("trace"), beam: ask("beam"), part: ask("part"), ablations: ask("ablations"),
    why: ask("why"), patching: ask("patching"), patched: ask("patched"), snapshots: ask("snapshots"),
    hasGradients: false};
}

/**
 * @param {object} info see explore/explorer.py
 * @param {() => Promise} open starts the engine
 * @param {(run: number) => Promise<object>} describeRun
 * @param {(run: number, step: number | null) => Promise<string | Uint8Array>} weights a text is base64
 */
function answersOf({info, open, describeRun, weights}) {
  let engine = null;
  const prepared = new Map(); // "RUN" and "RUN STEP" -> promise
  const once = (key, work) => {
    if (!prepared.has(key)) prepared.set(key, work());
    return prepared.get(key);
  };
  const addRun = async (run) => {
    const [{files, parts, gold}, content] = await Promise.all([describeRun(run), weights(run, null)]);
    const description = {info: info.runs[run], parts, gold, files: {...files, "model.safetensors": content}};
    await engine.call("addRun", {number: run, description});
  };
  const addSnapshot = async (run, step) =>
    engine.call("addSnapshot", {number: run, step, weights: await weights(run, step)});
  const prepare = async (run, steps) => {
    engine = await once("engine", open);
    await once(`${run}`, () => addRun(run));
    for (const step of steps) if (step !== null) await once(`${run} ${step}`, () => addSnapshot(run, step));
  };
  const call = (endpoint, stepsOf) => async (request, options) => {
    try {
      await prepare(request.run, stepsOf(request));
      return await engine.call(endpoint, request, options);
    } catch (error) {
      if (!/^(Config|Data|Run)Error$/.test(error.name)) throw error;
      throw new Error(error.message); // a message for the user
    }
  };
  const ask = (endpoint) => {
    const answer = call(endpoint, ({snapshot}) => [snapshot ?? null]);
    return (request, signal) => answer(request, {signal});
  };
  const snapshots = call("snapshots", ({run}) => info.runs[run].snapshots);
  return {trace: ask("trace"), beam: ask("beam"), part: ask("part"), ablations: ask("ablations"), why: ask("why"),
    patching: ask("patching"), patched: ask("patched"),
    snapshots: (request, onLine, signal) => snapshots(request, {onToken: onLine, signal})};
}
