// The details of one part of a model: equation, sub-parts, inputs, output, parameters and code.

import {h, fill, number} from "../dom.js";
import {segmented, select} from "../controls.js";
import {heatmap} from "../heatmap.js";
import {readable} from "../tokens.js";
import {listing} from "./pythoncode.js";

const PROBES = {q: "queries", k: "keys", v: "values", scores: "scores before the softmax", weights: "attention weights",
  heads: "output of each head", update: "output of the sub-layer", stream: "residual stream after the sub-layer",
  hidden: "hidden layer", embedded: "embedded tokens", logits: "logits", pooled: "pooled vector",
  router: "probabilities of the router", load: "share of tokens per expert", balance: "balance loss"};

/** The content of the panel. part: its node in the tree of parts; go(name): open a part; crumbs: [{name, title}];
    off: an element with the switch, or null. */
export function partPanel(answer, {part, go, crumbs, off}) {
  const isProbe = answer.kind === "Probe";
  return [
    breadcrumb(crumbs, go),
    h("h2", {tabindex: -1, class: "part-title"}, answer.title || answer.kind),
    h("p", {class: "row facts"}, h("span", {class: "pill mono"}, answer.kind),
      part && h("span", {class: "pill"}, parameterCount(part)),
      h("span", {class: "small dim mono name"}, answer.name)),
    off,
    answer.equation && h("p", {class: "equation"}, answer.equation),
    documentation(answer.doc, answer.equation),
    subParts(part, go),
    !isProbe && values("Inputs", answer.inputs),
    values(isProbe ? "Value" : "Output", answer.outputs),
    parameters(answer.parameters),
    answer.source && code(answer.source),
  ];
}

function code(source) {
  return h("section", {}, h("h3", {}, "Code"),
    h("p", {class: "small dim mono"}, `${source.file}, line ${source.line}`), listing(source));
}

/** "398 parameters, and 1,504 shared with Embedding". A shared matrix counts in the first part that has it. */
export function parameterCount({parameters: own, shared, shared_with: owners}) {
  if (!own && !shared) return "no parameters";
  const parts = [own && `${own.toLocaleString("en")} parameters`,
    shared && `${shared.toLocaleString("en")} ${own ? "" : "parameters "}shared with ${owners.join(", ")}`];
  return parts.filter(Boolean).join(", and ");
}

/** The path from the model to a part, as links. */
export function breadcrumb(crumbs, go) {
  const link = ({name, title}) => h("button", {type: "button", class: "button link", onclick: () => go(name)}, title);
  const last = ({title}) => h("span", {aria: {current: "true"}}, title);
  const steps = crumbs.map((crumb, i) => h("li", {}, i < crumbs.length - 1 ? link(crumb) : last(crumb)));
  return h("nav", {class: "crumbs", aria: {label: "Path to this part"}}, h("ol", {}, steps));
}

/** A docstring: text as paragraphs, drawings and formulas as preformatted text. */
function documentation(doc, equation) {
  if (!doc) return null;
  const pieces = doc.trim().split(/\n\s*\n/).filter((piece) => piece.trim());
  if (equation && pieces[0] && sameFormula(pieces[0], equation)) pieces.shift();
  const prose = (piece) => h("p", {}, piece.replace(/\s*\n\s*/g, " ").trim());
  const preformatted = (piece) => h("pre", {class: "box", tabindex: 0}, piece.replace(/\s+$/, ""));
  return h("div", {class: "doc"}, pieces.map((piece) => (isDrawing(piece) ? preformatted(piece) : prose(piece))));
}

function isDrawing(piece) {
  const rest = piece.split("\n").slice(1).join("\n");
  return /[─│┌└├┬▶◀┐┘■]/.test(piece) || /^ {4}/.test(piece) || /\S {3,}\S/.test(rest);
}

// Whether the first line of the docstring is the equation again: the same left side of "=".
function sameFormula(piece, equation) {
  const left = (text) => text.split("=")[0].trim();
  return piece.includes("=") && equation.includes("=") && left(piece) === left(equation);
}

function subParts(part, go) {
  const children = part?.parts ?? [];
  if (!children.length) return null;
  const [probes, modules] = [true, false].map((is) => children.filter((child) => (child.kind === "Probe") === is));
  const list = (these) => h("ul", {class: "children"}, these.map((child) => h("li", {}, childLink(child, go))));
  return h("section", {}, h("h3", {}, "Sub-parts"), modules.length > 0 && list(modules),
    probes.length > 0 && [h("p", {class: "small dim"}, "Recorded values (probes):"), list(probes)]);
}

function childLink({name, kind, title}, go) {
  const last = name.split(".").at(-1);
  const isProbe = kind === "Probe";
  return h("button", {type: "button", class: `inside${isProbe ? " probe" : ""}`, onclick: () => go(name)},
    h("span", {class: "what"}, isProbe ? PROBES[last] ?? title : title || last),
    h("span", {class: "small dim mono"}, isProbe ? last : `${last}: ${kind}`));
}

function parameters(shapes) {
  const entries = Object.entries(shapes ?? {});
  if (!entries.length) return null;
  const count = (sizes) => sizes.reduce((a, b) => a * b, 1).toLocaleString("en");
  const rows = entries.map(([name, sizes]) => h("tr", {}, h("th", {scope: "row", class: "mono"}, name),
    h("td", {}, sizes.join(" × ") || "1"), h("td", {class: "dim"}, count(sizes))));
  return h("section", {}, h("h3", {}, "Parameters"),
    h("div", {class: "box"}, h("table", {class: "parameters"}, h("tbody", {}, rows))));
}

function values(title, list) {
  if (!list?.length) return null;
  return h("section", {}, h("h3", {}, title), list.map(valueCard));
}

/** One value: name, axes, statistics, warnings, and a heat map. */
function valueCard(value) {
  const axes = (value.axes ?? []).map(([name, size]) => `${name} ${size}`).join(" × ");
  const place = h("div", {});
  const names = Object.keys(value.slices ?? {});
  const draw = (name) => fill(place, valueMap(value, name));
  if (names.length) draw(names[0]);
  return h("figure", {class: "value"},
    h("figcaption", {}, h("span", {class: "mono what"}, value.name), h("span", {class: "mono axes"}, `[${axes}]`),
      h("span", {class: "dim"}, statistics(value))),
    (value.flags ?? []).map((flag) => h("p", {class: "flag"}, `⚠ ${flag}`)),
    names.length > 1 && sliceControl(names, draw), place,
    value.shown && h("p", {class: "small dim"}, `Shown: ${value.shown}.`));
}

function statistics({mean, std, min, max}) {
  if (!Number.isFinite(mean)) return "";
  return `mean ${number(mean)} ± ${number(std)}, from ${number(min)} to ${number(max)}`;
}

function sliceControl(names, draw) {
  const options = names.map((name) => ({value: name, label: name.replace(/^head /, "") || "all"}));
  const control = {label: names[0].startsWith("head") ? "head" : "show", options, value: names[0], onchange: draw};
  return (names.length <= 8 ? segmented(control) : select(control)).element;
}

function valueMap(value, name) {
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
