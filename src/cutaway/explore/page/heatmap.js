// A heat map: tokens on both axes, one coloured cell per value, a crosshair, and a line with the value of one cell.
//
//            The  cat  sleeps          the labels stay visible while the cells scroll
//       Le  [ ##        . ]
//     chat  [      ##     ]            frames (marks) show the gold alignment or syntax
//     dort  [  .       ## ]

import {h, number} from "./dom.js";
import {readable} from "./tokens.js";

const MAX_LABEL = 16; // characters of a label
const MAX_LABEL_OF_MANY = 11; // with more than 100 labels
const ANGLE = (55 * Math.PI) / 180; // of the column labels
const COLOURS = 256;
const MAX_PIXELS = 8192; // side of a canvas; browsers do not allow more

const palette = new Map(); // cached custom properties of style.css
const drawn = new Set(); // weak references to elements that are redrawn when the theme changes
document.addEventListener("themechange", redrawAll);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redrawAll);

function redrawAll() {
  palette.clear();
  for (const reference of drawn) {
    const element = reference.deref();
    if (element) element.redraw();
    else drawn.delete(reference);
  }
}

/** {element, update(patch)}. rows, columns: tokens; at(q, k): a value; row(q), optional and faster: all values of a
    row. */
export function heatmap(options) {
  const map = new Heatmap(options);
  return {element: map.element, update: (patch) => map.update(patch)};
}

/** A small heat map without labels; without `label`, the element around it says what it is. A matrix with more than 96 rows is max-pooled. */
export function thumbnail({rows, columns, at, row = null, label = "", max = 1, signed = false}) {
  const canvas = h("canvas", {class: "thumbnail", role: label ? "img" : null,
    aria: label ? {label} : {hidden: true}});
  canvas.redraw = () => paint(canvas, maxPool({rows, columns, row: row ?? rowOf(at, columns)}, 96), max, signed);
  canvas.redraw();
  drawn.add(new WeakRef(canvas));
  return canvas;
}

class Heatmap {
  constructor(options) {
    this.options = {marks: [], signed: false, max: 1, label: "Matrix", selected: null, ...options};
    this.build();
    this.selected = this.options.selected;
    this.draw();
    this.element.redraw = () => this.draw();
    this.element.weightAt = (q, k) => this.options.at(q, k);
    drawn.add(new WeakRef(this.element));
    const map = new WeakRef(this);
    new ResizeObserver(() => map.deref()?.refit()).observe(this.box);
  }

  build() {
    this.top = h("canvas", {class: "heatmap-top", aria: {hidden: true}});
    this.left = h("canvas", {class: "heatmap-left", aria: {hidden: true}});
    this.body = h("canvas", {class: "heatmap-body", aria: {hidden: true}});
    this.across = h("div", {class: "heatmap-across"});
    this.down = h("div", {class: "heatmap-down"});
    this.frame = h("div", {class: "heatmap-frame"});
    this.grid = h("div", {class: "heatmap-grid", role: "application", tabindex: 0, aria: {roledescription: "matrix"},
                          onkeydown: (event) => this.press(event), onfocus: () => this.point(this.selected ?? [0, 0])},
      h("div", {class: "heatmap-corner"}), this.top, this.left, this.body, this.across, this.down, this.frame);
    this.readout = h("p", {class: "readout", aria: {live: "polite"}});
    this.box = h("div", {class: "box heatmap-box"}, this.grid);
    this.element = h("div", {class: "heatmap"}, this.box, this.readout);
    this.body.addEventListener("pointermove", (event) => this.point(this.cellUnder(event)));
    this.body.addEventListener("pointerleave", () => this.point(this.selected));
    this.body.addEventListener("click", (event) => this.pick(...this.cellUnder(event)));
  }

  update(patch) {
    Object.assign(this.options, patch);
    if ("selected" in patch) this.selected = patch.selected;
    const isVisible = Object.keys(patch).some((key) => !["selected", "onpick", "describe"].includes(key));
    if (isVisible) this.draw();
    else this.point(this.selected);
  }

