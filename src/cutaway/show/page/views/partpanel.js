// All about one part of a model: its equation, what goes in and comes out, what it is made of, and its code.

import {h, fill, number} from "../dom.js";
import {segmented, select} from "../controls.js";
import {heatmap} from "../heatmap.js";
import {readable} from "../tokens.js";
import {listing} from "./pythoncode.js";

const PROBES = {q: "queries", k: "keys", v: "values", scores: "scores before the softmax", weights: "attention weights",
  heads: "what each head brings", update: "what the sub-layer adds",
  stream: "the stream that goes on", hidden: "the hidden layer", embedded: "the embedded tokens", logits: "the logits",
    pooled: "the pooled vector", router: "the router's probabilities",
  load: "the share of each expert", balance: "the balance loss"};

/** PART -> what the panel shows. given: {part: of the tree, go(name), crumbs: [{name, title}], off: element or null} */
export function partPanel(answer, {part, go, crumbs, off}) {
  return [
    breadcrumb(crumbs, go),
    h("h2", {tabindex: -1, class: "part-title"}, titleOf(answer, crumbs)),
    h("p", {class: "row facts"}, h("span", {class: "pill mono"}, answer.kind), part && h("span", {class: "pill"},
      parametersTold(part.parameters)), h("span", {class: "small dim mono name"}, answer.name || "the whole model")),
    off,
    answer.equation && h("p", {class: "equation"}, answer.equation),
    documentation(answer.doc, answer.equation),
    inside(part, go),
    answer.kind !== "Probe" && values("Goes in", answer.inputs),
    values(answer.kind === "Probe" ? "The value" : "Comes out", answer.outputs),
    parameters(answer.parameters),
    answer.source && h("section", {}, h("h3", {}, "The code"), h("p", {class: "small dim mono"},
      `${answer.source.file}, line ${answer.source.line}`), listing(answer.source)),
  ];
}

function titleOf(answer, crumbs) {
  return answer.title || crumbs.at(-1)?.title || answer.kind;
}

export function parametersTold(count) {
  return count ? `${count.toLocaleString("en")} parameters` : "no parameters";
}

export function breadcrumb(crumbs, go) {
  return h("nav", {class: "crumbs", aria: {label: "Where this part is"}},
    h("ol", {}, crumbs.map((crumb, i) => h("li", {},
    i < crumbs.length - 1 ? h("button", {type: "button", class: "button link", onclick: () => go(crumb.name)},
      crumb.title) : h("span", {aria: {current: "true"}}, crumb.title)))));
}

/** A docstring: prose as paragraphs, drawings and formulas (indented, or with lines of boxes) as they stand. */
function documentation(doc, equation) {
  if (!doc) return null;
  const pieces = doc.trim().split(/\n\s*\n/).filter((piece) => piece.trim());
  if (equation && pieces[0] && sameFormula(pieces[0], equation)) pieces.shift();
  const drawn = (piece) => /[─│┌└├┬▶◀┐┘■]/.test(piece) || /^ {4}/.test(piece)
    || /\S {3,}\S/.test(piece.split("\n").slice(1).join("\n"));
  return h("div", {class: "doc"},
    pieces.map((piece) => (drawn(piece) ? h("pre", {class: "box"}, piece.replace(/\s+$/, ""))
    : h("p", {}, piece.replace(/\s*\n\s*/g, " ").trim()))));
}

// The equation of a part is often the first line of its docstring, sometimes in other words after the sign "=".
function sameFormula(piece, equation) {
  const left = (told) => told.split("=")[0].trim();
  return piece.trim() === equation.trim() || (piece.includes("=") && equation.includes("=") && !piece.includes("\n\n")
    && left(piece) === left(equation));
}

// Lists of modules are no parts of their own: what they hold is shown in their place.
export function childrenOf(part) {
  return (part?.parts ?? []).flatMap((child) => (child.kind === "ModuleList" ? childrenOf(child)
    : [child])).filter((child) => child.kind !== "Identity");
}

