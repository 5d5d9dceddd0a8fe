// All heads of one kind of attention as small heat maps: one row per layer, one column per head.
import {fill, h} from "../dom.js";
import {thumbnail} from "../heatmap.js";
import {isHeadOff, matrixOf, nameOf} from "../matrix.js";

const MAX_CELLS = 400000; // more cells are drawn head by head, so that the page stays responsive

/** {element, draw(trace, kind, layers), mark({layer, head, off, roles})}; pick(layer, head, byKey) is called when a
    head is chosen. */
export function thumbnails(pick) {
  const element = h("div", {class: "thumbnails", role: "group", aria: {label: "Heads, one row per layer"}});
  let buttons = [];
  const draw = (trace, kind, layers) => {
    buttons = [];
    const first = matrixOf(trace, nameOf(kind, layers[0]));
    const heads = Math.max(...layers.map((layer) => matrixOf(trace, nameOf(kind, layer)).heads));
    element.style.setProperty("--heads", heads);
    element.style.setProperty("--shape", `${Math.max(1, first.columns)} / ${Math.max(1, first.rows)}`);
    const isSmall = layers.length * heads * first.rows * first.columns <= MAX_CELLS;
    fill(element, layers.map((layer) => layerRow(trace, kind, layer, isSmall, buttons, pick)));
  };
  const mark = ({kind, layer, head, off, roles}) => {
    for (const button of buttons) updateButton(button, {kind, layer, head, off, roles});
    if (!buttons.some((button) => button.tabIndex === 0) && buttons[0]) buttons[0].tabIndex = 0;
  };
  element.addEventListener("keydown", (event) => moveFocus(event, buttons, pick));
  return {element, draw, mark};
}

function layerRow(trace, kind, layer, isSmall, buttons, pick) {
  const matrix = matrixOf(trace, nameOf(kind, layer));
  const row = Array.from({length: matrix.heads}, (_, head) => {
    const button = h("button", {type: "button", class: "thumb", data: {layer, head},
      onclick: () => pick(layer, head, false)});
    const paint = () => button.append(thumbnail({rows: matrix.rows, columns: matrix.columns,
      at: (q, k) => matrix.at(head, q, k),
                                                 row: (q) => matrix.row(head, q), label: ""}));
    if (isSmall) paint();
    else setTimeout(paint);
    return button;
  });
  buttons.push(...row);
  return [h("span", {class: "thumb-layer"}, layer), ...row];
}

function updateButton(button, {kind, layer, head, off, roles}) {
  const mine = {layer: Number(button.dataset.layer), head: Number(button.dataset.head)};
  const chosen = mine.layer === layer && (head === "mean" || mine.head === head);
  const isOff = isHeadOff(off, kind, mine.layer, mine.head);
  const role = roles?.find((row) => row.kind === kind && row.layer === mine.layer && row.head === mine.head);
  const switched = isOff ? ", switched off" : "";
  const label = `layer ${mine.layer}, head ${mine.head}${switched}${role ? `: ${role.role}` : ""}`;
  button.setAttribute("aria-pressed", String(chosen));
  button.setAttribute("aria-label", label);
  button.title = role?.explanation ? `${label}\n${role.explanation}` : label;
  button.classList.toggle("off", isOff);
  button.tabIndex = mine.layer === layer && mine.head === (head === "mean" ? 0 : head) ? 0 : -1;
}

function moveFocus(event, buttons, pick) {
  const step = {ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0]}[event.key];
  const from = document.activeElement?.dataset;
  if (!step || from?.head === undefined) return;
  event.preventDefault();
  event.stopPropagation();
  const [layer, head] = [Number(from.layer) + step[0], Number(from.head) + step[1]];
  const next = buttons.find((button) => Number(button.dataset.layer) === layer && Number(button.dataset.head) === head);
  if (!next) return;
  pick(layer, head, true);
  next.focus();
}