  draw() {
    const {rows, columns, label, marks} = this.options;
    this.size();
    Object.assign(this.element.dataset, {rows: rows.length, columns: columns.length, cell: this.cell});
    this.grid.setAttribute("aria-label",
      `${label}: ${rows.length} rows, ${columns.length} columns. Use the arrow keys.`);
    const width = columns.length * this.cell;
    const height = rows.length * this.cell;
    this.drawLabels(width, height);
    const context = prepareCanvas(this.body, width, height);
    context.imageSmoothingEnabled = false;
    const image = document.createElement("canvas");
    const values = {rows: rows.length, columns: columns.length,
      row: this.options.row ?? rowOf(this.options.at, columns.length)};
    const max = this.options.max ?? maximum(values);
    if (rows.length && columns.length) {
      paint(image, values, max, this.options.signed);
      context.drawImage(image, 0, 0, width, height);
    }
    this.drawGridLines(context, width, height);
    if (this.options.numbers && this.cell >= 24) this.drawNumbers(context, max);
    context.strokeStyle = colour("--second");
    context.lineWidth = this.cell >= 10 ? 2 : 1;
    const inset = this.cell >= 10 ? 1.5 : 0.5;
    for (const [q, k] of marks ?? []) {
      context.strokeRect(k * this.cell + inset, q * this.cell + inset, this.cell - 2 * inset, this.cell - 2 * inset);
    }
    this.point(this.selected);
  }

  // The largest cell that fits into the box, with a minimum so that the labels are legible.
  size() {
    const {rows, columns, cell} = this.options;
    const font = labelFont();
    const n = Math.max(columns.length, rows.length, 1);
    this.maxLabel = n > 100 ? MAX_LABEL_OF_MANY : MAX_LABEL;
    const widest = (tokens) => Math.max(12, ...tokens.map((token) => widthOf(readable(token, this.maxLabel), font)));
    this.leftWidth = Math.ceil(widest(rows)) + 12;
    this.topHeight = Math.ceil(widest(columns) * Math.sin(ANGLE)) + 14;
    const across = columns.map((token) => widthOf(readable(token, this.maxLabel), font) * Math.cos(ANGLE));
    this.overhang = Math.ceil(across.at(-1) ?? 0) + 6;
    this.boxWidth = this.box.clientWidth;
    const available = (this.boxWidth || 720) - this.leftWidth - this.overhang - 2;
    const least = n <= 48 ? 18 : n <= 64 ? 14 : n <= 100 ? 8 : n <= 200 ? 5 : 3;
    this.cell = cell ?? Math.max(least, Math.min(52, Math.floor(available / Math.max(columns.length, 1)),
      Math.floor(1000 / n)));
    const beyond = across.map((width, k) => width - (columns.length - 1 - k) * this.cell); // the last label may be short
    this.overhang = Math.ceil(Math.max(0, ...beyond)) + 6;
  }

  refit() {
    if (this.box.clientWidth === this.boxWidth || !this.box.clientWidth) return;
    const before = this.cell;
    this.size();
    if (this.cell !== before) this.draw();
  }

  drawLabels(width, height) {
    const {rows, columns} = this.options;
    const fontSize = this.cell < 16 ? 11 : 13;
    const rowStep = Math.ceil(fontSize / this.cell); // label every n-th row if the cells are small
    const columnStep = Math.ceil(fontSize / Math.sin(ANGLE) / this.cell);
    const left = prepareLabels(this.left, this.leftWidth, height, fontSize);
    left.textAlign = "right";
    for (let q = 0; q < rows.length; q += rowStep) {
      left.fillText(readable(rows[q], this.maxLabel), this.leftWidth - 8, (q + 0.5) * this.cell + 0.5);
    }
    const top = prepareLabels(this.top, width + this.overhang, this.topHeight, fontSize);
    for (let k = 0; k < columns.length; k += columnStep) {
      top.save();
      top.translate((k + 0.5) * this.cell - 1, this.topHeight - 7);
      top.rotate(-ANGLE);
      top.fillText(readable(columns[k], this.maxLabel), 0, 0);
      top.restore();
    }
  }

  drawGridLines(context, width, height) {
    if (this.cell < 8) return;
    context.fillStyle = colour("--line");
    context.globalAlpha = 0.55;
    for (let x = 0; x <= width; x += this.cell) context.fillRect(Math.min(x, width - 1), 0, 1, height);
    for (let y = 0; y <= height; y += this.cell) context.fillRect(0, Math.min(y, height - 1), width, 1);
    context.globalAlpha = 1;
  }

