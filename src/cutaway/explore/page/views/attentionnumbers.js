// How one attention weight came about: the query and the key, the softmax of the row, the weighted sum of the values.
//
//     softmax( Q Kᵀ / √E ) V     q · k ──▶ / √E ──▶ score ──▶ softmax of the row ──▶ weight ──▶ weight · v ──▶ sum
//
// All numbers are recorded values of the model (probes q, k, v, scores and heads). The products are computed here.

import {fill, h, number, percent, scrollBehaviour} from "../dom.js";
import {heatmap, thumbnail} from "../heatmap.js";
import {isHeadOff, nameOf} from "../matrix.js";
import {readable} from "../tokens.js";
import {latest, waitingLine} from "./requests.js";

const PROBES = ["q", "k", "v", "scores", "heads"];
const CACHE_SIZE = 8; // attention layers
const FEW = 5; // largest weights whose values are shown
const SIDE = 112; // pixels, longest side of a small matrix
const decimals = (value) => value.toFixed(2).replace("-", "−");
const BIASES = {alibi: "ALiBi", relative_bias: "the relative bias", relative: "the relative positions"};

/** {element, link, show(now, cell)}. now: the choices of the attention view; cell: [q, k] or null; link: a button that
    leads from the matrix to the numbers. */
export function attentionNumbers(context) {
  const element = h("section", {class: "card derivation", aria: {label: "How the number of a cell came about"}});
  const link = h("button", {type: "button", class: "button quiet to-numbers", hidden: true, onclick: () => {
    element.scrollIntoView({block: "start", behavior: scrollBehaviour()});
    element.querySelector("h2")?.focus({preventScroll: true});
  }}, "How did this number come about? ↓");
  const send = latest();
  const answers = new Map(); // request -> promise of the values of a layer
  let shown = null;

  async function show(now, cell) {
    const layer = nameOf(now.kind, now.layer).replace(/\.weights$/, "");
    const request = context.request({name: layer}), key = JSON.stringify(request);
    const wanted = JSON.stringify([key, now.head, now.look, cell]);
    if (wanted === shown) return;
    shown = wanted;
    element.hidden = now.look === "lines" || Boolean(context.info.views); // a report has no values of parts
    const problem = problemOf(now, cell);
    link.hidden = element.hidden || Boolean(problem);
    if (problem || element.hidden) return fill(element, title(), h("p", {class: "dim"}, problem));
    try {
      if (!answers.has(key)) fill(element, title(), waitingLine("Running the model …"));
      const values = answers.get(key) ?? await send((signal) => load(context.source, request, layer, signal));
      if (!values) return;
      store(key, values);
      if (wanted !== shown) return;
      fill(element, contentOf(now, cell, values, context.run()));
      scrollToChosen(element);
    } catch (error) {
      const note = `There are no queries, keys and values to show. ${error.message}`;
      if (wanted === shown) fill(element, title(), h("p", {class: "note"}, note));
    }
  }

  function store(key, values) {
    answers.set(key, values);
    if (answers.size > CACHE_SIZE) answers.delete(answers.keys().next().value);
  }

  return {element, link, show};
}

function scrollToChosen(element) {
  const chosen = element.querySelector("th.chosen"), box = chosen?.closest(".box");
  if (box) box.scrollLeft = chosen.offsetLeft - box.clientWidth / 2;
}

const title = () => h("h2", {tabindex: -1}, "How this number came about");

function problemOf({head, trace}, cell) {
  if (!cell) return "Click a cell of the matrix. You then see how the model computed its number.";
  return head === "mean" ? "This is the mean of all heads. Choose one head to see how it computed its number." : null;
}

/** {q, k, v, scores, heads}: {equation, axes, slices: one matrix for each head} of each probe. */
async function load(source, request, layer, signal) {
  const found = await Promise.all(PROBES.map((probe) => source.part({...request, name: `${layer}.${probe}`}, signal)));
  return Object.fromEntries(found.map(({equation, outputs: [value]}, i) => [PROBES[i],
    {equation, sizes: Object.fromEntries(value.axes), heads: Object.values(value.slices)}]));
}

