// All about one part of a model: its equation, what goes in and comes out, what it is made of, and its code.

import {h, fill, number} from "../dom.js";
import {segmented, select} from "../controls.js";
import {heatmap} from "../heatmap.js";
import {readable} from "../tokens.js";
import {listing} from "./pythoncode.js";

const PROBES = {q: "queries", k: "keys", v: "values", scores: "scores before the softmax", weights: "attention weights",
  heads: "what each head brings", update: "what the sub-layer adds", stream: "the stream that goes on",
  hidden: "the hidden layer", embedded: "the embedded tokens", logits: "the logits", pooled: "the pooled vector",
  router: "the router's probabilities", load: "the share of each expert", balance: "the balance loss"};

/** PART -> what the panel shows. given: {part: of the tree, go(name), crumbs: [{name, title}], off: element or null} */
export function partPanel(answer, {part, go, crumbs, off}) {
  const isProbe = answer.kind === "Probe";
  return [
    breadcrumb(crumbs, go),
    h("h2", {tabindex: -1, class: "part-title"}, answer.title || answer.kind),
    h("p", {class: "row facts"}, h("span", {class: "pill mono"}, answer.kind),
      part && h("span", {class: "pill"}, parametersTold(part.parameters)),
      h("span", {class: "small dim mono name"}, answer.name)),
    off,
    answer.equation && h("p", {class: "equation"}, answer.equation),
    documentation(answer.doc, answer.equation),
    inside(part, go),
    !isProbe && values("Goes in", answer.inputs),
    values(isProbe ? "The value" : "Comes out", answer.outputs),
    parameters(answer.parameters),
    answer.source && code(answer.source),
  ];
}

function code(source) {
  return h("section", {}, h("h3", {}, "The code"),
    h("p", {class: "small dim mono"}, `${source.file}, line ${source.line}`), listing(source));
}

export function parametersTold(count) {
  return count ? `${count.toLocaleString("en")} parameters` : "no parameters";
}

/** The way from the whole model down to a part, as links. */
export function breadcrumb(crumbs, go) {
  const link = ({name, title}) => h("button", {type: "button", class: "button link", onclick: () => go(name)}, title);
  const last = ({title}) => h("span", {aria: {current: "true"}}, title);
  const steps = crumbs.map((crumb, i) => h("li", {}, i < crumbs.length - 1 ? link(crumb) : last(crumb)));
  return h("nav", {class: "crumbs", aria: {label: "Where this part is"}}, h("ol", {}, steps));
}

/** A docstring: prose as paragraphs, drawings and formulas (indented, or with lines of boxes) as they stand. */
function documentation(doc, equation) {
  if (!doc) return null;
  const pieces = doc.trim().split(/\n\s*\n/).filter((piece) => piece.trim());
  if (equation && pieces[0] && sameFormula(pieces[0], equation)) pieces.shift();
  const prose = (piece) => h("p", {}, piece.replace(/\s*\n\s*/g, " ").trim());
  const asItStands = (piece) => h("pre", {class: "box"}, piece.replace(/\s+$/, ""));
  return h("div", {class: "doc"}, pieces.map((piece) => (isDrawing(piece) ? asItStands(piece) : prose(piece))));
}

function isDrawing(piece) {
  const further = piece.split("\n").slice(1).join("\n");
  return /[─│┌└├┬▶◀┐┘■]/.test(piece) || /^ {4}/.test(piece) || /\S {3,}\S/.test(further);
}

// The equation of a part is often the first line of its docstring, sometimes with other words after the sign "=".
function sameFormula(piece, equation) {
  const left = (told) => told.split("=")[0].trim();
  return piece.includes("=") && equation.includes("=") && left(piece) === left(equation);
}

function inside(part, go) {
  const children = part?.parts ?? [];
  if (!children.length) return null;
  const [probes, modules] = [true, false].map((is) => children.filter((child) => (child.kind === "Probe") === is));
  const list = (these) => h("ul", {class: "children"}, these.map((child) => h("li", {}, childLink(child, go))));
  return h("section", {}, h("h3", {}, "Inside"), modules.length > 0 && list(modules),
    probes.length > 0 && [h("p", {class: "small dim"}, "Values that can be looked at:"), list(probes)]);
}

