// Where answers come from: a running `cutaway explore`, or the answers recorded in an exported file.

const NOT_RECORDED = "This file holds recorded views only, and this one is not among them: "
  + "cutaway explore RUN shows everything.";

/** The source that belongs to this page: the answers embedded in it (#recorded, JSON or packed by gzip), else its
    server. */
export async function sourceOf(page) {
  const embedded = page.getElementById("recorded");
  if (!embedded) return live();
  return recorded(embedded.type === "application/gzip" ? await unpacked(embedded.textContent)
    : JSON.parse(embedded.textContent));
}

async function unpacked(base64) {
  const bytes = Uint8Array.from(atob(base64.trim()), (sign) => sign.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).json();
}

/** Ask the server that this page came from. */
export function live() {
  const ask = (endpoint) => async (request, signal) => (await post(endpoint, request, signal)).json();
  const stream = (endpoint) => async (request, onLine, signal) => lines(await post(endpoint, request, signal), onLine);
  return remembering({
    recorded: false,
    info: async (signal) => (await answer("api/info", {signal})).json(),
    heads: async (run, signal) => (await answer(`api/heads?run=${Number(run) || 0}`, {signal})).json(),
    trace: ask("trace"), beam: ask("beam"), part: ask("part"), ablations: ask("ablations"),
    snapshots: stream("snapshots"), score: stream("score"),
  });
}

/** Answer from data = {info, answers: {key: answer}}. */
export function recorded(data) {
  const find = (endpoint, request) => {
    const found = data.answers[key(endpoint, request)];
    if (found === undefined) throw new Error(NOT_RECORDED);
    return found;
  };
  const ask = (endpoint) => async (request) => find(endpoint, request);
  const stream = (endpoint) => async (request, onLine) => {
    const found = find(endpoint, request);
    for (const line of found) onLine(line);
    return found.at(-1);
  };
  return remembering({
    recorded: true,
    info: async () => data.info,
    heads: async (run) => find("heads", {run}),
    trace: ask("trace"), beam: ask("beam"), part: ask("part"), ablations: ask("ablations"),
    snapshots: stream("snapshots"), score: stream("score"),
  });
}

// Roles of heads take the server long and never change: asked once a run. headsSeen(run) gives them if they are here,
// or null.
function remembering(source) {
  const seen = new Map();
  const heads = async (run, signal) => {
    if (!seen.has(run)) seen.set(run, await source.heads(run, signal));
    return seen.get(run);
  };
  return {...source, heads, headsSeen: (run) => seen.get(run) ?? null};
}

/** The name under which an answer is recorded: endpoint, then the request without what is empty, keys in order. */
export function key(endpoint, request) {
  const said = Object.entries(request ?? {}).filter(([name, value]) => !empty(name, value));
  said.sort(([a], [b]) => (a < b ? -1 : 1));
  return `${endpoint}\n${JSON.stringify(Object.fromEntries(said))}`;
}

function empty(name, value) {
  return value === null || value === undefined || (Array.isArray(value) && !value.length)
    || (name === "run" && value === 0);
}

function post(endpoint, request, signal) {
  const body = JSON.stringify(request);
  return answer(`api/${endpoint}`, {method: "POST", headers: {"Content-Type": "application/json"}, body, signal});
}

async function answer(address, options) {
  let response;
  try {
    response = await fetch(address, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("The server does not answer. Is cutaway explore still running?");
  }
  if (response.ok) return response;
  const told = await response.json().catch(() => null);
  throw new Error(told?.error ?? `The server refused this (${response.status} ${response.statusText}).`);
}

async function lines(response, onLine) {
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
