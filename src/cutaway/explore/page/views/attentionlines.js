// Attention as lines: who looks stands to the left, who is looked at to the right; the stronger, the wider.
//
//      Le  ────────  The          a token under the pointer or the focus shows its own lines only,
//    chat  ───╲╱───  small        what it looks at (left) or what looks at it (right)
//   petit  ───╱╲───  cat
import {fill, h, percent, s} from "../dom.js";
import {readable} from "../tokens.js";

const LEAST = 0.02; // a weight below this draws no line
const MOST_TOKENS = 60; // beyond this, only the lines of one token are drawn
const COLOURS = 8;

/** {element, draw(options)}: rows, columns, layers: [{head, matrix, colour}], marks, token, at, hint; pick("q" or "k",
    index) on a click. */
export function attentionLines(pick) {
  const drawing = h("div", {class: "box lines-box"});
  const readout = h("p", {class: "readout", aria: {live: "polite"}});
  const element = h("div", {class: "lines"}, drawing, readout);
  let options = null;
  const draw = (given) => {
    const held = drawing.contains(document.activeElement) ? {...document.activeElement.dataset} : null;
    const plan = layout(given, drawing.clientWidth || 600);
    const scene = build(plan, given, {focus, leave, pick: (side, i) => pick(side, i)});
    fill(drawing, scene.svg);
    options = {...given, plan, scene};
    leave();
    if (given.token !== null) reveal(drawing, plan.y(given.token), plan.pitch);
    if (held?.side) scene.sides[held.side][held.index]?.focus({preventScroll: true});
  };
  const focus = (side, i) => show(options, side, i, readout);
  const leave = () => {
    const {token, at, rows, columns} = options;
    if (token !== null && token < rows.length) return show(options, "q", token, readout);
    if (at !== null && at < columns.length) return show(options, "k", at, readout);
    return many(options) ? show(options, "q", 0, readout) : show(options, null, null, readout);
  };
  return {element, draw, width: () => drawing.clientWidth};
}

// In a long list the chosen token is brought into sight.
function reveal(box, y, pitch) {
  if (y < box.scrollTop || y + pitch > box.scrollTop + box.clientHeight) box.scrollTop = y - box.clientHeight / 2;
}

function many({rows, columns}) {
  return Math.max(rows.length, columns.length) > MOST_TOKENS;
}

function layout({rows, columns}, width) {
  const longest = Math.max(rows.length, columns.length);
  const pitch = longest > MOST_TOKENS ? 20 : longest > 30 ? 24 : longest > 12 ? 30 : 38;
  const whole = Math.min(760, Math.max(260, width - 4));
  const side = Math.min(170, whole * 0.32);
  return {pitch, width: whole, left: side, right: whole - side, height: longest * pitch + 8,
    signs: Math.max(5, Math.floor(side / 8.4)),
          y: (i) => 4 + (i + 0.5) * pitch};
}

function build(plan, {rows, columns, label}, on) {
  const lines = s("g", {class: "strands"});
  const svg = s("svg", {width: plan.width, height: plan.height, role: "group", aria: {label}}, lines);
  const sides = {q: rows.map((token, i) => word(plan, "q", token, i, on)),
    k: columns.map((token, i) => word(plan, "k", token, i, on))};
  svg.append(s("g", {}, sides.q), s("g", {}, sides.k));
  svg.addEventListener("keydown", (event) => walk(event, sides));
  return {svg, lines, sides};
}

function word(plan, side, token, i, on) {
  const left = side === "q";
  const box = {x: left ? 0 : plan.right, y: plan.y(i) - plan.pitch / 2 + 1, width: plan.left, height: plan.pitch - 2,
    rx: 4};
  const text = s("text", {x: left ? plan.left - 8 : plan.right + 8, y: plan.y(i) + 5, "text-anchor": left ? "end"
    : "start", direction: "ltr"},
    `\u2068${readable(token, plan.signs)}\u2069`);
  return s("g", {class: "word", tabindex: i === 0 ? 0 : -1, role: "button", data: {side, index: i},
    aria: {label: `${readable(token)}, ${left ? "what it looks at" : "what looks at it"}`},
    onpointerenter: () => on.focus(side, i), onpointerleave: on.leave, onfocus: () => on.focus(side, i),
      onblur: on.leave,
    onclick: () => on.pick(side, i)}, s("title", {}, readable(token)), s("rect", box), text);
}

