// Who looks at whom: every attention matrix of the model, one of them large, as cells or as lines.
import {fill, h, percent} from "../dom.js";
import {segmented, toggle} from "../controls.js";
import {heatmap} from "../heatmap.js";
import {axesOf, kindOf, matrixOf, meanOf, nameOf} from "../matrix.js";
import {readable} from "../tokens.js";
import {attentionLines} from "./attentionlines.js";
import {patches} from "./patches.js";
import {thumbnails} from "./thumbnails.js";
import {keptSentence} from "./kept.js";

const MEANT = {cross: "gold", encoder: "syntax"}; // where the truth about a kind of attention stands in a trace

export const view = {
  id: "attention",
  title: "Attention",
  applies: (run) => run.attention.length > 0,
  create: (context) => new Attention(context),
};

class Attention {
  constructor(context) {
    this.context = context;
    this.controls = h("div", {class: "row controls"});
    this.small = thumbnails((layer, head, byKey) => this.choose({layer, head}, byKey));
    this.lines = attentionLines((side, i) => this.pin(side, i));
    this.picture = patches((token) => this.choose({token, at: null}, true));
    this.large = null;
    this.title = h("h2", {});
    this.role = h("p", {class: "small dim role"});
    this.place = h("div", {class: "large"});
    this.truth = h("div", {class: "truth-line"});
    this.notes = h("div", {});
    const all = h("section", {class: "card all-heads", aria: {label: "All heads"}}, h("h3", {}, "All heads"),
      h("p", {class: "small dim"}, "A line a layer, a column a head. Click one, or walk with the arrow keys."),
      h("div", {class: "box"}, this.small.element));
    const one = h("section", {class: "card one-head", aria: {label: "The chosen head"}}, this.title, this.role,
      this.place, this.truth, this.notes);
    this.element = h("div", {class: "view-attention stack"}, this.controls, h("div", {class: "both"}, one, all));
    new ResizeObserver(() => this.refit()).observe(this.place);
  }

  choose(patch, replace = false) {
    this.context.state.set(patch, {replace});
  }

