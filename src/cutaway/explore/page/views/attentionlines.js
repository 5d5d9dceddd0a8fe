// Attention as lines: queries on the left, keys on the right; a wider line means more weight.
//
//      Le  ────────  The          with the pointer or the focus on a token, only its lines are shown
//    chat  ───╲╱───  small
//   petit  ───╱╲───  cat
import {fill, h, percent, s} from "../dom.js";
import {readable} from "../tokens.js";

const MIN_WEIGHT = 0.02; // smaller weights have no line
const MAX_TOKENS = 60; // with more tokens, only the lines of one token are drawn
const COLOURS = 8;

/** {element, draw(options)}. options: rows, columns, heads: [{head, matrix, colour}], marks, token, at, hint.
    pick("q" or "k", index) is called on a click. */
export function attentionLines(pick) {
  const box = h("div", {class: "box lines-box"});
  const readout = h("p", {class: "readout", aria: {live: "polite"}});
  const element = h("div", {class: "lines"}, box, readout);
  let options = null;
  const draw = (newOptions) => {
    const focused = box.contains(document.activeElement) ? {...document.activeElement.dataset} : null;
    const layout = layOut(newOptions, box.clientWidth || 600);
    const scene = build(layout, newOptions, {focus, leave, pick: (side, i) => pick(side, i)});
    fill(box, scene.svg);
    options = {...newOptions, layout, scene};
    leave();
    if (newOptions.token !== null) scrollTo(box, layout.y(newOptions.token), layout.pitch);
    if (focused?.side) scene.sides[focused.side][focused.index]?.focus({preventScroll: true});
  };
  const focus = (side, i) => show(options, side, i, readout);
  const leave = () => {
    const {token, at, rows, columns} = options;
    if (token !== null && token < rows.length) return show(options, "q", token, readout);
    if (at !== null && at < columns.length) return show(options, "k", at, readout);
    return hasManyTokens(options) ? show(options, "q", 0, readout) : show(options, null, null, readout);
  };
  return {element, draw, width: () => box.clientWidth};
}

function scrollTo(box, y, pitch) {
  if (y < box.scrollTop || y + pitch > box.scrollTop + box.clientHeight) box.scrollTop = y - box.clientHeight / 2;
}

function hasManyTokens({rows, columns}) {
  return Math.max(rows.length, columns.length) > MAX_TOKENS;
}

function layOut({rows, columns}, width) {
  const longest = Math.max(rows.length, columns.length);
  const pitch = longest > MAX_TOKENS ? 20 : longest > 30 ? 24 : longest > 12 ? 30 : 38;
  const whole = Math.min(760, Math.max(260, width - 4));
  const side = Math.min(170, whole * 0.32);
  return {pitch, width: whole, left: side, right: whole - side, height: longest * pitch + 8,
    characters: Math.max(5, Math.floor(side / 8.4)),
          y: (i) => 4 + (i + 0.5) * pitch};
}

function build(layout, {rows, columns, label}, on) {
  const lines = s("g", {class: "weights"});
  const svg = s("svg", {width: layout.width, height: layout.height, role: "group", aria: {label}}, lines);
  const sides = {q: rows.map((token, i) => word(layout, "q", token, i, on)),
    k: columns.map((token, i) => word(layout, "k", token, i, on))};
  svg.append(s("g", {}, sides.q), s("g", {}, sides.k));
  svg.addEventListener("keydown", (event) => moveFocus(event, sides));
  return {svg, lines, sides};
}

function word(layout, side, token, i, on) {
  const left = side === "q";
  const box = {x: left ? 0 : layout.right, y: layout.y(i) - layout.pitch / 2 + 1, width: layout.left,
    height: layout.pitch - 2, rx: 4};
  const text = s("text", {x: left ? layout.left - 8 : layout.right + 8, y: layout.y(i) + 5, "text-anchor": left ? "end"
    : "start", direction: "ltr"},
    `\u2068${readable(token, layout.characters)}\u2069`);
  return s("g", {class: "word", tabindex: i === 0 ? 0 : -1, role: "button", data: {side, index: i},
    aria: {label: `${readable(token)}, ${left ? "query" : "key"}`},
    onpointerenter: () => on.focus(side, i), onpointerleave: on.leave, onfocus: () => on.focus(side, i),
      onblur: on.leave,
    onclick: () => on.pick(side, i)}, s("title", {}, readable(token)), s("rect", box), text);
}

