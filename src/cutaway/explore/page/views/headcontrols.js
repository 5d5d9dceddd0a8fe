// Controls for the attention to show: kind, layer and head. The choice is in the state, shared with the attention view.
import {fill, h, percent} from "../dom.js";
import {segmented, select} from "../controls.js";
import {axesOf, matrixOf, meanOf, nameOf} from "../matrix.js";
import {readable} from "../tokens.js";

const MEAN = "mean"; // in the state, instead of a head's number
const MAX_SEGMENTS = 8; // a longer list becomes a drop-down

/** {kind, title, layer, head}: the choice in the state; defaults replace what the run does not have. */
export function choiceOf(run, state) {
  const attention = (kind) => run.attention.find((each) => each.kind === kind);
  const found = attention(state.kind) ?? attention("cross") ?? run.attention[0];
  const layer = isIndex(state.layer, found.layers) ? state.layer : found.layers - 1;
  const head = state.head === MEAN || isIndex(state.head, found.heads) ? state.head : 0;
  return {kind: found.kind, title: found.title, layer, head};
}

const isIndex = (value, count) => Number.isInteger(value) && value >= 0 && value < count;

/** "Cross-attention, layer 1, head 2" */
export function choiceTitle({title, layer, head}) {
  return `${title}, layer ${layer}, ${head === MEAN ? "mean of all heads" : `head ${head}`}`;
}

/** {element, show(run, state)} */
export function headControls(context) {
  const element = h("div", {class: "row head-choice"});
  let controls = null, drawn = null;
  const show = (run, state) => {
    const choice = choiceOf(run, state);
    const wanted = JSON.stringify([run.attention, choice.kind]);
    if (wanted !== drawn) {
      [controls, drawn] = [createControls(run, choice, context.state.set), wanted];
      fill(element, controls.map((each) => each?.element));
    }
    ["kind", "layer", "head"].forEach((name, i) => controls[i]?.set(choice[name]));
  };
  return {element, show};
}

function createControls(run, choice, set) {
  const {layers, heads} = run.attention.find((each) => each.kind === choice.kind);
  const kinds = run.attention.map((each) => ({value: each.kind, label: each.title}));
  const kind = {label: "attention", options: kinds, onchange: (value) => set({kind: value, layer: null, head: null})};
  const layer = {label: "layer", options: numbers(layers), onchange: (value) => set({kind: choice.kind, layer: value})};
  const head = {label: "head", options: [...numbers(heads), {value: MEAN, label: "mean"}],
                onchange: (value) => set({kind: choice.kind, head: value})};
  return [kinds.length > 1 ? select(kind) : null, segmentedOrSelect(layer), segmentedOrSelect(head)];
}

const numbers = (count) => Array.from({length: count}, (_, value) => ({value, label: String(value)}));
const segmentedOrSelect = (control) => (control.options.length > MAX_SEGMENTS + 1 ? select : segmented)(control);

/** {rows, columns, at(q, k), row(q)} of the chosen attention in a trace or snapshot; null if it does not have it. */
export function weightsOf(trace, {kind, layer, head}) {
  const matrix = matrixOf(trace, nameOf(kind, layer));
  if (!matrix) return null;
  const [rows, columns] = axesOf(trace, kind);
  const [weights, which] = head === MEAN ? [meanOf(matrix), 0] : [matrix, head];
  return {rows, columns, at: (q, k) => weights.at(which, q, k), row: (q) => weights.row(which, q)};
}

/** Describes one cell of a heat map: "chat → cat: 93 %". */
export function cellText({rows, columns, at}, format = percent) {
  return (q, k) => `\u2068${readable(rows[q])}\u2069 → \u2068${readable(columns[k])}\u2069: ${format(at(q, k))}`;
}
