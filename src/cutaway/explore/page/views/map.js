// The architecture as a diagram. A click on a box shows its equation, its values and its code.

import {h, s, fill, scrollBehaviour} from "../dom.js";
import {matrixOf, meanOf} from "../matrix.js";
import {inNounsOf, nounsOf} from "../nouns.js";
import {layOutModel, partsByName} from "./diagram.js";
import {breadcrumb, parameterCount, partPanel} from "./partpanel.js";
import {player} from "./play.js";
import {errorLine, latest, waitingLine} from "./requests.js";

const DELAY = 150; // milliseconds before the panel says that it is waiting
const CACHE_SIZE = 30; // parts
const MARGIN = 6; // around the diagram
const THUMBNAIL_CELLS = 10; // per side of the small attention matrix in a box

export const view = {id: "map", title: "Architecture", applies: (run) => Boolean(run.parts), create,
  about: (run) => inNounsOf(run, "The model as it was built. Press Play to follow the tokens through it, or click a box "
    + "to see its numbers.")};

function create(context) {
  const drawing = h("div", {class: "drawing box"});
  const panel = h("div", {class: "card panel-part", aria: {live: "off"}});
  const play = player({drawing, open: (name) => go(name)});
  const element = h("div", {class: "view-map"}, play.element, drawing, panel);
  const send = latest();
  const answers = new Map();
  let drawn = null;
  let wanted = null;
  panel.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    event.preventDefault(); // it does not end the tour, too
    focusBox();
  });

  function show(trace, state) {
    const run = context.run();
    const now = [run, trace, state.layers ?? null, JSON.stringify(state.off)];
    if (!drawn || now.some((each, i) => each !== drawn[i])) draw(now, run, trace, state);
    const name = partsByName(run.parts).has(state.part) ? state.part || null : null; // the run may not have this part
    mark(name);
    open(name, run, state);
  }

  function draw(now, run, trace, state) {
    drawn = now;
    const focused = drawing.contains(document.activeElement) ? document.activeElement.dataset.name : null;
    const {scrollLeft, scrollTop} = drawing;
    const first = !drawing.firstChild;
    const expand = (all) => context.state.set({layers: all ? "all" : null}, {replace: true});
    const {svg, elements} = diagram(run, trace, state, {go, expand});
    fill(drawing, svg);
    play.use({svg, elements, trace, run});
    if (first) requestAnimationFrame(scrollToStart);
    else drawing.scrollTo(scrollLeft, scrollTop);
    if (focused) [...drawing.querySelectorAll("[data-name]")].find((each) => each.dataset.name === focused)?.focus();
  }

  // To the selected box, or to the input at the bottom left, because data flow upwards.
  function scrollToStart() {
    const here = drawing.querySelector(".here");
    const [box, at] = [drawing.getBoundingClientRect(), here?.getBoundingClientRect()];
    if (at) drawing.scrollTo(at.left - box.left - 20, at.top - box.top - drawing.clientHeight / 3);
    else drawing.scrollTop = drawing.scrollHeight;
  }

  function mark(name) {
    for (const each of drawing.querySelectorAll("[data-name]")) {
      const here = name !== null && (each.dataset.name === name || (name.startsWith(`${each.dataset.name}.`)
        && !hasSmallerBox(name, each.dataset.name)));
      each.classList.toggle("here", here);
      if (here) each.setAttribute("aria-current", "true");
      else each.removeAttribute("aria-current");
    }
  }

  // A box is marked for its sub-parts too, unless a smaller box contains them.
  function hasSmallerBox(name, box) {
    return [...drawing.querySelectorAll("[data-name]")].some((each) => each.dataset.name.length > box.length
      && (name === each.dataset.name || name.startsWith(`${each.dataset.name}.`)));
  }

  function go(name, byKey = false) {
    wantsFocus = byKey;
    const same = (context.state.read().part ?? null) === (name || null);
    context.state.set({part: name || null});
    if (same) showPanel();
  }
  let wantsFocus = false;

  async function open(name, run, state) {
    const request = name === null ? null : context.request({name});
    const key = JSON.stringify([run.path, name, request, state.off]);
    if (key === wanted) return;
    const moved = wanted !== null;
    wanted = key;
    if (name === null) {
      fill(panel, overview(run, go));
      if (moved) showPanel();
      return;
    }
    const slow = setTimeout(() => fill(panel, waitingLine("Running the model …")), answers.has(key) ? 1e6 : DELAY);
    panel.setAttribute("aria-busy", "true");
    try {
      const answer = answers.get(key) ?? await send((signal) => context.source.part(request, signal));
      if (!answer || key !== wanted) return;
      store(key, answer);
      clearTimeout(slow);
      fill(panel, partPanel(answer, {part: partsByName(run.parts).get(name), go, crumbs: crumbsOf(run, name),
        off: switchRow(run, name, state, context)}));
      if (moved) showPanel();
    } catch (error) {
      if (key === wanted) fill(panel, breadcrumb(crumbsOf(run, name), go), errorLine(error));
    } finally {
      clearTimeout(slow);
      if (key === wanted) panel.removeAttribute("aria-busy");
    }
  }

  function store(key, answer) {
    answers.set(key, answer);
    if (answers.size > CACHE_SIZE) answers.delete(answers.keys().next().value);
  }

  // Scroll to the panel on a narrow page, and focus its title after a key press.
  function showPanel() {
    const title = panel.querySelector("h2");
    if (!title) return;
    const stacked = panel.getBoundingClientRect().top > drawing.getBoundingClientRect().bottom - 4;
    const above = panel.getBoundingClientRect().top < 0;
    if (stacked || above) panel.scrollIntoView({block: "start", behavior: scrollBehaviour()});
    if (wantsFocus || document.activeElement === document.body) title.focus({preventScroll: true});
    else context.announce(`${title.textContent}: see the details next to the diagram.`);
    wantsFocus = false;
  }

  function focusBox() {
    (drawing.querySelector(".here") ?? drawing.querySelector("[data-name]"))?.focus();
  }

  return {element, show, key: play.key};
}

