// Attention weights: one head as a matrix or as lines, and thumbnails of all heads.
import {fill, h, percent} from "../dom.js";
import {segmented, toggle} from "../controls.js";
import {heatmap} from "../heatmap.js";
import {axesOf, isHeadOff, layersOf, matrixOf, meanOf, nameOf} from "../matrix.js";
import {headsInNounsOf, inNounsOf, nounsOf} from "../nouns.js";
import {readable} from "../tokens.js";
import {attentionLines} from "./attentionlines.js";
import {attentionNumbers} from "./attentionnumbers.js";
import {patches} from "./patches.js";
import {thumbnails} from "./thumbnails.js";
import {truncationNote} from "./truncation.js";

const MANY = 36; // columns; a larger matrix gets the whole width
const HINTS = {inPage: "Point at a cell, or click one to see how its number came about.",
               inReport: "Point at a cell, or click one and use the arrow keys."};
const GOLD_FIELDS = {cross: "gold", encoder: "syntax"}; // kind of attention -> field of a trace with the correct cells
// kind of attention -> what a row shows, in an encoder-decoder
const ROWS = {encoder: "one source token divides its attention among the source tokens",
              decoder: "one target token divides its attention among itself and the earlier target tokens",
              cross: "one target token divides its attention among the source tokens"};

export const view = {
  id: "attention",
  title: "Attention",
  about: (run, info) => inNounsOf(run, `How much each token attends to each other token, head by head. Click ${info.views
    ? "a small picture to choose a head." : "a cell to see how its number came about."}`),
  applies: (run) => run.attention.length > 0,
  create: (context) => new Attention(context),
};

class Attention {
  constructor(context) {
    this.context = context;
    this.controls = h("div", {class: "row controls"});
    this.small = thumbnails((layer, head, byKey) => this.choose({layer, head}, byKey));
    this.lines = attentionLines((side, i) => this.pin(side, i));
    this.patchView = patches((token) => this.choose({token, at: null}, true));
    this.numbers = attentionNumbers(context);
    this.large = null;
    this.title = h("h2", {});
    this.role = h("p", {class: "small dim role"});
    this.place = h("div", {class: "large"});
    this.gold = h("div", {class: "gold-line"});
    this.notes = h("div", {});
    const all = h("section", {class: "card all-heads", aria: {label: "All heads"}}, h("h3", {}, "All heads"),
      h("p", {class: "small dim"}, "One row per layer, one column per head. Click a head, or use the arrow keys."),
      h("div", {class: "box"}, this.small.element));
    const one = h("section", {class: "card one-head", aria: {label: "The chosen head"}}, this.title, this.role,
      this.place, this.gold, this.notes);
    this.element = h("div", {class: "view-attention stack"}, this.controls, h("div", {class: "both"}, one,
      h("div", {class: "stack"}, all, this.numbers.link)),
      this.numbers.element);
    new ResizeObserver(() => this.refit()).observe(this.place);
  }

  choose(patch, replace = false) {
    this.context.state.set(patch, {replace});
  }

  // A second click on the same token deselects it.
  pin(side, i) {
    const {token, at} = this.context.state.read();
    const again = side === "q" ? token === i : token === null && at === i;
    this.choose({token: again || side === "k" ? null : i, at: again || side === "q" ? null : i}, true);
  }

  show(trace, state) {
    const now = this.now = chosen(trace, state, this.context.run());
    this.drawControls(now);
    this.element.classList.toggle("none", !now);
    if (!now) {
      fill(this.title, "No attention weights");
      fill(this.notes, h("p", {class: "note"}, "This model has no attention weights to show."));
      return;
    }
    this.drawAll(now);
    this.drawOne(now);
  }