  // A second click on the same token lets it go again.
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
      fill(this.notes, h("p", {class: "note"}, "This model does not keep a matrix of who looks at whom."));
      return;
    }
    this.drawAll(now);
    this.drawOne(now);
  }

  drawControls(now) {
    const wanted = now && JSON.stringify([now.kinds, now.kind, now.layers, now.heads, now.look, now.all, now.truth,
      now.marks.length]);
    if (this.drawn === wanted && (this.set ?? null)) return this.set(now);
    this.drawn = wanted;
    if (!now) return fill(this.controls);
    const {parts, set} = controlsOf(now, this.context.run(), (patch) => this.choose(patch));
    this.set = set;
    const held = this.controls.contains(document.activeElement) ? document.activeElement.closest(".control, .toggle")
      : null;
    const index = held ? [...this.controls.children].indexOf(held) : -1;
    fill(this.controls, parts);
    this.controls.children[index]?.querySelector("input:checked, input")?.focus();
    return set(now);
  }

  drawAll(now) {
    const {trace, kind, layers} = now;
    if (this.trace !== trace || this.kind !== kind) this.small.draw(trace, kind, layers);
    this.trace = trace;
    this.kind = kind;
    this.roles = this.context.source.headsSeen?.(this.context.info.runs.indexOf(this.context.run()))?.rows ?? null;
    this.small.mark({...now, roles: this.roles});
  }

  drawOne(now) {
    const {kind, layer, head, rows, columns} = now;
    const name = now.all ? "all heads" : head === "mean" ? "mean over its heads" : `head ${head}`;
    fill(this.title, `Layer ${layer}, ${name}`);
    const role = this.roles?.find((row) => row.kind === kind && row.layer === layer && row.head === head && !now.all);
    fill(this.role, role ? `Its role, with the trained weights and nothing off: ${role.role}. ${role.explanation ?? ""}`
      : now.said);
    if (now.look === "lines") this.drawLines(now, `${now.said}, layer ${layer}, ${name}`);
    else this.drawMatrix(now, `${now.said}, layer ${layer}, ${name}`);
    fill(this.truth, now.truth && now.marks.length ? truthSentence(now) : null);
    fill(this.notes, keptSentence(now.trace.kept), now.look === "lines" && Math.max(rows.length, columns.length) > 60
      ? h("p", {class: "note"}, "So many tokens: only the lines of the chosen one are drawn.") : null);
  }

  drawMatrix(now, label) {
    const {matrix, index, rows, columns, marks, truth} = now;
    const options = {rows, columns, at: (q, k) => matrix.at(index, q, k), row: (q) => matrix.row(index, q), marks: truth
      ? marks : [],
                     label, numbers: true, selected: selectedCell(now), describe: (q, k) => described(now, q, k),
                     hint: "Point at a cell, or focus the matrix and use the arrow keys.",
                     onpick: (q, k) => this.choose({token: q, at: k}, true)};
    if (this.mounted !== "matrix") fill(this.place, this.frameOf(now));
    this.mounted = "matrix";
    this.place.classList.remove("several");
    this.large ??= heatmap({rows: [], columns: [], at: () => 0});
    // in place first, so that it knows its room
    if (!this.spot.contains(this.large.element)) this.spot.append(this.large.element);
    this.large.update(options);
    this.drawPicture(now);
  }

  drawLines(now, label) {
    const {matrix, index, rows, columns, marks, truth, token, at} = now;
    const layers = now.all ? Array.from({length: now.own.heads}, (_, head) => ({head, matrix: now.own, colour: head}))
      : [{head: index, matrix, colour: 0}];
    if (this.mounted !== "lines") fill(this.place, this.frameOf(now));
    this.mounted = "lines";
    if (!this.spot.contains(this.lines.element)) this.spot.append(this.lines.element);
    this.legend.hidden = !now.all;
    this.place.classList.toggle("several", now.all);
    if (now.all) fill(this.legend, legendOf(now, (head) => this.choose({head, all: null})));
    this.lines.draw({rows, columns, layers, marks: truth ? marks : [], token, at, label,
                     hint: "Left looks at right. Point at a token to see its lines only; click to keep them."});
    this.seen = this.place.clientWidth;
    this.drawPicture(now);
  }

  frameOf() {
    this.spot = h("div", {class: "spot"});
    this.legend = h("div", {class: "legend row small", hidden: true});
    this.beside = h("div", {class: "beside", hidden: true}, this.picture.element);
    return [h("div", {class: "pair"}, h("div", {class: "spotted"}, this.legend, this.spot), this.beside)];
  }

  drawPicture(now) {
    this.beside.hidden = !now.trace.image;
    if (!now.trace.image) return;
    const token = Math.min(now.token ?? middle(now.trace.image), now.rows.length - 1);
    this.picture.draw({image: now.trace.image, weights: now.matrix.row(now.index, token), token});
  }

  refit() {
    if (this.mounted === "lines" && this.now && this.place.clientWidth
      && this.place.clientWidth !== this.seen) this.drawOne(this.now);
  }

  // Left and right walk through all heads, from the last of a layer to the first of the next.
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

// What the address says, made to fit what the trace has.
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
          matrix: head === "mean" ? meanOf(own) : own, index: head === "mean" ? 0 : head, said: saidOf(kind, run),
          token: within(state.token, rows), at: within(state.at, columns), all: look === "lines" && state.all === 1,
          truth: state.truth !== 0, marks: trace[MEANT[kind]] ?? []};
}

function layersOf(trace, kind) {
  const names = Object.keys(trace.attention ?? {}).filter((name) => kindOf(name) === kind);
  return names.map((name) => Number(name.split(".")[2])).sort((a, b) => a - b);
}

function saidOf(kind, run) {
  return run.attention.find((each) => each.kind === kind)?.title ?? kind;
}

