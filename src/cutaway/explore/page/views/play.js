// The forward pass as an animation on the diagram: the vectors of the tokens rise through the boxes in the order of
// computation. A click or the space bar pauses at the box at work and shows its numbers.
//
//     encoder, from the input upwards ──▶ decoder, from the input upwards ──▶ output

import {h, isStill, s, scrollBehaviour} from "../dom.js";
import {segmented} from "../controls.js";
import {inNounsOf} from "../nouns.js";

const SPEEDS = {slow: 1500, normal: 700, fast: 250}; // milliseconds at a box
const SHORT = 0.5; // norms and sums get this share of the time
const MOST = 16; // vectors that are drawn
const CLASSES = ["working", "done", "lit"];

/** {element, use({svg, elements, trace, run}), key(event)}. drawing: the box around the diagram; open(name): show a
    part. */
export function player({drawing, open}) {
  const play = h("button", {type: "button", class: "button", onclick: toggle});
  const buttons = [["Previous box", "◀", -1], ["Next box", "▶", 1]].map(([label, sign, by]) =>
    h("button", {type: "button", class: "button quiet", aria: {label}, title: label, onclick: () => step(by)}, sign));
  const speeds = segmented({label: "speed", value: "normal", options: Object.keys(SPEEDS).map((value) => ({value})),
    onchange: (value) => { speed = value; }});
  const caption = h("p", {class: "caption-line small", aria: {live: "polite"}});
  const element = h("div", {class: "player"}, h("div", {class: "row"}, play, buttons, speeds.element), caption);
  let speed = "normal", timer = null, at = -1; // at: the number of the stop, or -1 before the start
  let diagram = null, stops = [], vectors = null;
  drawing.addEventListener("click", catchClick, true);
  drawing.addEventListener("keydown", catchKey, true);

  /** The diagram was drawn anew: for another text, or with other parts switched off. */
  function use(drawn) {
    stop();
    [diagram, stops, vectors, at] = [drawn, stopsOf(drawn.elements), null, -1];
    speeds.element.hidden = isStill();
    mark();
  }

  function toggle() {
    if (timer !== null) return pause();
    if (at === stops.length - 1) at = -1;
    if (at === -1) bringIntoView();
    if (isStill()) return step(1);
    next();
  }

  function next() {
    clearTimeout(timer);
    at += 1;
    const {item} = stops[at], isLast = at === stops.length - 1;
    timer = isLast ? null : setTimeout(() => (element.offsetParent === null ? stop() : next()),
      SPEEDS[speed] * (item.thin || item.type === "plus" ? SHORT : 1));
    mark();
  }

  function step(by) {
    stop();
    at = Math.max(0, Math.min(stops.length - 1, at + by));
    mark();
  }

  function stop() {
    clearTimeout(timer);
    timer = null;
    label();
  }

  function pause() {
    stop();
    mark();
    const {name} = stops[at].item;
    if (name !== undefined) open(name);
  }

  function catchClick(event) {
    if (timer === null) return;
    event.stopPropagation();
    const box = event.target.closest("[data-name]"), clicked = stops.findIndex((each) => each.element === box);
    if (clicked >= 0) at = clicked;
    pause();
  }

  function catchKey(event) {
    if (timer === null || event.key !== " ") return;
    event.preventDefault();
    event.stopPropagation();
    pause();
  }

  // Keys outside of controls; a button in focus handles the space bar itself.
  function key(event) {
    if (event.key !== " " || timer === null || event.target.closest?.("button, [role=button], a, summary")) return;
    event.preventDefault();
    pause();
  }

  function label() {
    const isOver = at === stops.length - 1;
    const [first, further, again] = isStill() ? ["First step", "Next step", "From the start"]
      : ["▶ Play", "▶ Go on", "▶ Play again"];
    play.textContent = timer !== null ? "❚❚ Pause" : at < 0 ? first : isOver ? again : further;
    element.dataset.state = timer !== null ? "playing" : at < 0 ? "ready" : isOver ? "end" : "paused";
    buttons[0].disabled = at <= 0;
    buttons[1].disabled = isOver;
  }

  function mark() {
    label();
    element.dataset.at = at;
    for (const each of diagram.elements.values()) each.classList.remove(...CLASSES);
    diagram.svg.classList.toggle("played", at >= 0);
    caption.textContent = at < 0 ? invitation() : captionOf(stops[at], diagram.trace, at, stops.length);
    if (at < 0) return;
    stops.slice(0, at).forEach((each) => each.element.classList.add("done"));
    stops[at].element.classList.add("working");
    for (const path of pathsInto(stops[at].item, diagram.elements)) diagram.elements.get(path).classList.add("lit");
    moveVectors();
    keepInView(stops[at].item);
  }

  function invitation() {
    const how = isStill() ? "Each press moves the vectors of the tokens one box further."
      : "Press Play: the vectors of the tokens rise through the model. A click or the space bar pauses.";
    return inNounsOf(diagram.run, how);
  }

  function moveVectors() {
    const {item} = stops[at];
    if (item.className === "position") return; // it waits at the side
    const isNewColumn = !vectors || vectors.column !== item.column;
    if (isNewColumn) {
      vectors?.group.remove();
      vectors = {column: item.column, group: vectorsOf(countOf(item, diagram.trace))};
      diagram.svg.append(vectors.group);
    }
    const [x, y] = [item.x + (item.width ?? 0) / 2, item.type === "text" ? item.y + 6 : item.y + item.height + 5];
    vectors.group.style.setProperty("transition-duration", isNewColumn ? "0ms" : `${SPEEDS[speed] * 0.4}ms`);
    vectors.group.style.setProperty("transform", `translate(${x}px, ${y}px)`);
  }

  function bringIntoView() {
    element.scrollIntoView({block: "start", behavior: scrollBehaviour()});
  }

  function keepInView({x, y, width = 0}) {
    const {clientWidth, clientHeight} = drawing;
    drawing.scrollTo({left: x + width / 2 - clientWidth / 2, top: y - clientHeight / 2,
      behavior: scrollBehaviour()});
  }

  return {element, use, key};
}

