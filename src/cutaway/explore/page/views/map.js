// The architecture as a picture that is also the map: every box opens what it is, what it does, and its code.

import {h, s, fill} from "../dom.js";
import {matrixOf, meanOf} from "../matrix.js";
import {blueprint, partsByName} from "./blueprint.js";
import {breadcrumb, parametersTold, partPanel} from "./partpanel.js";
import {latest, trouble, waiting} from "./asking.js";

const SLOW = 150; // milliseconds before the panel says that it waits
const KEPT = 30; // answers
const MARGIN = 6; // around the drawing
const FINE = 10; // cells along a side of an attention's small picture

export const view = {id: "map", title: "Map", applies: (run) => Boolean(run.parts), create};

function create(context) {
  const drawing = h("div", {class: "drawing box"});
  const panel = h("div", {class: "card panel-part", aria: {live: "off"}});
  const element = h("div", {class: "view-map"}, drawing, panel);
  const ask = latest();
  const answers = new Map();
  let drawn = null;
  let wanted = null;
  panel.addEventListener("keydown", (event) => { if (event.key === "Escape") back(); });

  function show(trace, state) {
    const run = context.run();
    const now = [run, trace, state.layers ?? null, JSON.stringify(state.off)];
    if (!drawn || now.some((each, i) => each !== drawn[i])) draw(now, run, trace, state);
    const name = partsByName(run.parts).has(state.part) ? state.part || null : null; // another run may lack the part
    mark(name);
    open(name, run, state);
  }

  function draw(now, run, trace, state) {
    drawn = now;
    const focused = drawing.contains(document.activeElement) ? document.activeElement.dataset.name : null;
    const {scrollLeft, scrollTop} = drawing;
    const first = !drawing.firstChild;
    fill(drawing, picture(run, trace, state, {go, unfold: (all) => context.state.set({layers: all ? "all" : null},
      {replace: true})}));
    if (first) requestAnimationFrame(settle);
    else drawing.scrollTo(scrollLeft, scrollTop);
    if (focused) [...drawing.querySelectorAll("[data-name]")].find((each) => each.dataset.name === focused)?.focus();
  }

  // The chosen box, or on a narrow page, where the map is cut off at its side, the input at the bottom left.
  function settle() {
    const here = drawing.querySelector(".here");
    const [box, at] = [drawing.getBoundingClientRect(), here?.getBoundingClientRect()];
    if (at) drawing.scrollTo(at.left - box.left - 20, at.top - box.top - drawing.clientHeight / 3);
    else if (drawing.scrollWidth > drawing.clientWidth + 40) drawing.scrollTop = drawing.scrollHeight;
  }

  function mark(name) {
    for (const each of drawing.querySelectorAll("[data-name]")) {
      const here = name !== null && (each.dataset.name === name || (name.startsWith(`${each.dataset.name}.`)
        && !deeper(name, each.dataset.name)));
      each.classList.toggle("here", here);
      if (here) each.setAttribute("aria-current", "true");
      else each.removeAttribute("aria-current");
    }
  }

  // A box is marked for a part inside it too, unless a smaller box shows that part.
  function deeper(name, box) {
    return [...drawing.querySelectorAll("[data-name]")].some((each) => each.dataset.name.length > box.length
      && (name === each.dataset.name || name.startsWith(`${each.dataset.name}.`)));
  }

  function go(name, byKey = false) {
    wantsFocus = byKey;
    const same = (context.state.read().part ?? null) === (name || null);
    context.state.set({part: name || null});
    if (same) arrive();
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
      if (moved) arrive();
      return;
    }
    const slow = setTimeout(() => fill(panel, waiting("Running the model to look inside …")), answers.has(key) ? 1e6
      : SLOW);
    panel.setAttribute("aria-busy", "true");
    try {
      const answer = answers.get(key) ?? await ask((signal) => context.source.part(request, signal));
      if (!answer || key !== wanted) return;
      remember(key, answer);
      clearTimeout(slow);
      fill(panel, partPanel(answer, {part: partsByName(run.parts).get(name), go, crumbs: crumbsOf(run, name),
        off: switchesOf(run, name, state, context)}));
      if (moved) arrive();
    } catch (error) {
      if (key === wanted) fill(panel, breadcrumb(crumbsOf(run, name), go), trouble(error));
    } finally {
      clearTimeout(slow);
      if (key === wanted) panel.removeAttribute("aria-busy");
    }
  }

  function remember(key, answer) {
    answers.set(key, answer);
    if (answers.size > KEPT) answers.delete(answers.keys().next().value);
  }

  // Whoever came by keyboard reads on in the panel; on a narrow page it has to be brought into sight.
  function arrive() {
    const title = panel.querySelector("h2");
    if (!title) return;
    const stacked = panel.getBoundingClientRect().top > drawing.getBoundingClientRect().bottom - 4;
    const above = panel.getBoundingClientRect().top < 0;
    const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
    if (stacked || above) panel.scrollIntoView({block: "start", behavior: calm ? "auto" : "smooth"});
    if (wantsFocus || document.activeElement === document.body) title.focus({preventScroll: true});
    else context.announce(`${title.textContent}: described beside the map.`);
    wantsFocus = false;
  }

  function back() {
    (drawing.querySelector(".here") ?? drawing.querySelector("[data-name]"))?.focus();
  }

  return {element, show};
}