function childLink({name, kind, title}, go) {
  const last = name.split(".").at(-1);
  const isProbe = kind === "Probe";
  return h("button", {type: "button", class: `inside${isProbe ? " probe" : ""}`, onclick: () => go(name)},
    h("span", {class: "what"}, isProbe ? PROBES[last] ?? title : title || last),
    h("span", {class: "small dim mono"}, isProbe ? last : `${last}: ${kind}`));
}

function parameters(given) {
  const entries = Object.entries(given ?? {});
  if (!entries.length) return null;
  const count = (sizes) => sizes.reduce((a, b) => a * b, 1).toLocaleString("en");
  const rows = entries.map(([name, sizes]) => h("tr", {}, h("th", {scope: "row", class: "mono"}, name),
    h("td", {}, sizes.join(" × ") || "1"), h("td", {class: "dim"}, count(sizes))));
  return h("section", {}, h("h3", {}, "Parameters"),
    h("div", {class: "box"}, h("table", {class: "parameters"}, h("tbody", {}, rows))));
}

function values(title, given) {
  if (!given?.length) return null;
  return h("section", {}, h("h3", {}, title), given.map(valueCard));
}

/** A VALUE: its name and axes, its spread, what is odd about it, and a picture of its numbers. */
function valueCard(value) {
  const axes = (value.axes ?? []).map(([name, size]) => `${name} ${size}`).join(" × ");
  const place = h("div", {});
  const names = Object.keys(value.slices ?? {});
  const draw = (name) => fill(place, picture(value, name));
  if (names.length) draw(names[0]);
  return h("figure", {class: "value"},
    h("figcaption", {}, h("span", {class: "mono what"}, value.name), h("span", {class: "mono axes"}, `[${axes}]`),
      h("span", {class: "dim"}, spread(value))),
    (value.flags ?? []).map((flag) => h("p", {class: "flag"}, `⚠ ${flag}`)),
    names.length > 1 && sliceChoice(names, draw), place,
    value.shown && h("p", {class: "small dim"}, `Shown: ${value.shown}.`));
}

function spread({mean, std, min, max}) {
  if (!Number.isFinite(mean)) return "";
  return `mean ${number(mean)} ± ${number(std)}, from ${number(min)} to ${number(max)}`;
}

function sliceChoice(names, draw) {
  const options = names.map((name) => ({value: name, label: name.replace(/^head /, "") || "all"}));
  const given = {label: names[0].startsWith("head") ? "head" : "show", options, value: names[0], onchange: draw};
  return (names.length <= 8 ? segmented(given) : select(given)).element;
}

function picture(value, name) {
  const numbers = value.slices[name];
  if (!numbers?.length || !Array.isArray(numbers[0])) return null;
  const wide = numbers[0].length;
  const rows = value.rows?.length === numbers.length ? value.rows : numbers.map((_, q) => String(q));
  const named = value.columns?.length === wide;
  const ticks = Array.from({length: wide}, (_, k) => (k % 8 ? "·" : String(k)));
  const sizes = numbers.flat().filter(Number.isFinite).map(Math.abs);
  const place = (k) => (named ? `\u2068${readable(value.columns[k])}\u2069` : `column ${k}`);
  return heatmap({rows, columns: named ? value.columns : ticks, label: `${value.name}${name ? `, ${name}` : ""}`,
    at: (q, k) => numbers[q][k], row: (q) => Float32Array.from(numbers[q], (number) => number ?? NaN),
    signed: numbers.some((row) => row.some((number) => number < 0)),
    max: sizes.reduce((most, size) => Math.max(most, size), 0) || 1,
    cell: named ? undefined : rows.length > 40 ? 8 : wide > 12 ? 13 : 22,
    describe: (q, k) => `\u2068${readable(rows[q])}\u2069, ${place(k)}: ${number(numbers[q][k])}`}).element;
}