/** [{item, element}]: the boxes and sums in the order of computation, and the text above the last one. */
function stopsOf(elements) {
  const all = [...elements].map(([item, element]) => ({item, element}));
  const boxes = all.filter(({item}) => ["box", "plus", "more"].includes(item.type) && !item.folds);
  const end = all.filter(({item}) => item.type === "text").at(-1);
  return end ? [...boxes, {...end, item: Object.assign(end.item, {column: boxes.at(-1).item.column})}] : boxes;
}

function captionOf(stop, trace, at, count) {
  const where = `${at + 1} of ${count}: `;
  if (stop.item.type !== "text") return where + stop.element.getAttribute("aria-label");
  const text = stop.item.text.charAt(0).toUpperCase() + stop.item.text.slice(1);
  return `${where}${text}. Output: “\u2068${trace.output}\u2069”`;
}

/** The lines that lead into a box: those that end at its edge, and the lines without an arrow before them. */
function pathsInto({x, y, width = 0, height = 0, type}, elements) {
  const paths = [...elements.keys()].filter((item) => item.type === "path");
  const [top, bottom] = type === "text" ? [y, y + 20] : [y, y + height];
  const touches = ([px, py]) => px >= x - 2 && px <= x + width + 2 && py >= top - 2 && py <= bottom + 2;
  const found = paths.filter(({points}) => touches(points.at(-1)) && !touches(points[0]));
  for (const path of found) { // `found` grows: a for loop also visits what is added
    const [fx, fy] = path.points[0];
    found.push(...paths.filter(({points, arrow}) => !arrow && !found.includes(points) && points.at(-1)[0] === fx
      && Math.abs(points.at(-1)[1] - fy) < 0.5));
  }
  return new Set(found);
}

function countOf({column}, {source, target_in: target}) {
  return Math.max(1, column === "decoder" ? target.length : source.length);
}

/** One small bar for each token. */
function vectorsOf(tokens) {
  const count = Math.min(tokens, MOST), gap = Math.min(16, 190 / count);
  return s("g", {class: "vectors", aria: {hidden: true}}, Array.from({length: count}, (_, i) =>
    s("rect", {x: (i - (count - 1) / 2) * gap - 3, y: -5.5, width: 6, height: 11, rx: 2})));
}