  drawControls(now) {
    const wanted = now && JSON.stringify([now.kinds, now.kind, now.layers, now.heads, now.look, now.all, now.showGold,
      now.marks.length]);
    if (this.drawn === wanted && (this.set ?? null)) return this.set(now);
    this.drawn = wanted;
    if (!now) return fill(this.controls);
    const {parts, set} = controlsOf(now, this.context.run(), (patch) => this.choose(patch));
    this.set = set;
    const focused = this.controls.contains(document.activeElement)
      ? document.activeElement.closest(".control, .toggle") : null;
    const index = focused ? [...this.controls.children].indexOf(focused) : -1;
    fill(this.controls, parts);
    this.controls.children[index]?.querySelector("input:checked, input")?.focus();
    return set(now);
  }

  drawAll(now) {
    const {trace, kind, layers} = now;
    if (this.trace !== trace || this.kind !== kind) this.small.draw(trace, kind, layers);
    this.trace = trace;
    this.kind = kind;
    const run = this.context.run();
    const heads = this.context.source.loadedHeads?.(this.context.info.runs.indexOf(run))?.rows ?? null;
    this.roles = heads && headsInNounsOf(run, heads);
    this.small.mark({...now, roles: this.roles});
  }

  drawOne(now) {
    const {kind, layer, head, rows, columns} = now;
    const name = now.all ? "all heads" : head === "mean" ? "mean of all heads" : `head ${head}`;
    const label = `${now.kindTitle}, layer ${layer}, ${name}`;
    fill(this.title, label);
    this.element.classList.toggle("many", columns.length > MANY);
    const role = this.roles?.find((row) => row.kind === kind && row.layer === layer && row.head === head && !now.all);
    fill(this.role, inNounsOf(this.context.run(), explanation(now)), role
      && ` Role of this head with the final weights: ${role.role}. ${role.explanation ?? ""}`);
    if (now.look === "lines") this.drawLines(now, label);
    else this.drawMatrix(now, label);
    this.numbers.show(now, selectedCell(now));
    fill(this.gold, now.showGold && now.marks.length ? goldSentence(now) : null);
    fill(this.notes, truncationNote(now.trace.kept), now.look === "lines" && Math.max(rows.length, columns.length) > 60
      ? h("p", {class: "note"}, `There are many ${nounsOf(now.trace.task).units}: only the lines of the selected one are `
        + "drawn.") : null);
  }

  drawMatrix(now, label) {
    const {matrix, index, rows, columns, marks, showGold} = now;
    const options = {rows, columns, at: (q, k) => matrix.at(index, q, k), row: (q) => matrix.row(index, q),
                     marks: showGold ? marks : [],
                     label, numbers: true, selected: selectedCell(now), describe: (q, k) => describeCell(now, q, k),
                     hint: HINTS[this.context.info.views ? "inReport" : "inPage"],
                     onpick: (q, k) => this.choose({token: q, at: k}, true)};
    if (this.mounted !== "matrix") fill(this.place, this.frameOf(now));
    this.mounted = "matrix";
    this.place.classList.remove("several");
    this.large ??= heatmap({rows: [], columns: [], at: () => 0});
    // append it before the update, so that it can measure its container
    if (!this.spot.contains(this.large.element)) this.spot.append(this.large.element);
    this.large.update(options);
    this.drawPatches(now);
  }

  drawLines(now, label) {
    const {matrix, index, rows, columns, marks, showGold, token, at} = now;
    const heads = now.all ? Array.from({length: now.own.heads}, (_, head) => ({head, matrix: now.own, colour: head}))
      : [{head: index, matrix, colour: 0}];
    if (this.mounted !== "lines") fill(this.place, this.frameOf(now));
    this.mounted = "lines";
    if (!this.spot.contains(this.lines.element)) this.spot.append(this.lines.element);
    this.legend.hidden = !now.all;
    this.place.classList.toggle("several", now.all);
    if (now.all) fill(this.legend, headLegend(now, (head) => this.choose({head, all: null})));
    this.lines.draw({rows, columns, heads, marks: showGold ? marks : [], token, at, label,
                     hint: `Point at a ${nounsOf(now.trace.task).unit} to see only its lines. Click it to keep them.`});
    this.drawnWidth = this.place.clientWidth;
    this.drawPatches(now);
  }