  drawNumbers(context, max) {
    const {rows, columns, at} = this.options;
    context.font = labelFont(11);
    context.textAlign = "center";
    context.textBaseline = "middle";
    const [onDark, onLight] = [colour("--card"), colour("--ink")];
    for (let q = 0; q < rows.length; q++) {
      for (let k = 0; k < columns.length; k++) {
        const value = at(q, k), size = this.options.signed ? Math.abs(value) : value;
        if (!(size >= 0.095 * max)) continue;
        context.fillStyle = size > 0.45 * max ? onDark : onLight;
        context.fillText(String(Math.round(100 * value)).replace("-", "−"), (k + 0.5) * this.cell, (q + 0.5) * this.cell + 0.5);
      }
    }
  }

  cellUnder(event) {
    const bounds = this.body.getBoundingClientRect();
    const clamp = (value, count) => Math.max(0, Math.min(count - 1, Math.floor(value)));
    return [clamp((event.clientY - bounds.top) / this.cell, this.options.rows.length),
            clamp((event.clientX - bounds.left) / this.cell, this.options.columns.length)];
  }

  point(cell) {
    const exists = cell && cell[0] < this.options.rows.length && cell[1] < this.options.columns.length;
    for (const part of [this.across, this.down, this.frame]) part.hidden = !exists;
    if (!exists) {
      this.readout.textContent = this.options.hint ?? "";
      this.readout.classList.add("dim");
      return;
    }
    this.readout.classList.remove("dim");
    const [q, k] = cell;
    const [x, y] = [this.leftWidth + k * this.cell, this.topHeight + q * this.cell];
    place(this.across, {top: y, left: 0, width: this.leftWidth + this.options.columns.length * this.cell,
      height: this.cell});
    place(this.down, {top: 0, left: x, width: this.cell,
      height: this.topHeight + this.options.rows.length * this.cell});
    place(this.frame, {top: y - 1, left: x - 1, width: this.cell + 2, height: this.cell + 2});
    this.readout.textContent = this.options.describe?.(q, k) ?? this.describe(q, k);
  }

  describe(q, k) {
    const {rows, columns, at} = this.options;
    return `\u2068${readable(rows[q])}\u2069, \u2068${readable(columns[k])}\u2069: ${number(at(q, k))}`;
  }

  pick(q, k) {
    this.selected = [q, k];
    this.point(this.selected);
    this.options.onpick?.(q, k);
  }

  press(event) {
    const {rows, columns} = this.options;
    const [q, k] = this.selected ?? [0, 0];
    const to = {ArrowUp: [q - 1, k], ArrowDown: [q + 1, k], ArrowLeft: [q, k - 1], ArrowRight: [q, k + 1], Home: [q, 0],
                End: [q, columns.length - 1], PageUp: [q - 10, k], PageDown: [q + 10, k], Enter: [q, k],
                  " ": [q, k]}[event.key];
    if (!to || event.ctrlKey || event.metaKey || event.altKey || !rows.length || !columns.length) return;
    event.preventDefault();
    event.stopPropagation();
    this.pick(Math.max(0, Math.min(rows.length - 1, to[0])), Math.max(0, Math.min(columns.length - 1, to[1])));
    this.scrollToSelected();
  }

  scrollToSelected() {
    const [q, k] = this.selected;
    const [x, y, box] = [k * this.cell, q * this.cell, this.box];
    const visible = {width: box.clientWidth - this.leftWidth, height: box.clientHeight - this.topHeight};
    box.scrollLeft = Math.min(x, Math.max(box.scrollLeft, x + this.cell - visible.width));
    box.scrollTop = Math.min(y, Math.max(box.scrollTop, y + this.cell - visible.height));
  }
}

function place(element, box) {
  for (const [side, length] of Object.entries(box)) element.style.setProperty(side, `${length}px`);
}

function rowOf(at, columns) {
  return (q) => {
    const values = new Float32Array(columns);
    for (let k = 0; k < columns; k++) values[k] = at(q, k) ?? NaN;
    return values;
  };
}