/** "encoder.layers.0.self_attention" -> the model, encoder, layer 0, self-attention; without module lists. */
function crumbsOf(run, name) {
  const parts = partsByName(run.parts);
  const words = name.split(".");
  const crumbs = [{name: "", title: run.name || "model"}];
  words.forEach((_, i) => {
    const part = parts.get(words.slice(0, i + 1).join("."));
    if (part && part.kind !== "ModuleList") crumbs.push({name: part.name, title: crumbTitle(part)});
  });
  return crumbs;
}

function crumbTitle(part) {
  const last = part.name.split(".").at(-1);
  if (part.kind === "Probe") return last;
  const title = part.title || last.replaceAll("_", " ");
  return title.slice(0, 1).toLowerCase() + title.slice(1);
}

// ---------------------------------------------------------------- switches

/** The switches of a part: for the part itself, and for its heads. */
function switchesFor(run, name) {
  const at = /^(encoder|decoder)\.layers\.(\d+)(?:\.(self_attention|cross_attention|feed_forward))?$/.exec(name);
  if (!at) return [];
  const [, stack, layer, part] = at;
  return (run.switches ?? []).filter((each) => each.stack === stack && each.layer === Number(layer)
    && (part ? each.part === part || each.part === "block" : each.part === "block"));
}

/** {whole: whether the part is off, heads: [numbers of heads that are off]} */
function offState(run, name, off) {
  const chosen = switchesFor(run, name).filter((each) => off.includes(each.id));
  const heads = chosen.filter((each) => each.kind === "head").map((each) => each.head).sort((a, b) => a - b);
  const all = switchesFor(run, name).filter((each) => each.kind === "head").length;
  return {whole: chosen.some((each) => each.kind === "sublayer") || (all > 0 && heads.length === all), heads};
}

function switchRow(run, name, state, context) {
  const whole = switchesFor(run, name).find((each) => each.kind === "sublayer");
  if (!whole || context.info.recorded) return null;
  const isOff = state.off.includes(whole.id);
  const {heads} = offState(run, name, state.off);
  const others = state.off.filter((id) => id !== whole.id);
  const note = isOff ? "This part is off. It adds nothing to the residual stream."
    : heads.length ? `Head ${heads.join(", ")} is off.` : "to see the output without this part.";
  return h("p", {class: "row"},
    h("button", {type: "button", class: "button quiet", aria: {pressed: isOff},
      onclick: () => context.state.set({off: isOff ? others : [...others, whole.id]})},
      isOff ? "Switch it on" : "Switch it off"),
    h("span", {class: "small dim"}, note));
}