  frameOf() {
    this.spot = h("div", {class: "spot"});
    this.legend = h("div", {class: "legend row small", hidden: true});
    this.beside = h("div", {class: "beside", hidden: true}, this.patchView.element);
    return [h("div", {class: "pair"}, h("div", {class: "spotted"}, this.legend, this.spot), this.beside)];
  }

  drawPatches(now) {
    this.beside.hidden = !now.trace.image;
    if (!now.trace.image) return;
    const token = Math.min(now.token ?? middlePatch(now.trace.image), now.rows.length - 1);
    this.patchView.draw({image: now.trace.image, weights: now.matrix.row(now.index, token), token});
  }

  refit() {
    if (this.mounted === "lines" && this.now && this.place.clientWidth
      && this.place.clientWidth !== this.drawnWidth) this.drawOne(this.now);
  }

  // The left and right arrow keys go through all heads of all layers.
  key(event) {
    const step = {ArrowLeft: -1, ArrowRight: 1}[event.key];
    if (!step || !this.now) return;
    const {layers, heads, layer, head} = this.now;
    const total = layers.length * heads;
    const at = layers.indexOf(layer) * heads + (head === "mean" ? (step > 0 ? -1 : 0) : head);
    const next = (at + step + total) % total;
    event.preventDefault();
    this.choose({layer: layers[Math.floor(next / heads)], head: next % heads}, true);
    this.context.announce(this.title.textContent);
  }
}

// The choices in the state; defaults replace what the trace does not have.
function chosen(trace, state, run) {
  const kinds = run.attention.map(({kind}) => kind).filter((kind) => layersOf(trace, kind).length);
  if (!kinds.length) return null;
  const kind = kinds.includes(state.kind) ? state.kind : kinds.includes("cross") ? "cross" : kinds[0];
  const layers = layersOf(trace, kind);
  const layer = layers.includes(state.layer) ? state.layer : layers.at(-1);
  const own = matrixOf(trace, nameOf(kind, layer));
  const head = state.head === "mean" || (Number.isInteger(state.head) && state.head >= 0 && state.head < own.heads)
    ? state.head : 0;
  const [rows, columns] = axesOf(trace, kind);
  const within = (value, tokens) => (Number.isInteger(value) && value >= 0 && value < tokens.length ? value : null);
  const look = state.look === "lines" ? "lines" : "matrix";
  return {trace, kinds, kind, layers, layer, own, head, rows, columns, look, off: state.off, heads: own.heads,
          matrix: head === "mean" ? meanOf(own) : own, index: head === "mean" ? 0 : head, kindTitle: titleOf(kind, run),
          token: within(state.token, rows), at: within(state.at, columns), all: look === "lines" && state.all === 1,
          showGold: state.truth !== 0, marks: trace[GOLD_FIELDS[kind]] ?? []};
}

function titleOf(kind, run) {
  return run.attention.find((each) => each.kind === kind)?.title ?? kind;
}

function explanation({kinds, kind, look}) {
  if (look === "lines") return "The tokens on the left attend to the tokens on the right. A wider line means more attention.";
  return `Each row shows how ${kinds.includes("cross") ? ROWS[kind] : "one token divides its attention"}, in percent.`;
}