function inside(part, go) {
  const children = childrenOf(part);
  if (!children.length) return null;
  const last = (name) => name.split(".").at(-1);
  const link = (child) => h("li", {},
    h("button", {type: "button", class: `inside ${child.kind === "Probe" ? "probe" : ""}`,
    onclick: () => go(child.name)},
    h("span", {class: "what"}, child.kind === "Probe" ? PROBES[last(child.name)] ?? child.title : child.title
      || last(child.name)),
    h("span", {class: "small dim mono"}, child.kind === "Probe" ? last(child.name)
      : `${last(child.name)}: ${child.kind}`)));
  const [modules, probes] = [children.filter((child) => child.kind !== "Probe"),
    children.filter((child) => child.kind === "Probe")];
  return h("section", {}, h("h3", {}, "Inside"), modules.length > 0 && h("ul", {class: "children"}, modules.map(link)),
    probes.length > 0 && [h("p", {class: "small dim"}, "Values that can be looked at:"), h("ul", {class: "children"},
      probes.map(link))]);
}

function parameters(given) {
  const rows = Object.entries(given ?? {});
  if (!rows.length) return null;
  const shape = (sizes) => (sizes.length ? sizes.join(" × ") : "1");
  return h("section", {}, h("h3", {}, "Parameters"), h("div", {class: "box"}, h("table", {class: "parameters"},
    h("tbody", {}, rows.map(([name, sizes]) => h("tr", {},
    h("th", {scope: "row", class: "mono"}, name), h("td", {}, shape(sizes)),
      h("td", {class: "dim"}, sizes.reduce((a, b) => a * b, 1).toLocaleString("en"))))))));
}

function values(title, given) {
  if (!given?.length) return null;
  return h("section", {}, h("h3", {}, title), given.map(valueCard));
}

/** A VALUE: its name and axes, its spread, what is odd about it, and a picture of its numbers. */
function valueCard(value) {
  const axes = (value.axes ?? []).map(([name, size]) => `${name} ${size}`).join(" × ");
  const figures = value.mean === null || value.mean === undefined ? null
    : `mean ${number(value.mean)} ± ${number(value.std)}, from ${number(value.min)} to ${number(value.max)}`;
  const place = h("div", {});
  const names = Object.keys(value.slices ?? {});
  const draw = (name) => fill(place, picture(value, name));
  if (names.length) draw(names[0]);
  const options = names.map((name) => ({value: name, label: name.replace(/^head /, "") || "all"}));
  const choice = names.length < 2 ? null : (names.length <= 8 ? segmented : select)({label: names[0].startsWith("head")
    ? "head" : "show", options, value: names[0], onchange: draw});
  return h("figure", {class: "value"},
    h("figcaption", {}, h("span", {class: "mono what"}, value.name), h("span", {class: "mono axes"}, `[${axes}]`),
      figures && h("span", {class: "dim"}, figures)),
    (value.flags ?? []).map((flag) => h("p", {class: "flag"}, `⚠ ${flag}`)), choice?.element, place, value.shown
      && h("p", {class: "small dim"}, `Shown: ${value.shown}.`));
}

function picture(value, name) {
  const numbers = value.slices[name];
  if (!numbers?.length || !Array.isArray(numbers[0])) return null;
  const wide = numbers[0].length;
  const rows = value.rows?.length === numbers.length ? value.rows : numbers.map((_, q) => String(q));
  const columns = value.columns?.length === wide ? value.columns : Array.from({length: wide},
    (_, k) => (k % 8 ? "·" : String(k)));
  const greatest = numbers.reduce((most, row) => row.reduce((best, v) => (Number.isFinite(v) && Math.abs(v) > best
    ? Math.abs(v) : best), most), 0) || 1;
  const signed = numbers.some((row) => row.some((v) => v < 0));
  const cell = value.columns ? undefined : rows.length > 40 ? 8 : wide > 12 ? 13 : 22;
  const place = (k) => (value.columns?.length === wide ? `\u2068${readable(value.columns[k])}\u2069` : `column ${k}`);
  return heatmap({rows, columns, at: (q, k) => numbers[q][k], row: (q) => Float32Array.from(numbers[q],
    (v) => v ?? NaN), signed, max: greatest, cell,
    describe: (q, k) => `\u2068${readable(rows[q])}\u2069, ${place(k)}: ${number(numbers[q][k])}`,
    label: `${value.name}${name ? `, ${name}` : ""}`}).element;
}
