// Which attention is looked at: kind, layer and head, kept in the state and so shared with the attention view.
import {fill, h, percent} from "../dom.js";
import {segmented, select} from "../controls.js";
import {axesOf, matrixOf, meanOf, nameOf} from "../matrix.js";
import {readable} from "../tokens.js";

const MEAN = "mean"; // in the state, instead of a head's number
const FEW = 8; // from here on a list that opens instead of buttons side by side

/** The choice as it is; what a run does not have is replaced by something that it has. */
export function choiceOf(run, state) {
  const of = (kind) => run.attention.find((each) => each.kind === kind);
  const found = of(state.kind) ?? of("cross") ?? run.attention[0];
  const layer = within(state.layer, found.layers) ? state.layer : found.layers - 1;
  const head = state.head === MEAN || within(state.head, found.heads) ? state.head : 0;
  return {kind: found.kind, title: found.title, layer, head};
}

const within = (value, count) => Number.isInteger(value) && value >= 0 && value < count;

/** "Cross-attention, layer 1, head 2" */
export function choiceTitle({title, layer, head}) {
  return `${title}, layer ${layer}, ${head === MEAN ? "mean over its heads" : `head ${head}`}`;
}

/** {element, show(run, state)}: the controls. */
export function headChoice(context) {
  const element = h("div", {class: "row head-choice"});
  let made = null, ofWhat = null;
  const show = (run, state) => {
    const choice = choiceOf(run, state);
    const what = JSON.stringify([run.attention, choice.kind]);
    if (what !== ofWhat) {
      [made, ofWhat] = [controls(run, choice, context.state.set), what];
      fill(element, made.map((each) => each?.element));
    }
    ["kind", "layer", "head"].forEach((name, i) => made[i]?.set(choice[name]));
  };
  return {element, show};
}

function controls(run, choice, set) {
  const {layers, heads} = run.attention.find((each) => each.kind === choice.kind);
  const kinds = run.attention.map((each) => ({value: each.kind, label: each.title}));
  const kind = {label: "attention", options: kinds, onchange: (value) => set({kind: value, layer: null, head: null})};
  const layer = {label: "layer", options: numbers(layers), onchange: (value) => set({kind: choice.kind, layer: value})};
  const head = {label: "head", options: [...numbers(heads), {value: MEAN, label: "mean"}],
                onchange: (value) => set({kind: choice.kind, head: value})};
  return [kinds.length > 1 ? select(kind) : null, oneOf(layer), oneOf(head)];
}

const numbers = (count) => Array.from({length: count}, (_, value) => ({value, label: String(value)}));
const oneOf = (control) => (control.options.length > FEW + 1 ? select : segmented)(control);

/** {rows, columns, at(q, k)} of the chosen attention of anything with tokens and attention; null if it has none. */
export function weightsOf(trace, {kind, layer, head}) {
  const matrix = matrixOf(trace, nameOf(kind, layer));
  if (!matrix) return null;
  const [rows, columns] = axesOf(trace, kind);
  const [weights, which] = head === MEAN ? [meanOf(matrix), 0] : [matrix, head];
  return {rows, columns, at: (q, k) => weights.at(which, q, k), row: (q) => weights.row(which, q)};
}

/** What a heatmap says of one cell: "chat → cat: 93 %". */
export function cellOf({rows, columns, at}, told = percent) {
  return (q, k) => `\u2068${readable(rows[q])}\u2069 → \u2068${readable(columns[k])}\u2069: ${told(at(q, k))}`;
}