function walk(event, sides) {
  const {side, index} = event.target.closest("g.word")?.dataset ?? {};
  if (!side) return;
  const [i, other] = [Number(index), side === "q" ? "k" : "q"];
  const next = {ArrowUp: sides[side][i - 1], ArrowDown: sides[side][i + 1], ArrowLeft: side === "k"
    && sides.q[Math.min(i, sides.q.length - 1)],
                ArrowRight: side === "q" && sides[other][Math.min(i, sides[other].length - 1)]}[event.key];
  if (event.key === "Enter" || event.key === " ") event.target.dispatchEvent(new MouseEvent("click"));
  else if (!next) return;
  event.preventDefault();
  event.stopPropagation();
  next?.focus();
}

// side null: all lines.
function show({scene, plan, rows, columns, layers, marks, hint}, side, i, readout) {
  const chosen = (q, k) => side === null || (side === "q" ? q === i : k === i);
  const touched = {q: new Float32Array(rows.length), k: new Float32Array(columns.length)};
  const strands = [];
  for (const [number, layer] of layers.entries()) {
    const shift = (number - (layers.length - 1) / 2) * Math.min(3.2, (0.6 * plan.pitch) / layers.length);
    for (let q = side === "q" ? i : 0; q < (side === "q" ? i + 1 : rows.length); q++) {
      const weights = layer.matrix.row(layer.head, q);
      for (let k = side === "k" ? i : 0; k < (side === "k" ? i + 1 : columns.length); k++) {
        if (!(weights[k] >= LEAST)) continue;
        touched.q[q] = Math.max(touched.q[q], weights[k]);
        touched.k[k] = Math.max(touched.k[k], weights[k]);
        strands.push(strand(plan, q, k, weights[k], layer.colour, shift, layers.length));
      }
    }
  }
  const truth = (marks ?? []).filter(([q, k]) => chosen(q, k)).map(([q, k]) => s("path",
    {class: "truth", d: curve(plan, q, k, 0)}));
  fill(scene.lines, strands, truth);
  for (const name of ["q", "k"]) {
    scene.sides[name].forEach((each, at) => {
      each.classList.toggle("chosen", side === name && at === i);
      each.classList.toggle("far", side !== null && !(side === name && at === i) && !touched[name][at]);
    });
  }
  readout.classList.toggle("dim", side === null);
  readout.textContent = side === null ? hint : told({rows, columns, layers}, side, i);
}

function strand(plan, q, k, weight, colour, shift, count) {
  const width = (count > 1 ? 0.6 : 0.8) + weight * (count > 1 ? 3 : 5);
  return s("path", {class: `strand c${colour % COLOURS}`, d: curve(plan, q, k, shift), "stroke-width": width.toFixed(2),
                    "stroke-opacity": Math.min(0.95, 0.08 + 0.87 * weight).toFixed(3)});
}

function curve(plan, q, k, shift) {
  const [from, to] = [q, k].map((i) => (plan.y(i) + shift).toFixed(1));
  const middle = (plan.left + plan.right) / 2;
  return `M${plan.left} ${from}C${middle} ${from} ${middle} ${to} ${plan.right} ${to}`;
}

/** “chat” looks at “cat” 93 %, “small” 4 %. With several heads: the mean over them. */
function told({rows, columns, layers}, side, i) {
  const weight = (q, k) => layers.reduce((sum, {matrix, head}) => sum + matrix.row(head, q)[k], 0) / layers.length;
  const others = side === "q" ? columns : rows;
  const found = others.map((token, at) => ({token, p: side === "q" ? weight(i, at) : weight(at, i)}));
  const best = found.sort((a, b) => b.p - a.p).slice(0, 4).filter(({p}) => p >= 0.005);
  const list = best.map(({token, p}) => `“\u2068${readable(token, 24)}\u2069” ${percent(p)}`).join(", ");
  const me = `“\u2068${readable(side === "q" ? rows[i] : columns[i], 24)}\u2069”`;
  const heads = layers.length > 1 ? " (mean over the heads)" : "";
  return list ? `${me} ${side === "q" ? "looks at" : "is looked at by"} ${list}${heads}` : `Nothing looks at ${me}.`;
}