// ---------------------------------------------------------------- the diagram

const ORDER = {frame: 0, path: 1, text: 2, label: 3, more: 3, box: 3, plus: 3}; // higher values are drawn on top

/** {svg, elements}: the drawing, and the element of each item of the layout. */
function diagram(run, trace, state, {go, expand}) {
  const plan = layOutModel(run, trace, {open: state.layers === "all"});
  const [wide, high] = [plan.width + 2 * MARGIN, plan.height + 2 * MARGIN];
  const label = `The architecture of ${run.name}. Data flows upwards. Each box is a button that shows its details.`;
  const svg = s("svg", {class: "plan", width: wide, height: high, viewBox: `${-MARGIN} ${-MARGIN} ${wide} ${high}`,
    role: "group", aria: {label}}, markers());
  const buttons = [], elements = new Map();
  const shapes = {label: labelShape, plus: plusShape, box: boxShape};
  for (const item of [...plan.items].sort((a, b) => ORDER[a.type] - ORDER[b.type])) {
    if (item.type in STATIC_SHAPES) append(item, STATIC_SHAPES[item.type](item));
    else if (item.type === "more") button(item, () => expand(!item.folds), moreLabel(item), moreShape(item));
    else {
      const shape = shapes[item.type](item, run, trace, state);
      button(item, (byKey) => go(item.name, byKey), labelOf(item, run, state.off), shape);
    }
  }
  svg.addEventListener("keydown", (event) => moveFocus(event, buttons));
  return {svg, elements};

  function append(item, shape) {
    elements.set(item, shape);
    svg.append(shape);
  }

  function button(item, act, label, shape) {
    const press = (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      act(true);
    };
    const group = s("g", {class: `part ${item.type} ${item.className ?? ""}`, role: "button", tabindex: 0,
      aria: {label}, data: {name: item.name ?? `more ${item.column}`},
      onclick: () => act(false), onkeydown: press},
      s("title", {}, label), shape);
    buttons.push({group, x: item.x + item.width / 2, y: item.y + item.height / 2});
    append(item, group);
  }
}

const STATIC_SHAPES = {
  frame: ({x, y, width, height}) => s("rect", {class: "frame", x, y, width, height, rx: 10}),
  path: ({points, arrow, className = ""}) => s("path", {class: `flow ${className}`, d: rounded(points),
    "marker-end": arrow ? `url(#tip${className === "memory" ? "-memory" : ""})` : null}),
  text: ({x, y, text, end, className = ""}) => s("text", {class: `caption ${className}`, x, y,
    "text-anchor": end ? "end" : "middle"}, text),
};

function markers() {
  const tip = (id, name) => s("marker", {id, viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 6.5, markerHeight: 6.5,
    orient: "auto-start-reverse"}, s("path", {class: name, d: "M0 .8 7 4 0 7.2z"}));
  return s("defs", {}, tip("tip", "tip"), tip("tip-memory", "tip memory"), tip("tip-lit", "tip lit"));
}

/** A path of straight lines with round corners. */
function rounded(points) {
  const radius = 7;
  const towards = ([x0, y0], [x1, y1], by) => {
    const length = Math.hypot(x1 - x0, y1 - y0) || 1;
    const share = Math.min(by, length / 2) / length;
    return [x0 + (x1 - x0) * share, y0 + (y1 - y0) * share];
  };
  const inner = points.slice(1, -1).map((corner, i) => {
    const [before, after] = [towards(corner, points[i], radius), towards(corner, points[i + 2], radius)];
    return `L${before}Q${corner} ${after}`;
  });
  return `M${points[0]}${inner.join("")}L${points.at(-1)}`;
}

function labelOf(item, run, off) {
  const where = /layers\.(\d+)/.exec(item.name);
  const place = item.type === "label" || !where ? "" : `, ${item.column} layer ${where[1]}`;
  const {whole, heads} = offState(run, item.name, off);
  const state = whole ? " Switched off." : "";
  if (item.type === "label") return `${item.column} ${item.title}.${state}`;
  const sub = subtitle(item, whole, heads);
  const inputs = item.adds ? `${item.from} and ${item.adds}` : item.from;
  const memory = item.memory ? " and the memory of the encoder" : "";
  return `${item.title}${sub ? `, ${sub}` : ""}${place}. Input: ${inputs}${memory}.${state}`;
}