/** The values for one query and one key of one head. */
function cellValues(now, [q, k], values, run) {
  const {sizes: {H, E}} = values.q, shared = Math.floor(now.head / (H / values.k.sizes.G)); // its key-value head
  const [queries, scores, output] = ["q", "scores", "heads"].map((name) => values[name].heads[now.head]);
  const [keys, vectors] = ["k", "v"].map((name) => values[name].heads[shared]);
  const weights = keys.map((_, i) => now.matrix.at(now.index, q, i));
  if (!queries[q] || !keys[k]) return {missing: `The numbers are shown for the first ${keys.length} tokens only.`};
  if (scores[q].length !== keys.length) {
    return {missing: "This layer has learned keys in front of those of the text, so the numbers are not shown."};
  }
  const masked = maskedKeys(now, q, scores[q], weights);
  return {q, k, E, queries, keys, vectors, scores, output, weights, masked, run, now, values,
    isLinear: !values.scores.equation.includes("√E"), isCut: E > queries[q].length,
    rest: now.columns.length - keys.length};
}

/** The keys that the mask excludes: later tokens, and those whose weight is 0 although their score is large enough. */
function maskedKeys({kind, trace}, q, scores, weights) {
  const best = weights.indexOf(Math.max(...weights));
  const isCausal = kind === "decoder";
  return weights.map((weight, k) => (isCausal && k > q)
    || (weight === 0 && !trace.kept && weights[best] * Math.exp(scores[k] - scores[best]) > 0.001));
}

function contentOf(now, cell, values, run) {
  const all = cellValues(now, cell, values, run);
  const query = () => nameIn(now.rows, cell[0]), key = () => nameIn(now.columns, cell[1]); // new elements at each use
  const weight = h("b", {}, percent(now.matrix.at(now.index, ...cell)));
  const sentence = h("p", {}, query(), " attends to ", key(), " with ", weight,
    `: layer ${now.layer}, head ${now.head}.`);
  if (all.missing) return [title(), sentence, h("p", {class: "note"}, all.missing)];
  return [title(), sentence, overview(all), firstStep(all, query, key), secondStep(all, query), thirdStep(all, query)];
}

const nameIn = (tokens, i) => h("bdi", {class: "word-name"}, `“${readable(tokens[i], 24)}”`);

// ---------------------------------------------------------------- the equation and its matrices

/** The equation. A symbol under the pointer, or in focus, lights its matrix. */
function overview(all) {
  const {q, k, queries, keys, vectors, scores, output, weights, now, isLinear} = all;
  const every = queries.map((_, i) => keys.map((_, j) => now.matrix.at(now.index, i, j)));
  const figures = {
    q: small("Q", "queries", queries, {row: q}), k: small("Kᵀ", "keys", transposed(keys), {column: k}),
    scores: small(isLinear ? "Q Kᵀ" : "Q Kᵀ / √E", "scores", scores, {row: q, column: k}),
    weights: small(isLinear ? "/ Σ" : "softmax", "weights", every, {row: q, column: k}),
    v: small("V", "values", vectors, {row: k}), output: small("output", "of this head", output, {row: q})};
  const symbol = (name, text) => h("button", {type: "button", class: "symbol", data: {lights: name},
    title: `Show the matrix: ${figures[name].dataset.meaning}`}, text);
  const equation = h("p", {class: "equation"}, isLinear
    ? [symbol("q", "Q"), " ", symbol("k", "Kᵀ"), " ", symbol("weights", "/ Σ"), " ", symbol("v", "V")]
    : [symbol("weights", "softmax"), "( ", symbol("q", "Q"), " ", symbol("k", "Kᵀ"), " ", symbol("scores", "/ √E"),
      " ) ", symbol("v", "V"), " = ", symbol("output", "output")]);
  const sign = (text) => h("span", {class: "between", aria: {hidden: true}}, text);
  const row = h("div", {class: "matrices"}, figures.q, sign("·"), figures.k, sign("→"), figures.scores, sign("→"),
    figures.weights, sign("·"), figures.v, sign("→"), figures.output);
  const light = (event) => {
    const name = event.type === "pointerleave" || event.type === "focusout" ? null
      : event.target.closest("[data-lights]")?.dataset.lights ?? null;
    row.classList.toggle("choosing", name !== null);
    for (const [each, figure] of Object.entries(figures)) figure.classList.toggle("lit", each === name);
  };
  for (const type of ["pointerover", "pointerleave", "focusin", "focusout"]) equation.addEventListener(type, light);
  return h("div", {class: "overview"}, equation, row);
}

