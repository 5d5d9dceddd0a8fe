// Questions to the source beside the one that the shell asks: only the newest counts, and none is asked twice.
import {h} from "../dom.js";
import {key} from "../source.js";

const KEPT = 40;
const answers = new Map();

/** latest()(signal => promise): ends the question before, gives null for one that was overtaken. */
export function latest() {
  let newest = null;
  return async (ask) => {
    newest?.abort();
    const mine = newest = new AbortController();
    try {
      const answer = await ask(mine.signal);
      return mine === newest ? answer : null;
    } catch (error) {
      if (mine.signal.aborted) return null;
      throw error;
    }
  };
}

/** A trace, from memory if it was asked for lately. */
export async function traced(source, request, signal) {
  const name = key("trace", request);
  if (!answers.has(name)) remember(name, await source.trace(request, signal));
  return answers.get(name);
}

function remember(name, answer) {
  answers.set(name, answer);
  if (answers.size > KEPT) answers.delete(answers.keys().next().value);
}

/** Change the state; in a recorded file only if that was recorded, so that nobody is left with an empty page. */
export async function venture(context, patch, onError) {
  try {
    if (context.source.recorded) await traced(context.source, context.request(patch));
    context.state.set(patch);
  } catch (error) {
    onError(error);
  }
}

/** A recorded file lacks some answers that would be good to have: there null takes their place. */
export function unlessRecorded(source) {
  return (error) => {
    if (!source.recorded) throw error;
    return null;
  };
}

/** A line that says that something is being worked out. */
export const waiting = (text) => h("p", {class: "waiting-line"}, text);

/** A line that says what went wrong, in place of what was asked for. */
export const trouble = (error) => h("p", {class: "note", role: "alert"}, error.message);