function controlsOf(now, run, choose) {
  const translates = now.kinds.includes("cross");
  const labels = translates ? {encoder: "source → source", decoder: "target → target", cross: "target → source"}
    : {encoder: "self-attention", decoder: "self-attention"};
  const kinds = now.kinds.length > 1 ? segmented({label: "Who looks at whom", hideLabel: true, value: now.kind,
    onchange: (kind) => choose({kind, token: null, at: null}),
    options: now.kinds.map((kind) => ({value: kind, label: labels[kind], title: saidOf(kind, run)}))}) : null;
  const layers = segmented({label: "layer", value: now.layer, onchange: (layer) => choose({layer}),
    options: now.layers.map((layer) => ({value: layer, label: String(layer)}))});
  const heads = segmented({label: "head", value: now.head, onchange: (head) => choose({head}),
    options: [...Array.from({length: now.heads}, (_, head) => ({value: head, label: String(head)})),
      {value: "mean", label: "mean", title: "Mean over heads"}]});
  const look = segmented({label: "as", value: now.look,
    onchange: (value) => choose({look: value === "matrix" ? null : value}),
    options: [{value: "matrix", label: "matrix"}, {value: "lines", label: "lines"}]});
  const all = now.look === "lines" ? toggle({label: "all heads", checked: now.all,
    onchange: (on) => choose({all: on ? 1 : null})}) : null;
  const truth = now.marks.length ? toggle({label: now.kind === "cross" ? "true alignment" : "true syntax",
    checked: now.truth,
    onchange: (on) => choose({truth: on ? null : 0})}) : null;
  const set = (to) => {
    kinds?.set(to.kind);
    layers.set(to.layer);
    heads.set(to.head);
    look.set(to.look);
    all?.set(to.all);
    truth?.set(to.truth);
  };
  return {parts: [kinds, layers, heads, look, all, truth].filter(Boolean).map((control) => control.element), set};
}

// One token chosen: the cell that it looks at most, or that looks at it most.
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

function described({rows, columns, matrix, index, marks, truth}, q, k) {
  const framed = truth && marks.some(([a, b]) => a === q && b === k) ? ", and they belong together" : "";
  const [who, whom] = [readable(rows[q], 40), readable(columns[k], 40)];
  return `“\u2068${who}\u2069” looks at “\u2068${whom}\u2069”: ${percent(matrix.at(index, q, k))}${framed}`;
}

function truthSentence({kind, marks, own, matrix, index, look, all, head}) {
  const weights = (q) => (all ? meanOf(own).row(0, q) : matrix.row(index, q));
  const hits = marks.filter(([q, k]) => q < own.rows && strongest(weights(q)) === k).length;
  const where = all || head === "mean" ? "In the mean over heads, " : "In this head, ";
  const [what, sign] = [kind === "cross" ? "which words belong together" : "each word and its syntactic head",
    look === "lines" ? "Dashed lines" : "Orange frames"];
  const verdict = `${hits} of ${marks.length} ${marks.length === 1 ? "is" : "are"} the strongest of their row.`;
  return h("p", {class: "small"}, h("span", {class: `sign ${look}`, aria: {hidden: true}}),
    `${sign} show ${what}, in truth. ${where}`, h("b", {}, verdict));
}

function legendOf({own, kind, layer, off}, pick) {
  return [h("span", {class: "dim"}, "Heads:"), Array.from({length: own.heads}, (_, head) => {
    const out = off.includes(nameOf(kind, layer).replace(/weights$/, `heads.${head}`));
    return h("button", {type: "button", class: "button quiet legend-head", title: `Show head ${head} only`,
      onclick: () => pick(head)},
      h("span", {class: `swatch c${head % 8}`, aria: {hidden: true}}), `${head}${out ? " (off)" : ""}`);
  })];
}

function middle(image) {
  const [columns, rows] = [Math.floor(image.pixels[0][0].length / image.patch),
    Math.floor(image.pixels[0].length / image.patch)];
  return (image.class_token ? 1 : 0) + Math.floor(rows / 2) * columns + Math.floor(columns / 2);
}