/** A small matrix with a frame around the row and the column in use. */
function small(symbol, meaning, matrix, {row = null, column = null}) {
  const [rows, columns] = [matrix.length, matrix[0].length];
  const longest = Math.max(rows, columns);
  const length = (count) => Math.max(SIDE / 3, SIDE * Math.sqrt(count / longest)); // the root: no thin strips
  const largest = matrix.flat().reduce((most, value) => Math.max(most, Math.abs(value ?? 0)), 0) || 1;
  const picture = thumbnail({rows, columns, at: (i, j) => matrix[i][j], max: largest, signed: true,
    label: `${meaning}: ${rows} by ${columns}`});
  const frame = (name, box) => h("span", {class: `frame ${name}`, style: box});
  const share = (i, count) => `${(100 * i) / count}%`;
  return h("figure", {data: {meaning}},
    h("div", {class: "stage", style: {width: `${length(columns)}px`, height: `${length(rows)}px`}}, picture,
      row !== null && frame("across", {top: share(row, rows), height: share(1, rows)}),
      column !== null && frame("down", {left: share(column, columns), width: share(1, columns)})),
    h("figcaption", {}, h("b", {}, symbol), ` ${meaning}`));
}

function transposed(matrix) {
  return matrix[0].map((_, j) => matrix.map((row) => row[j]));
}

// ---------------------------------------------------------------- the three steps

function firstStep(all, query, key) {
  const {q, k, E, queries, keys, scores, isCut, isLinear, masked, now} = all;
  const products = queries[q].map((value, i) => value * keys[k][i]);
  const dot = products.reduce((sum, value) => sum + value, 0), score = scores[q][k];
  const strip = strips([["q", queries[q]], ["k", keys[k]], ["q × k", products]], "Query, key and their product");
  const scaled = isLinear ? dot : dot / Math.sqrt(E);
  const line = isCut ? ["q · k / √E gives the score ", h("b", {}, decimals(score)),
    `. The picture shows the first ${queries[q].length} of ${E} numbers.`]
    : ["q · k = ", h("b", {}, decimals(dot)),
      isLinear ? "" : [`, and ${decimals(dot)} / √${E} = `, h("b", {}, decimals(scaled))],
      scoreText(all, scaled, score)];
  return h("section", {class: "one-step"}, h("h3", {}, "1. Compare the query with the key"),
    h("p", {class: "small dim"}, "The query of ", query(), now.kind === "cross" ? " (of the step that writes it)" : "",
      " and the key of ", key(), ", number by number. ", preparation(all)),
    strip, h("p", {class: "formula"}, line, masked[k]
      ? " The mask excludes this key, so its weight is 0 whatever its score." : ""));
}

/** What the model did to queries and keys before they were recorded. */
function preparation({run: {config}, now, isLinear}) {
  const done = [config.qk_norm ? "after their norm" : null,
    config.position === "rope" && now.kind !== "cross" ? "after the rotation by their positions (RoPE)" : null,
    isLinear ? "after the feature map φ" : null].filter(Boolean);
  return done.length ? `They are shown ${done.join(" and ")}.` : "";
}

/** The recorded score. It can differ from the scaled product: by a cap, or a bias that depends on the positions. */
function scoreText({run: {config}, now, values}, scaled, score) {
  const result = [". Score: ", h("b", {}, decimals(score)), "."];
  if (Math.abs(scaled - score) < 0.005 + 0.002 * Math.abs(score)) return result;
  const bias = now.kind !== "cross" && !config.attention_softcap ? BIASES[config.position] : null;
  return [...result, bias ? ` The difference, ${decimals(score - scaled)}, comes from ${bias}.`
    : ` This layer computes ${values.scores.equation}.`];
}

