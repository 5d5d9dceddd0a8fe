// A note for long inputs: the trace has only their largest attention weights.
import {h, percent} from "../dom.js";

/** A note about the field `kept` of a trace or snapshot; null if it has all weights. */
export function truncationNote(kept) {
  if (!kept) return null;
  const drawn = `This input is long: only the ${kept.per_row} largest weights of each row are drawn.`;
  const share = `They have ${percent(kept.mean)} of a row's weight on average, and at least ${percent(kept.least)}.`;
  return h("p", {class: "note"}, `${drawn} ${share}`);
}