function controlsOf(now, run, choose) {
  const translates = now.kinds.includes("cross");
  const labels = translates ? {encoder: "encoder", decoder: "decoder", cross: "cross-attention"}
    : {encoder: "self-attention", decoder: "self-attention"};
  const kinds = now.kinds.length > 1 ? segmented({label: "Kind of attention", hideLabel: true, value: now.kind,
    onchange: (kind) => choose({kind, token: null, at: null}),
    options: now.kinds.map((kind) => ({value: kind, label: labels[kind], title: titleOf(kind, run)}))}) : null;
  const layers = segmented({label: "layer", value: now.layer, onchange: (layer) => choose({layer}),
    options: now.layers.map((layer) => ({value: layer, label: String(layer)}))});
  const heads = segmented({label: "head", value: now.head, onchange: (head) => choose({head}),
    options: [...Array.from({length: now.heads}, (_, head) => ({value: head, label: String(head)})),
      {value: "mean", label: "mean", title: "Mean of all heads"}]});
  const look = segmented({label: "show as", value: now.look,
    onchange: (value) => choose({look: value === "matrix" ? null : value}),
    options: [{value: "matrix", label: "matrix"}, {value: "lines", label: "lines"}]});
  const all = now.look === "lines" ? toggle({label: "all heads", checked: now.all,
    onchange: (on) => choose({all: on ? 1 : null})}) : null;
  const gold = now.marks.length ? toggle({label: now.kind === "cross" ? "show true alignment" : "show true syntax",
    checked: now.showGold,
    onchange: (on) => choose({truth: on ? null : 0})}) : null;
  const set = (to) => {
    kinds?.set(to.kind);
    layers.set(to.layer);
    heads.set(to.head);
    look.set(to.look);
    all?.set(to.all);
    gold?.set(to.showGold);
  };
  return {parts: [kinds, layers, heads, look, all, gold].filter(Boolean).map((control) => control.element), set};
}

// With only one token selected, the cell with its largest weight.
function selectedCell({token, at, rows, matrix, index}) {
  if (token !== null && at !== null) return [token, at];
  if (token !== null) return [token, strongest(matrix.row(index, token))];
  if (at === null) return null;
  return [strongest(rows.map((_, q) => matrix.at(index, q, at))), at];
}

function strongest(weights) {
  let best = 0;
  for (let k = 1; k < weights.length; k++) if (weights[k] > weights[best]) best = k;
  return best;
}

function describeCell({rows, columns, matrix, index, marks, showGold}, q, k) {
  const correct = showGold && marks.some(([a, b]) => a === q && b === k) ? " (a correct pair)" : "";
  const [query, key] = [readable(rows[q], 40), readable(columns[k], 40)];
  return `“\u2068${query}\u2069” attends to “\u2068${key}\u2069”: ${percent(matrix.at(index, q, k))}${correct}`;
}

function goldSentence({kind, marks, own, matrix, index, look, all, head}) {
  const weights = (q) => (all ? meanOf(own).row(0, q) : matrix.row(index, q));
  const hits = marks.filter(([q, k]) => q < own.rows && strongest(weights(q)) === k).length;
  const where = all || head === "mean" ? "In the mean of all heads" : "In this head";
  const [what, sign] = [kind === "cross" ? "each target word and the source word that it translates"
    : "each word and the word that it depends on in the syntax tree",
    look === "lines" ? "Lines with dots at both ends" : "Orange frames"];
  const verdict = `${hits} of these ${marks.length} pairs have the largest weight in their row.`;
  return h("p", {class: "small"}, h("span", {class: `sign ${look}`, aria: {hidden: true}}),
    `${sign} mark ${what}. ${where}, `, h("b", {}, verdict));
}

function headLegend({own, kind, layer, off}, pick) {
  return [h("span", {class: "dim"}, "Heads:"), Array.from({length: own.heads}, (_, head) => {
    const isOff = isHeadOff(off, kind, layer, head);
    return h("button", {type: "button", class: "button quiet legend-head", title: `Show head ${head} only`,
      onclick: () => pick(head)},
      h("span", {class: `swatch c${head % 8}`, aria: {hidden: true}}), `${head}${isOff ? " (off)" : ""}`);
  })];
}

function middlePatch(image) {
  const [columns, rows] = [Math.floor(image.pixels[0][0].length / image.patch),
    Math.floor(image.pixels[0].length / image.patch)];
  return (image.class_token ? 1 : 0) + Math.floor(rows / 2) * columns + Math.floor(columns / 2);
}