function secondStep(all, query) {
  const {q, k, scores, weights, masked, isLinear, rest, now} = all;
  const row = scores[q], most = Math.max(...row.filter((_, i) => !masked[i]));
  const grown = row.map((score, i) => (masked[i] ? 0 : isLinear ? score : Math.exp(score - most)));
  const total = grown.reduce((sum, value) => sum + value, 0);
  const classOf = (i) => `${i === k ? " chosen" : ""}${masked[i] ? " masked" : ""}`;
  const cells = (values, text, name) => values.map((value, i) => h("td", {class: `${name}${classOf(i)}`, data: {value},
    title: `${readable(now.columns[i], 24)}: ${value}`}, text(value, i)));
  const tiny = now.trace.kept ? "–" : "< 0.01 %"; // a trace of a long text has the largest weights only
  const line = (name, ...rest) => h("tr", {}, h("th", {scope: "row"}, name), cells(...rest));
  const table = h("table", {}, h("thead", {}, h("tr", {}, h("td", {}), row.map((_, i) =>
    h("th", {scope: "col", class: i === k ? "chosen" : null}, h("bdi", {}, readable(now.columns[i], 12)))))),
    h("tbody", {}, line("score", row, (value, i) => (masked[i] ? "masked" : decimals(value)), "score"),
      isLinear ? null : line("exp(score − largest)", grown, (value, i) => (masked[i] ? "–" : value.toFixed(4)),
        "grown"),
      line("weight", weights, (p, i) => (p > 0 || masked[i] ? percent(p) : tiny), "weight")));
  const [heading, what] = isLinear ? ["2. Divide by the sum of the row", "The scores"]
    : ["2. Softmax of the row", "The exponentials"];
  const note = rest ? `The first ${row.length} of ${row.length + rest} are shown, so the sum has more terms.`
    : `${what} sum up to ${number(total)}. Each divided by the sum is a weight.`;
  return h("section", {class: "one-step"}, h("h3", {}, heading),
    h("p", {class: "small dim"}, "All keys that ", query(), ` can choose from. ${note}`),
    h("div", {class: "box", tabindex: 0, role: "group", aria: {label: "Scores and weights of the row"}}, table));
}

function thirdStep({q, k, vectors, weights, output, masked, now, values, isCut, rest}, query) {
  const {kind, layer, head, off, columns} = now;
  const terms = rest + masked.filter((isMasked) => !isMasked).length;
  const order = weights.map((_, i) => i).sort((a, b) => weights[b] - weights[a]);
  const large = order.slice(0, FEW).filter((i) => weights[i] > 0), chosen = large.includes(k) ? large : [...large, k];
  const rows = chosen.map((i) => [`${percent(weights[i])} · ${readable(columns[i], 12)}`,
    vectors[i].map((value) => weights[i] * value)]);
  const notes = [
    terms > FEW ? `The sum has ${terms} terms; the largest ${rest ? `of the first ${weights.length}` : "ones"} are `
      + "shown. " : "",
    values.heads.equation.includes("a_V") ? "The relative positions add a term to the sum. " : "",
    isCut ? `The first ${vectors[k].length} numbers of each vector are shown. ` : "",
    isHeadOff(off, kind, layer, head) ? "This head is switched off, so zeros replace its output. " : ""];
  return h("section", {class: "one-step"}, h("h3", {}, "3. Add up the values"),
    h("p", {class: "small dim"}, "The value of each key times its weight. The sum is the output of this head for ",
      query(), ". ", notes), strips([...rows, ["sum", output[q]]], "Weighted values and their sum", true));
}

/** Vectors as coloured strips. With isShared, all have one scale; otherwise each has its own. */
function strips(rows, label, isShared = false) {
  const size = (values) => values.reduce((most, value) => Math.max(most, Math.abs(value ?? 0)), 0) || 1;
  const largest = rows.map(([, values]) => size(values));
  const scale = (i) => (isShared ? Math.max(...largest) : largest[i]);
  const width = rows[0][1].length, cell = width > 40 ? 11 : width > 20 ? 18 : 26;
  return heatmap({rows: rows.map(([name]) => name), label, signed: true, max: 1, cell,
    columns: Array.from({length: width}, (_, i) => (i % 8 ? "·" : String(i))),
    at: (i, j) => rows[i][1][j] / scale(i), hint: "Point at a number to read it. Blue is above 0, orange below.",
    describe: (i, j) => `${rows[i][0]}, number ${j}: ${number(rows[i][1][j])}`}).element;
}