/** The second line of a box: the heads that are off, or what it computes. */
function subtitle(item, whole, heads) {
  return heads.length && !whole ? `✕ head ${heads.join(", ")} off` : item.sub;
}

function moreLabel({title, sub}) {
  return title ? `${title}: ${sub}` : sub;
}

function labelShape(item) {
  const left = item.side === "left";
  const x = left ? item.x + item.width - 8 : item.x + 8;
  return [s("rect", {class: "hit", x: left ? x - 52 : x - 4, y: item.y - 2, width: 56, height: 18, rx: 4}),
    s("text", {class: "layer", x, y: item.y + 11, "text-anchor": left ? "end" : "start"}, item.title)];
}

function plusShape(item) {
  const [x, y, r] = [item.x + item.width / 2, item.y + item.height / 2, item.width / 2];
  return [s("circle", {class: "shape", cx: x, cy: y, r}),
    s("path", {class: "sign", d: `M${x - 4} ${y}h8M${x} ${y - 4}v8`})];
}

function moreShape(item) {
  const middle = item.x + item.width / 2;
  const pile = item.folds ? [] : [6, 3].map((by) => s("rect", {class: "pile", x: item.x + by, y: item.y - by,
    width: item.width - 2 * by, height: item.height, rx: 10}));
  return [...pile, s("rect", {class: "shape", x: item.x, y: item.y, width: item.width, height: item.height, rx: 10}),
    item.title && s("text", {class: "title", x: middle, y: item.y + 19, "text-anchor": "middle"}, item.title),
    s("text", {class: "sub", x: middle, y: item.y + (item.title ? 35 : 17), "text-anchor": "middle"}, item.sub)];
}

function boxShape(item, run, trace, state) {
  const {x, y, width, height, thin} = item;
  const {whole, heads} = offState(run, item.name, state.off);
  const matrix = item.weights && !item.narrow
    ? smallMatrix(trace, item.weights, x + width - height + 4, y + 4, height - 8) : null;
  const middle = x + (matrix ? (width - height + 8) / 2 : width / 2);
  const sub = subtitle(item, whole, heads);
  const text = (name, up, content) => s("text", {class: name, x: middle, y: y + up, "text-anchor": "middle"}, content);
  return [s("rect", {class: "shape", x, y, width, height, rx: thin ? height / 2 : 6}),
    text(thin ? "small-title" : item.narrow ? "title narrow" : "title", thin ? height / 2 + 4 : 17, item.title), " ",
    !thin && sub && text(`sub${heads.length ? " off" : ""}`, 32, sub), matrix,
    whole && s("path", {class: "crossed", d: `M${x} ${y}l${width} ${height}M${x + width} ${y}l${-width} ${height}`})];
}

/** The mean attention of all heads for this text, max-pooled to at most ten by ten cells. */
function smallMatrix(trace, name, x, y, side) {
  const matrix = matrixOf(trace, name);
  if (!matrix?.rows || !matrix.columns) return null;
  const mean = meanOf(matrix);
  const [rows, columns] = [Math.min(THUMBNAIL_CELLS, matrix.rows), Math.min(THUMBNAIL_CELLS, matrix.columns)];
  const cells = Array.from({length: rows}, () => new Float32Array(columns));
  for (let q = 0; q < matrix.rows; q++) {
    const line = cells[Math.floor((q * rows) / matrix.rows)];
    mean.row(0, q).forEach((weight, k) => {
      const at = Math.floor((k * columns) / matrix.columns);
      if (weight > line[at]) line[at] = weight;
    });
  }
  const [wide, tall] = [side / columns, side / rows];
  const square = (weight, q, k) => weight > 0.03 && s("rect", {class: "ink", x: (x + k * wide).toFixed(2),
    y: (y + q * tall).toFixed(2), width: wide.toFixed(2), height: tall.toFixed(2),
    "fill-opacity": Math.min(1, weight ** 0.75).toFixed(2)});
  return s("g", {class: "matrix", aria: {hidden: true}}, s("rect", {class: "paper", x, y, width: side, height: side}),
    cells.map((line, q) => Array.from(line, (weight, k) => square(weight, q, k))));
}

