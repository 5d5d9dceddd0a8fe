// Two probabilities for each token: a ring for the first, a square for the second, a line from one to the other.
import {h, percent, s} from "../dom.js";
import {readable} from "../tokens.js";
import {asNumbers} from "./outcome.js";

const STEP = 34, LEFT = 46, RIGHT = 40, TOP = 10, HEIGHT = 120; // pixels
const LONGEST = 10; // signs of a label

/** tokens: strings; first, second: probabilities or null; names: of the two. A figure that scrolls in its own box. */
export function pairedChart({tokens, first, second, names, label}) {
  const faces = tokens.map((token) => readable(token, LONGEST));
  const below = 26 + 5.5 * Math.max(0, ...faces.map((face) => [...face].length));
  const width = LEFT + STEP * tokens.length + RIGHT, height = TOP + HEIGHT + below;
  const drawing = s("svg", {class: "paired", viewBox: `0 0 ${width} ${height}`, width, height, role: "img",
                            aria: {label: summary(label, tokens, first, second, names)}},
    [0, 0.5, 1].map((p) => gridline(p, width)),
    faces.map((face, i) => column(face, first[i] ?? null, second[i] ?? null, LEFT + STEP * (i + 0.5))));
  return h("figure", {class: "drawn"}, h("figcaption", {class: "small dim"}, label, " ", legend(names)),
    h("div", {class: "box", tabindex: 0, role: "group", aria: {label}}, drawing),
    asNumbers(["token", ...names], faces.map((face, i) => [face, told(first[i]), told(second[i])])));
}

const told = (p) => (p === null || p === undefined ? "–" : percent(p));
const heightOf = (p) => TOP + HEIGHT * (1 - p);

function gridline(p, width) {
  return s("g", {}, s("line", {class: "grid", x1: LEFT, x2: width - RIGHT, y1: heightOf(p), y2: heightOf(p)}),
    s("text", {x: LEFT - 6, y: heightOf(p) + 4, "text-anchor": "end"}, percent(p)));
}

function column(face, first, second, x) {
  const [ring, square] = [first !== null, second !== null];
  return s("g", {}, s("title", {}, `${face}: ${told(first)} → ${told(second)}`),
    ring && square && s("line", {class: "join", x1: x, x2: x, y1: heightOf(first), y2: heightOf(second)}),
    ring && s("circle", {class: "first", cx: x, cy: heightOf(first), r: 5.5}),
    square && s("rect", {class: "second", x: x - 3.5, y: heightOf(second) - 3.5, width: 7, height: 7}),
    s("text", {class: "token", transform: `translate(${x - 3} ${TOP + HEIGHT + 16}) rotate(50)`}, face));
}

function legend([first, second]) {
  const sign = (name, face) => h("span", {class: name, aria: {hidden: "true"}}, face);
  return h("span", {class: "paired-legend"}, sign("first", "○"), ` ${first}  `, sign("second", "■"), ` ${second}`);
}

/** The chart in a sentence: how many tokens lost, and which one most. */
function summary(label, tokens, first, second, names) {
  const change = tokens.map((_, i) => (second[i] ?? 0) - (first[i] ?? 0));
  const worst = change.indexOf(Math.min(...change));
  const lost = change.filter((value) => value < -0.01).length;
  const most = lost ? ` Most of all ${tokens[worst]}: ${told(first[worst])} to ${told(second[worst])}.` : "";
  return `${label} ${lost} of ${tokens.length} are less likely in “${names[1]}” than in “${names[0]}”.${most}`;
}