/** "encoder.layers.0.self_attention" -> the whole model, encoder, layer 0, self-attention; lists are left out. */
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

// ---------------------------------------------------------------- what is switched off

/** The switches that belong to a part: itself, or its heads. */
function switchesFor(run, name) {
  const at = /^(encoder|decoder)\.layers\.(\d+)(?:\.(self_attention|cross_attention|feed_forward))?$/.exec(name);
  if (!at) return [];
  const [, stack, layer, part] = at;
  return (run.switches ?? []).filter((each) => each.stack === stack && each.layer === Number(layer)
    && (part ? each.part === part || each.part === "block" : each.part === "block"));
}

/** {whole: is it all off, heads: [numbers of heads that are]} */
function offAt(run, name, off) {
  const chosen = switchesFor(run, name).filter((each) => off.includes(each.id));
  const heads = chosen.filter((each) => each.kind === "head").map((each) => each.head).sort((a, b) => a - b);
  const all = switchesFor(run, name).filter((each) => each.kind === "head").length;
  return {whole: chosen.some((each) => each.kind === "sublayer") || (all > 0 && heads.length === all), heads};
}

function switchesOf(run, name, state, context) {
  const whole = switchesFor(run, name).find((each) => each.kind === "sublayer");
  if (!whole || context.info.recorded) return null;
  const isOff = state.off.includes(whole.id);
  const {heads} = offAt(run, name, state.off);
  const others = state.off.filter((id) => id !== whole.id);
  const told = isOff ? "It is switched off: what it would add to the stream is left out."
    : heads.length ? `Head ${heads.join(", ")} switched off.` : "and see what the model says without it.";
  return h("p", {class: "row"},
    h("button", {type: "button", class: "button quiet", aria: {pressed: isOff},
      onclick: () => context.state.set({off: isOff ? others : [...others, whole.id]})},
      isOff ? "Switch it on again" : "Switch it off"),
    h("span", {class: "small dim"}, told));
}

// ---------------------------------------------------------------- the picture

const ABOVE = {frame: 0, path: 1, text: 2, label: 3, more: 3, box: 3, plus: 3}; // what is drawn over what

function picture(run, trace, state, {go, unfold}) {
  const plan = blueprint(run, trace, {open: state.layers === "all"});
  const [wide, high] = [plan.width + 2 * MARGIN, plan.height + 2 * MARGIN];
  const label = `The architecture of ${run.name}. Data flows upwards; each box opens its details.`;
  const svg = s("svg", {class: "plan", width: wide, height: high, viewBox: `${-MARGIN} ${-MARGIN} ${wide} ${high}`,
    role: "group", aria: {label}}, markers());
  const buttons = [];
  const faces = {label: labelFace, plus: plusFace, box: boxFace};
  for (const item of [...plan.items].sort((a, b) => ABOVE[a.type] - ABOVE[b.type])) {
    if (item.type in LINES) svg.append(LINES[item.type](item));
    else if (item.type === "more") button(item, () => unfold(!item.folds), moreTold(item), moreFace(item));
    else {
      const face = faces[item.type](item, run, trace, state);
      button(item, (byKey) => go(item.name, byKey), labelOf(item, run, state.off), face);
    }
  }
  svg.addEventListener("keydown", (event) => walk(event, buttons));
  return svg;

  function button(item, act, told, face) {
    const press = (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      act(true);
    };
    const group = s("g", {class: `part ${item.type} ${item.className ?? ""}`, role: "button", tabindex: 0,
      aria: {label: told}, data: {name: item.name ?? `more ${item.column}`},
      onclick: () => act(false), onkeydown: press},
      s("title", {}, told), face);
    buttons.push({group, x: item.x + item.width / 2, y: item.y + item.height / 2});
    svg.append(group);
  }
}

