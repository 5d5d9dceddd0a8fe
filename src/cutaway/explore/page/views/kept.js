// What is said wherever attention is drawn of which not all was kept.
import {h, percent} from "../dom.js";

/** A note about a trace's (or a snapshot's) `kept`; null if everything is there. */
export function keptSentence(kept) {
  if (!kept) return null;
  const drawn = `A long input: only the strongest ${kept.per_row} entries of each row are drawn.`;
  const share = `They hold ${percent(kept.mean)} of a row's weight on average, ${percent(kept.least)} at least.`;
  return h("p", {class: "note"}, `${drawn} ${share}`);
}
