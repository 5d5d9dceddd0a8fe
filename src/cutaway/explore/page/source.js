// The source of answers: the server of `cutaway explore`, the model in this page, or the answers recorded in a report.

import {DAMAGED, embeddedSource, servedModelSource} from "./modelsource.js";

const NOT_RECORDED = "This was not recorded in this file. Run cutaway explore RUN to see everything.";

/**
 * The source for this page: what is embedded in it (#live or #recorded), or else its server.
 * @param {string | null} engine "browser": the page runs the model that its server has
 */
export async function sourceOf(page, engine = null) {
  const live = page.getElementById("live"), recorded = page.getElementById("recorded");
  if (live) return cacheHeads(embeddedSource(page, await unpack(live.textContent)));
  if (recorded) return cacheHeads(recordedSource(await unpack(recorded.textContent)));
  return cacheHeads(engine === "browser" ? servedModelSource(serverSource()) : serverSource());
}

async function unpack(base64) {
  try {
    const bytes = Uint8Array.from(atob(base64.trim()), (character) => character.charCodeAt(0));
    return await new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).json();
  } catch {
    throw new Error(DAMAGED);
  }
}

/** Requests to the server of this page. */
function serverSource() {
  const get = async (address, signal) => fetchChecked(`api/${address}`, {signal});
  const ask = (endpoint) => async (request, signal) => (await post(endpoint, request, signal)).json();
  const stream = (endpoint) => async (request, onLine, signal) =>
    readLines(await post(endpoint, request, signal), onLine);
  return {
    recorded: false,
    info: async (signal) => (await get("info", signal)).json(),
    heads: async (run, signal) => (await get(`heads?run=${Number(run) || 0}`, signal)).json(),
    trace: ask("trace"), beam: ask("beam"), part: ask("part"), ablations: ask("ablations"), why: ask("why"),
    patching: ask("patching"), patched: ask("patched"), snapshots: stream("snapshots"), score: stream("score"),
    hasGradients: true,
    describeRun: async (run) => (await get(`live?run=${run}`)).json(),
    weights: async (run, step) =>
      new Uint8Array(await (await get(`weights?run=${run}${step === null ? "" : `&snapshot=${step}`}`)).arrayBuffer()),
  };
}

/** Answers from data = {info, answers: {key: answer}}. */
function recordedSource(data) {
  const find = (endpoint, request) => {
    const found = data.answers[answerKey(endpoint, request)];
    if (found === undefined) throw new Error(NOT_RECORDED);
    return found;
  };
  const ask = (endpoint) => async (request) => find(endpoint, request);
  const snapshots = async (request, onLine) => {
    const found = find("snapshots", request);
    for (const line of found) onLine(line);
    return found.at(-1);
  };
  return {
    recorded: true,
    has: (endpoint, request) => answerKey(endpoint, request) in data.answers,
    info: async () => data.info,
    heads: async (run) => find("heads", {run}),
    trace: ask("trace"), beam: ask("beam"), part: ask("part"), ablations: ask("ablations"), snapshots,
  };
}

// The statistics of heads take long and do not change, so they are requested once per run. loadedHeads(run): the
// statistics if they are loaded, else null. has(endpoint, request): whether there is an answer; false only in a file
// with recorded answers.
function cacheHeads(source) {
  const loaded = new Map();
  const heads = async (run, signal) => {
    if (!loaded.has(run)) loaded.set(run, await source.heads(run, signal));
    return loaded.get(run);
  };
  return {has: () => true, ...source, heads, loadedHeads: (run) => loaded.get(run) ?? null};
}

/** The key of a recorded answer: the endpoint and the non-default fields, sorted. recording.py computes the same key. */
export function answerKey(endpoint, request) {
  const fields = Object.entries(request ?? {}).filter(([name, value]) => !isDefault(name, value));
  fields.sort(([a], [b]) => (a < b ? -1 : 1));
  return `${endpoint}\n${JSON.stringify(Object.fromEntries(fields))}`;
}

function isDefault(name, value) {
  return value === null || value === undefined || (Array.isArray(value) && !value.length)
    || (name === "run" && value === 0);
}

function post(endpoint, request, signal) {
  const body = JSON.stringify(request);
  return fetchChecked(`api/${endpoint}`, {method: "POST", headers: {"Content-Type": "application/json"}, body, signal});
}

async function fetchChecked(address, options) {
  let response;
  try {
    response = await fetch(address, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("The server does not answer. Is cutaway explore still running?");
  }
  if (response.ok) return response;
  const body = await response.json().catch(() => null);
  throw new Error(body?.error ?? `The server returned an error (${response.status} ${response.statusText}).`);
}

async function readLines(response, onLine) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  let last = null;
  const take = (text) => {
    if (!text.trim()) return;
    last = JSON.parse(text);
    if (last?.error) throw new Error(last.error);
    onLine(last);
  };
  for (;;) {
    const {value, done} = await reader.read();
    if (done) break;
    const parts = (rest + value).split("\n");
    rest = parts.pop();
    parts.forEach(take);
  }
  take(rest);
  return last;
}