const LINES = {
  frame: ({x, y, width, height}) => s("rect", {class: "frame", x, y, width, height, rx: 10}),
  path: ({points, arrow, className = ""}) => s("path", {class: `flow ${className}`, d: rounded(points),
    "marker-end": arrow ? `url(#tip${className === "memory" ? "-memory" : ""})` : null}),
  text: ({x, y, text, end, className = ""}) => s("text", {class: `told ${className}`, x, y,
    "text-anchor": end ? "end" : "middle"}, text),
};

function markers() {
  const tip = (id, name) => s("marker", {id, viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 6.5, markerHeight: 6.5,
    orient: "auto-start-reverse"}, s("path", {class: name, d: "M0 .8 7 4 0 7.2z"}));
  return s("defs", {}, tip("tip", "tip"), tip("tip-memory", "tip memory"));
}

/** Points joined by straight lines with round corners. */
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
  const {whole, heads} = offAt(run, item.name, off);
  const state = whole ? " Switched off." : heads.length ? ` Head ${heads.join(", ")} switched off.` : "";
  if (item.type === "label") return `${item.column} ${item.title}.${state}`;
  const fed = item.adds ? `${item.from} and ${item.adds}` : item.from;
  const memory = item.memory ? ", and by the memory of the encoder" : "";
  return `${item.title}${place}${item.sub ? `, ${item.sub}` : ""}. Fed by ${fed}${memory}.${state}`;
}

function moreTold({title, sub}) {
  return title ? `${title}: ${sub}` : sub;
}

function labelFace(item) {
  const left = item.side === "left";
  const x = left ? item.x + item.width - 8 : item.x + 8;
  return [s("rect", {class: "hit", x: left ? x - 52 : x - 4, y: item.y - 2, width: 56, height: 18, rx: 4}),
    s("text", {class: "layer", x, y: item.y + 11, "text-anchor": left ? "end" : "start"}, item.title)];
}

function plusFace(item) {
  const [x, y, r] = [item.x + item.width / 2, item.y + item.height / 2, item.width / 2];
  return [s("circle", {class: "shape", cx: x, cy: y, r}),
    s("path", {class: "sign", d: `M${x - 4} ${y}h8M${x} ${y - 4}v8`})];
}

function moreFace(item) {
  const middle = item.x + item.width / 2;
  const pile = item.folds ? [] : [6, 3].map((by) => s("rect", {class: "pile", x: item.x + by, y: item.y - by,
    width: item.width - 2 * by, height: item.height, rx: 10}));
  return [...pile, s("rect", {class: "shape", x: item.x, y: item.y, width: item.width, height: item.height, rx: 10}),
    item.title && s("text", {class: "title", x: middle, y: item.y + 19, "text-anchor": "middle"}, item.title),
    s("text", {class: "sub", x: middle, y: item.y + (item.title ? 35 : 17), "text-anchor": "middle"}, item.sub)];
}

function boxFace(item, run, trace, state) {
  const {x, y, width, height, thin} = item;
  const {whole, heads} = offAt(run, item.name, state.off);
  const live = item.live && !item.narrow ? glimpse(trace, item.live, x + width - height + 4, y + 4, height - 8) : null;
  const middle = x + (live ? (width - height + 8) / 2 : width / 2);
  const sub = heads.length && !whole ? `✕ head ${heads.join(", ")} off` : item.sub;
  const text = (name, up, told) => s("text", {class: name, x: middle, y: y + up, "text-anchor": "middle"}, told);
  return [s("rect", {class: "shape", x, y, width, height, rx: thin ? height / 2 : 6}),
    text(thin ? "small-title" : item.narrow ? "title narrow" : "title", thin ? height / 2 + 4 : 17, item.title),
    !thin && sub && text(`sub${heads.length ? " off" : ""}`, 32, sub), live,
    whole && s("path", {class: "crossed", d: `M${x} ${y}l${width} ${height}M${x + width} ${y}l${-width} ${height}`})];
}

