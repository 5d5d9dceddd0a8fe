// Two probabilities for each token: a circle for the first, a square for the second, and a line between them.
import {h, percent, s} from "../dom.js";
import {readable} from "../tokens.js";
import {numbersTable} from "./outputs.js";

const STEP = 34, LEFT = 46, RIGHT = 40, TOP = 10, HEIGHT = 120; // pixels
const MAX_LABEL = 10; // characters

/** tokens: strings; first, second: probabilities or null; names: of the two. The figure scrolls inside its box. */
export function pairedChart({tokens, first, second, names, label}) {
  const labels = tokens.map((token) => readable(token, MAX_LABEL));
  const below = 26 + 5.5 * Math.max(0, ...labels.map((text) => [...text].length));
  const width = LEFT + STEP * tokens.length + RIGHT, height = TOP + HEIGHT + below;
  const chart = s("svg", {class: "paired", viewBox: `0 0 ${width} ${height}`, width, height, role: "img",
                          aria: {label: summary(label, tokens, first, second, names)}},
    [0, 0.5, 1].map((p) => gridline(p, width)),
    labels.map((text, i) => column(text, first[i] ?? null, second[i] ?? null, LEFT + STEP * (i + 0.5))));
  return h("figure", {class: "drawn"}, h("figcaption", {class: "small dim"}, label, " ", legend(names)),
    h("div", {class: "box", tabindex: 0, role: "group", aria: {label}}, chart),
    numbersTable(["token", ...names], labels.map((text, i) => [text, percent(first[i]), percent(second[i])])));
}

const heightOf = (p) => TOP + HEIGHT * (1 - p);

function gridline(p, width) {
  return s("g", {}, s("line", {class: "grid", x1: LEFT, x2: width - RIGHT, y1: heightOf(p), y2: heightOf(p)}),
    s("text", {x: LEFT - 6, y: heightOf(p) + 4, "text-anchor": "end"}, percent(p)));
}

function column(label, first, second, x) {
  const [hasFirst, hasSecond] = [first !== null, second !== null];
  return s("g", {}, s("title", {}, `${label}: ${percent(first)} → ${percent(second)}`),
    hasFirst && hasSecond && s("line", {class: "join", x1: x, x2: x, y1: heightOf(first), y2: heightOf(second)}),
    hasFirst && s("circle", {class: "first", cx: x, cy: heightOf(first), r: 5.5}),
    hasSecond && s("rect", {class: "second", x: x - 3.5, y: heightOf(second) - 3.5, width: 7, height: 7}),
    s("text", {class: "token", transform: `translate(${x - 3} ${TOP + HEIGHT + 16}) rotate(50)`}, label));
}

function legend([first, second]) {
  const symbol = (name, text) => h("span", {class: name, aria: {hidden: "true"}}, text);
  return h("span", {class: "paired-legend"}, symbol("first", "○"), ` ${first}  `, symbol("second", "■"), ` ${second}`);
}

/** The chart in a sentence, for screen readers. */
function summary(label, tokens, first, second, names) {
  const change = tokens.map((_, i) => (second[i] ?? 0) - (first[i] ?? 0));
  const worst = change.indexOf(Math.min(...change));
  const lost = change.filter((value) => value < -0.01).length;
  const most = lost ? ` The largest loss is at ${tokens[worst]}: ${percent(first[worst])} to ${percent(second[worst])}.`
    : "";
  return `${label} ${lost} of ${tokens.length} are less probable in “${names[1]}” than in “${names[0]}”.${most}`;
}