/** Arrow keys move the focus to the nearest box in that direction. */
function moveFocus(event, buttons) {
  const direction = {ArrowUp: [0, -1], ArrowDown: [0, 1], ArrowLeft: [-1, 0], ArrowRight: [1, 0]}[event.key];
  const here = buttons.find((each) => each.group === document.activeElement);
  if (!direction || !here) return;
  event.preventDefault();
  const distance = (each) => {
    const [dx, dy] = [each.x - here.x, each.y - here.y];
    const ahead = dx * direction[0] + dy * direction[1];
    const aside = Math.abs(dx * direction[1]) + Math.abs(dy * direction[0]);
    return ahead > 1 ? ahead + 3 * aside : Infinity;
  };
  const next = buttons.reduce((best, each) => (distance(each) < distance(best) ? each : best), here);
  if (next === here) return;
  next.group.focus();
  next.group.scrollIntoView({block: "nearest", inline: "nearest"});
}

// ---------------------------------------------------------------- the panel without a selected box

const FAMILIES = {
  EncoderDecoder: "An encoder-decoder, as in the paper. The encoder reads the source; the decoder writes the target.",
  DecoderOnly: "A decoder. It predicts the next token from the tokens so far.",
  EncoderOnly: "An encoder. It reads the whole text at once.",
  VisionTransformer: "A Vision Transformer: an encoder whose tokens are the patches of an image."};
const howTo = (input) =>
  `Data flows upwards. Click a box to see its equation, its values for the ${input} above, and its code. `
  + "The small matrices in the attention boxes show the attention weights, averaged over all heads.";
const PLACEMENTS = {pre: "before each sub-layer (pre-norm)", post: "after each sum (post-norm, as in the paper)",
  sandwich: "before and after each sub-layer (sandwich)"};

const REACH = {full: "no limit on the distance between tokens", window: "between near tokens",
  sparse: "between near and some distant tokens", linear: "linear attention"};

function attentionText(config) {
  const fewer = config.n_kv_heads && config.n_kv_heads !== config.n_heads;
  const shared = fewer ? `, ${config.n_kv_heads} key-value heads` : "";
  const width = config.d_head || config.d_model / config.n_heads;
  return `${config.n_heads} heads of width ${width}${shared}; ${REACH[config.attention]}`;
}

function sharesMatrices(config) {
  return config.family !== "vision" && config.embeddings !== "separate";
}

function overview(run, go) {
  const {config} = run;
  const stacks = {EncoderDecoder: ["encoder", "decoder"], DecoderOnly: ["decoder"]}[run.parts.kind] ?? ["encoder"];
  const facts = [
    ["layers", stacks.map((stack) => `${config[`${stack}_layers`]} in the ${stack}`).join(", ")],
    ["width", `${config.d_model}, feed-forward ${config.d_ff}`],
    ["attention", inNounsOf(run, attentionText(config))],
    ["positions", config.position.replaceAll("_", " ")],
    ["norm", `${config.norm === "rms" ? "RMS" : "layer"} norm, ${PLACEMENTS[config.norm_placement]}`],
    ["sub-layers", config.block === "parallel" ? "attention and feed-forward in parallel"
      : "attention, then feed-forward"],
    config.experts ? ["experts", `${config.experts}, ${config.experts_per_token} for each token`] : null,
    run.parts.kind === "VisionTransformer"
      ? ["image", `${config.image_size} × ${config.image_size}, patches of ${config.patch_size}`]
      : ["vocabulary", run.vocab_size?.toLocaleString("en") ?? "–"],
    ["parameters",
      run.parameters.toLocaleString("en") + (sharesMatrices(config) ? ", shared matrices counted once" : "")],
  ].filter(Boolean);
  const link = (part) => h("li", {}, h("button", {type: "button", class: "inside", onclick: () => go(part.name)},
    h("span", {class: "what"}, part.title || part.name),
    h("span", {class: "small dim"}, parameterCount(part))));
  const rows = facts.map(([name, text]) => h("tr", {}, h("th", {scope: "row"}, name), h("td", {}, text)));
  return [h("h2", {tabindex: -1, class: "part-title"}, run.name), h("p", {}, FAMILIES[run.parts.kind] ?? ""),
    h("p", {}, howTo(nounsOf(run.task).input)),
    h("table", {class: "facts-table"}, h("tbody", {}, rows)),
    h("h3", {}, "Parts"), h("ul", {class: "children"}, (run.parts.parts ?? []).map(link))];
}