function maximum({rows, row}) {
  let most = 0;
  for (let q = 0; q < rows; q++) for (const value of row(q)) if (Math.abs(value) > most) most = Math.abs(value);
  return most || 1;
}

function maxPool(values, maxSize) {
  const size = Math.ceil(Math.max(values.rows, values.columns) / maxSize);
  if (size <= 1) return values;
  const columns = Math.ceil(values.columns / size);
  const row = (q) => {
    const best = new Float32Array(columns);
    for (let i = q * size; i < Math.min(values.rows, (q + 1) * size); i++) {
      const full = values.row(i);
      for (let k = 0; k < full.length; k++) if (full[k] > best[(k / size) | 0]) best[(k / size) | 0] = full[k];
    }
    return best;
  };
  return {rows: Math.ceil(values.rows / size), columns, row};
}

// One pixel per value; the caller enlarges it.
function paint(canvas, {rows, columns, row}, max, signed) {
  canvas.width = columns;
  canvas.height = rows;
  if (!rows || !columns) return;
  const context = canvas.getContext("2d");
  const image = context.createImageData(columns, rows);
  const pixels = new Uint32Array(image.data.buffer);
  const {positive, negative, missing} = ramps();
  for (let q = 0; q < rows; q++) {
    const values = row(q);
    for (let k = 0; k < columns; k++) {
      const value = values[k] / max;
      const ramp = signed && value < 0 ? negative : positive;
      const shade = Math.min(COLOURS - 1, (Math.abs(value) * (COLOURS - 1) + 0.5) | 0);
      pixels[q * columns + k] = value === value ? ramp[shade] : missing;
    }
  }
  context.putImageData(image, 0, 0);
}

let cachedRamps = {};

function ramps() {
  const names = ["--card", "--accent", "--second", "--dim"];
  const [paper, accent, second, line] = names.map((name) => channels(colour(name)));
  const name = [paper, accent, second].join();
  if (cachedRamps.name !== name) {
    cachedRamps = {name, positive: ramp(paper, accent), negative: ramp(paper, second), missing: pixel(line)};
  }
  return cachedRamps;
}

// Steeper at the start, so that a weight of 5 % is visible.
function ramp(from, to) {
  return Uint32Array.from({length: COLOURS}, (_, i) => {
    const share = (i / (COLOURS - 1)) ** 0.75;
    return pixel(from.map((c, at) => Math.round(c + share * (to[at] - c))));
  });
}

function pixel([r, g, b]) {
  return ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0;
}

function channels(hex) {
  const whole = hex.length === 4 ? hex.replace(/[0-9a-f]/gi, "$&$&") : hex;
  return [1, 3, 5].map((at) => parseInt(whole.slice(at, at + 2), 16));
}

/** The value of a colour of style.css in the current theme. */
export function colour(name) {
  return property(name) || "#888888";
}

// Reading a computed style is slow, so each value is cached until the theme changes.
function property(name) {
  if (!palette.get(name)) palette.set(name, getComputedStyle(document.documentElement).getPropertyValue(name).trim());
  return palette.get(name);
}

function labelFont(size = 13) {
  return `${size}px ${property("--sans") || "sans-serif"}`;
}

const ruler = document.createElement("canvas").getContext("2d");

function widthOf(text, font) {
  if (ruler.font !== font) ruler.font = font;
  return ruler.measureText(text).width;
}

function prepareCanvas(canvas, width, height) {
  const scale = Math.min(devicePixelRatio || 1, MAX_PIXELS / Math.max(width, height, 1));
  canvas.width = Math.max(1, Math.round(width * scale));
  canvas.height = Math.max(1, Math.round(height * scale));
  canvas.style.setProperty("width", `${width}px`);
  canvas.style.setProperty("height", `${height}px`);
  const context = canvas.getContext("2d");
  context.scale(scale, scale);
  return context;
}

function prepareLabels(canvas, width, height, fontSize) {
  const context = prepareCanvas(canvas, width, height);
  context.font = labelFont(fontSize);
  context.fillStyle = colour("--ink");
  context.textBaseline = "middle";
  context.direction = "ltr";
  return context;
}
