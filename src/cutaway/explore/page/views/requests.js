// Requests of a view. Only the answer to the latest request is used, and traces are cached.
import {h} from "../dom.js";
import {answerKey} from "../source.js";

const CACHE_SIZE = 40;
const cache = new Map();

/** latest()(signal => promise): aborts the previous request; null for the answer to an outdated one. */
export function latest() {
  let newest = null;
  return async (send) => {
    newest?.abort();
    const mine = newest = new AbortController();
    try {
      const answer = await send(mine.signal);
      return mine === newest ? answer : null;
    } catch (error) {
      if (mine.signal.aborted) return null;
      throw error;
    }
  };
}

/** A trace, from the cache if possible. */
export async function fetchTrace(source, request, signal) {
  const name = answerKey("trace", request);
  if (!cache.has(name)) store(name, await source.trace(request, signal));
  return cache.get(name);
}

function store(name, answer) {
  cache.set(name, answer);
  if (cache.size > CACHE_SIZE) cache.delete(cache.keys().next().value);
}

/** Change the state. In an exported file, only if the trace for the new state was recorded. */
export async function trySet(context, patch, onError) {
  try {
    if (context.source.recorded) await fetchTrace(context.source, context.request(patch));
    context.state.set(patch);
  } catch (error) {
    onError(error);
  }
}

/** An error handler for optional answers: null in an exported file, which may not have them. */
export function unlessRecorded(source) {
  return (error) => {
    if (!source.recorded) throw error;
    return null;
  };
}

export const waitingLine = (text) => h("p", {class: "waiting-line"}, text);

export const errorLine = (error) => h("p", {class: "note", role: "alert"}, error.message);