function moveFocus(event, sides) {
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

// side "q" or "k": only the lines of token i; null: all lines.
function show({scene, layout, rows, columns, heads, marks, hint}, side, i, readout) {
  const chosen = (q, k) => side === null || (side === "q" ? q === i : k === i);
  const touched = {q: new Float32Array(rows.length), k: new Float32Array(columns.length)};
  const lines = [];
  for (const [number, {matrix, head, colour}] of heads.entries()) {
    const shift = (number - (heads.length - 1) / 2) * Math.min(3.2, (0.6 * layout.pitch) / heads.length);
    for (let q = side === "q" ? i : 0; q < (side === "q" ? i + 1 : rows.length); q++) {
      const weights = matrix.row(head, q);
      for (let k = side === "k" ? i : 0; k < (side === "k" ? i + 1 : columns.length); k++) {
        if (!(weights[k] >= MIN_WEIGHT)) continue;
        touched.q[q] = Math.max(touched.q[q], weights[k]);
        touched.k[k] = Math.max(touched.k[k], weights[k]);
        lines.push(weightLine(layout, q, k, weights[k], colour, shift, heads.length));
      }
    }
  }
  const gold = (marks ?? []).filter(([q, k]) => chosen(q, k)).map(([q, k]) => goldLine(layout, q, k));
  fill(scene.lines, lines, gold);
  for (const name of ["q", "k"]) {
    scene.sides[name].forEach((each, at) => {
      each.classList.toggle("chosen", side === name && at === i);
      each.classList.toggle("far", side !== null && !(side === name && at === i) && !touched[name][at]);
    });
  }
  readout.classList.toggle("dim", side === null);
  readout.textContent = side === null ? hint : describe({rows, columns, heads}, side, i);
}

function weightLine(layout, q, k, weight, colour, shift, count) {
  const width = (count > 1 ? 0.6 : 0.8) + weight * (count > 1 ? 3 : 5);
  return s("path", {class: `weight c${colour % COLOURS}`, d: curve(layout, q, k, shift),
                    "stroke-width": width.toFixed(2),
                    "stroke-opacity": Math.min(0.95, 0.08 + 0.87 * weight).toFixed(3)});
}

/** A line with a dot at both ends: a correct pair. */
function goldLine(layout, q, k) {
  const end = (cx, i) => s("circle", {class: "gold-end", cx, cy: layout.y(i).toFixed(1), r: 4});
  return [s("path", {class: "gold", d: curve(layout, q, k, 0)}), end(layout.left, q), end(layout.right, k)];
}

function curve(layout, q, k, shift) {
  const [from, to] = [q, k].map((i) => (layout.y(i) + shift).toFixed(1));
  const middle = (layout.left + layout.right) / 2;
  return `M${layout.left} ${from}C${middle} ${from} ${middle} ${to} ${layout.right} ${to}`;
}

/** “chat” attends to “cat” 93 %, “small” 4 %. With several heads, their mean. */
function describe({rows, columns, heads}, side, i) {
  const weight = (q, k) => heads.reduce((sum, {matrix, head}) => sum + matrix.row(head, q)[k], 0) / heads.length;
  const others = side === "q" ? columns : rows;
  const found = others.map((token, at) => ({token, p: side === "q" ? weight(i, at) : weight(at, i)}));
  const best = found.sort((a, b) => b.p - a.p).slice(0, 4).filter(({p}) => p >= 0.005);
  const list = best.map(({token, p}) => `“\u2068${readable(token, 24)}\u2069” ${percent(p)}`).join(", ");
  const token = `“\u2068${readable(side === "q" ? rows[i] : columns[i], 24)}\u2069”`;
  const mean = heads.length > 1 ? " (mean of all heads)" : "";
  if (!list) return `Nothing attends to ${token}.`;
  return side === "q" ? `${token} attends to ${list}${mean}` : `${token} gets attention from ${list}${mean}`;
}