/** The attention of all heads together on this very text, ten by ten cells at the most. */
function glimpse(trace, name, x, y, side) {
  const matrix = matrixOf(trace, name);
  if (!matrix?.rows || !matrix.columns) return null;
  const mean = meanOf(matrix);
  const [rows, columns] = [Math.min(FINE, matrix.rows), Math.min(FINE, matrix.columns)];
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
  return s("g", {class: "glimpse", aria: {hidden: true}}, s("rect", {class: "paper", x, y, width: side, height: side}),
    cells.map((line, q) => Array.from(line, (weight, k) => square(weight, q, k))));
}

/** Arrow keys: to the nearest box that way. */
function walk(event, buttons) {
  const way = {ArrowUp: [0, -1], ArrowDown: [0, 1], ArrowLeft: [-1, 0], ArrowRight: [1, 0]}[event.key];
  const here = buttons.find((each) => each.group === document.activeElement);
  if (!way || !here) return;
  event.preventDefault();
  const distance = (each) => {
    const [dx, dy] = [each.x - here.x, each.y - here.y];
    const ahead = dx * way[0] + dy * way[1];
    const aside = Math.abs(dx * way[1]) + Math.abs(dy * way[0]);
    return ahead > 1 ? ahead + 3 * aside : Infinity;
  };
  const next = buttons.reduce((best, each) => (distance(each) < distance(best) ? each : best), here);
  if (next === here) return;
  next.group.focus();
  next.group.scrollIntoView({block: "nearest", inline: "nearest"});
}

// ---------------------------------------------------------------- before a box is chosen

const FAMILIES = {EncoderDecoder: "An encoder that reads and a decoder that writes: the Transformer of the paper.",
  DecoderOnly: "A decoder alone: it reads what is written so far and says what comes next.",
  EncoderOnly: "An encoder alone: it reads the whole text at once.",
    VisionTransformer: "An encoder that reads an image as if its patches were words."};
const HOW_TO = "Data flows upwards. Choose a box to see its equation, the numbers that go through it for the text "
  + "above, and the code that computes them. The small squares in the attention boxes show who looks at whom.";
const PLACEMENTS = {pre: "before each sub-layer (pre-norm)", post: "after each sum (post-norm, as in the paper)",
  sandwich: "before and after each sub-layer (sandwich)"};

function attentionTold(config) {
  const fewer = config.n_kv_heads && config.n_kv_heads !== config.n_heads;
  const shared = fewer ? `, ${config.n_kv_heads} of keys and values` : "";
  return `${config.n_heads} heads of ${config.d_head || config.d_model / config.n_heads}${shared}, ${config.attention}`;
}

function overview(run, go) {
  const {config} = run;
  const stacks = {EncoderDecoder: ["encoder", "decoder"], DecoderOnly: ["decoder"]}[run.parts.kind] ?? ["encoder"];
  const facts = [
    ["layers", stacks.map((stack) => `${config[`${stack}_layers`]} in the ${stack}`).join(", ")],
    ["width", `${config.d_model}, feed-forward ${config.d_ff}`],
    ["attention", attentionTold(config)],
    ["positions", config.position.replaceAll("_", " ")],
    ["norm", `${config.norm === "rms" ? "RMS" : "layer"} norm, ${PLACEMENTS[config.norm_placement]}`],
    ["block", config.block === "parallel" ? "all sub-layers at once (parallel)" : "one sub-layer after the other"],
    config.experts ? ["experts", `${config.experts}, of which each token asks ${config.experts_per_token}`] : null,
    run.parts.kind === "VisionTransformer"
      ? ["image", `${config.image_size} × ${config.image_size}, patches of ${config.patch_size}`]
      : ["vocabulary", run.vocab_size?.toLocaleString("en") ?? "–"],
    ["parameters", run.parameters.toLocaleString("en")],
  ].filter(Boolean);
  const link = (part) => h("li", {}, h("button", {type: "button", class: "inside", onclick: () => go(part.name)},
    h("span", {class: "what"}, part.title || part.name),
    h("span", {class: "small dim"}, parametersTold(part.parameters))));
  const rows = facts.map(([name, told]) => h("tr", {}, h("th", {scope: "row"}, name), h("td", {}, told)));
  return [h("h2", {tabindex: -1, class: "part-title"}, run.name), h("p", {}, FAMILIES[run.parts.kind] ?? ""),
    h("p", {}, HOW_TO),
    h("table", {class: "facts-table"}, h("tbody", {}, rows)),
    h("h3", {}, "Its parts"), h("ul", {class: "children"}, (run.parts.parts ?? []).map(link))];
}
