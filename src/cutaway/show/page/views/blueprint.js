// The model as a drawing, from its parts and its configuration: where each box stands, and what runs between them.
//
// Everything is laid out upwards, as data flows: `up` counts from the bottom, and is turned over at the end.
//
//      pre                 post               sandwich             parallel
//
//       ┌─▶ +               norm                ┌─▶ +              ┌──▶ +
//       │   f                 ▲                 │   norm           │  ┌─┴─┐
//       │  norm             ┌─▶ +               │   f              │  f   g
//       └── ┤               │   f               │  norm            │  └─┬─┘
//           x               └── ┤               └── ┤              │   norm
//                               x                   x              └── ┤ x

const BOX = 40;
const NORM = 20;
const PLUS = 9; // radius
const GAP = 10;
const PAD = 12; // between a layer's frame and what is in it
const LANE = 26; // beside the boxes, for the residual path
const BUS = 46; // between two columns, for the memory
const COLLAPSED = 46;
const FEW = 4; // layers that are all drawn

const POSITIONS = {sinusoidal: "sinusoids", learned: "learned positions", rope: "rotary", alibi: "ALiBi",
  relative_bias: "relative bias", relative: "relative", none: "no positions"};
const AT_INPUT = new Set(["sinusoidal", "learned"]);
const ACTIVATIONS = {relu: "ReLU", gelu: "GELU", gelu_tanh: "GELU", relu2: "ReLU²", swiglu: "SwiGLU", geglu: "GEGLU"};
const NORMS = {layer: "Layer norm", rms: "RMS norm"};
const ATTENTIONS = {full: "", window: "window, ", sparse: "strided, ", linear: "linear, "};

/** All parts of a run by name. */
export function partsByName(root) {
  const found = new Map();
  const visit = (part) => {
    found.set(part.name, part);
    (part.parts ?? []).forEach(visit);
  };
  visit(root);
  return found;
}

/** {width, height, items} of a run: items are boxes, pluses, frames, lines and texts, in reading order. */
export function blueprint(run, trace, {open = false} = {}) {
  const parts = partsByName(run.parts);
  const config = run.config;
  const kind = run.parts.kind;
  const sheet = {parts, config, trace, open, items: [], wide: wideOf(config, parts)};
  const column = 2 * PAD + LANE + sheet.wide;
  if (kind === "EncoderDecoder") {
    const encoder = drawColumn(sheet, {stack: "encoder", x: 0, lane: "left", embedding: "source_embedding",
      tokens: trace.source.length, input: "source", of: "source"});
    const decoder = drawColumn(sheet, {stack: "decoder", x: column + BUS, lane: "right", embedding: "target_embedding",
      tokens: trace.target_in.length,
      input: "target so far", of: "target", memory: encoder, bus: column + BUS / 2, head: true});
    return finished(sheet, 2 * column + BUS, Math.max(encoder.top, decoder.top));
  }
  const decoding = kind === "DecoderOnly";
  const outside = decoding && config.cross_attention;
  const only = drawColumn(sheet, {stack: decoding ? "decoder" : "encoder", x: outside ? BUS : 0, lane: "right",
    embedding: "embedding", head: true,
    tokens: decoding ? trace.target_in.length : trace.source.length, input: kind === "VisionTransformer" ? "image"
      : "text", of: "text", bus: outside ? BUS / 2 : null});
  return finished(sheet, column + (outside ? BUS : 0), only.top);
}

// Boxes that stand side by side need more room.
function wideOf(config, parts) {
  if (config.block !== "parallel") return 220;
  return parts.has("decoder.layers.0.cross_attention") ? 340 : 260;
}

// Upside down, and all in one list: frames first, so that what is in them lies above.
function finished(sheet, width, top) {
  const height = top + 8;
  for (const item of sheet.items) {
    if (item.type === "path") item.points = item.points.map(([x, up]) => [x, height - up]);
    else item.y = height - item.up - (item.height ?? 0);
  }
  return {width, height, items: sheet.items};
}

function drawColumn(sheet, column) {
  const {config, parts, trace} = sheet;
  const left = column.x + PAD + (column.lane === "left" ? LANE : 0);
  const place = {...column, left, centre: left + sheet.wide / 2, laneX: column.lane === "left" ? column.x + PAD + 4
    : left + sheet.wide + LANE - 4, up: 4, from: ""};
  const size = `[${column.tokens} × ${config.d_model}]`;
  place.size = size;
  text(sheet, place, inputTold(sheet, column));
  place.from = `the ${column.input}`;
  drawEmbedding(sheet, place);
  const layers = [...parts.keys()].filter((name) => new RegExp(`^${column.stack}\\.layers\\.\\d+$`).test(name)).length;
  for (const [from, to] of groups(layers, sheet.open)) {
    if (from === to) drawLayer(sheet, place, from);
    else drawCollapsed(sheet, place, from, to, layers);
  }
  if (layers > FEW && sheet.open) fold(sheet, place);
  const norm = parts.get(`${column.stack}.norm`);
  if (norm && norm.kind !== "Identity") {
    thin(sheet, place, {name: norm.name, title: `Final ${NORMS[config.norm]?.toLowerCase() ?? "norm"}`,
      says: `the last norm of the ${column.stack}`});
  }
  if (column.head) drawHead(sheet, place);
  else place.output = place.up;
  return {top: place.up, centre: place.centre, output: place.output ?? place.up, size, title: place.from,
    tokens: trace.source.length};
}

function inputTold(sheet, column) {
  if (sheet.parts.get("")?.kind === "VisionTransformer") return `image, ${column.tokens} patches`;
  return column.of === "source" ? `source, ${column.tokens} tokens` : column.of === "target"
    ? `target so far, ${column.tokens} tokens` : `text, ${column.tokens} tokens`;
}

/** Which layers to draw: [from, to] with from = to for one, else a collapsed run of them. */
function groups(layers, open) {
  const each = Array.from({length: layers}, (_, i) => [i, i]);
  if (layers <= FEW || open) return each;
  return [each[0], [1, layers - 2], each[layers - 1]];
}

// ---------------------------------------------------------------- pieces; each begins at place.up and moves it

function text(sheet, place, told) {
  sheet.items.push({type: "text", x: place.centre, up: place.up + 4, text: told});
  place.up += 16;
}

/** A line from where we are up to the next piece. */
function rise(sheet, place, by = GAP, arrow = true) {
  sheet.items.push({type: "path", points: [[place.centre, place.up], [place.centre, place.up + by]], arrow});
  place.up += by;
}

function box(sheet, place, given) {
  rise(sheet, place, given.gap ?? GAP);
  sheet.items.push({type: "box", x: place.left, width: sheet.wide, up: place.up, height: BOX, from: place.from,
    sub: place.size, column: place.stack, ...given});
  place.up += BOX;
  place.from = given.says;
}

function thin(sheet, place, given) {
  rise(sheet, place, given.gap ?? GAP);
  sheet.items.push({type: "box", thin: true, x: place.left + 24, width: sheet.wide - 48, up: place.up, height: NORM,
    from: place.from, column: place.stack, className: "norm", ...given});
  place.up += NORM;
  place.from = given.says;
}

function plus(sheet, place, given) {
  rise(sheet, place, GAP);
  sheet.items.push({type: "plus", x: place.centre - PLUS, width: 2 * PLUS, up: place.up, height: 2 * PLUS,
    from: place.from, column: place.stack, ...given});
  place.up += 2 * PLUS;
  place.from = given.says;
}

function drawEmbedding(sheet, place) {
  const {config, parts} = sheet;
  const vision = parts.get("")?.kind === "VisionTransformer";
  const name = place.embedding;
  const title = vision ? "Patch embedding" : place.of === "target" ? "Output embedding" : "Input embedding";
  const inside = AT_INPUT.has(config.position) ? ""
    : `, ${config.position === "none" ? "no positions" : `${POSITIONS[config.position]} in attention`}`;
  box(sheet, place, {name, title, sub: AT_INPUT.has(config.position) ? place.size : `${place.size}${inside}`,
    className: "embedding", says: title.toLowerCase()});
  if (AT_INPUT.has(config.position)) addPositions(sheet, place, name);
  const norm = parts.get(`${name}.norm`);
  if (norm && norm.kind !== "Identity") thin(sheet, place, {name: norm.name, title: NORMS[config.norm],
    says: "the embedding's norm"});
}

// As in the paper's figure: the positions come from the side and are added.
function addPositions(sheet, place, name) {
  const short = sheet.config.position === "sinusoidal" ? "∿ sinusoids" : "learned";
  const left = place.lane === "left";
  const width = 82;
  const x = left ? place.left : place.left + sheet.wide - width;
  const level = place.up + GAP + PLUS;
  sheet.items.push({type: "box", thin: true, x, width, up: level - NORM / 2, height: NORM, className: "position",
    name: `${name}.position`, title: short,
    column: place.stack, from: "the places of the tokens", says: "positions"});
  sheet.items.push({type: "path", arrow: true, points: left ? [[x + width, level], [place.centre - PLUS, level]]
    : [[x, level], [place.centre + PLUS, level]]});
  plus(sheet, place, {name, title: "Add positions", says: "embedding plus positions"});
}

function drawLayer(sheet, place, i) {
  const name = `${place.stack}.layers.${i}`;
  const begin = place.up + 6;
  rise(sheet, place, 6 + PAD, false);
  const frame = {type: "frame", x: place.x, width: 2 * PAD + LANE + sheet.wide, up: begin, name, title: `layer ${i}`,
    column: place.stack, side: place.lane};
  sheet.items.unshift(frame);
  sheet.items.push({...frame, type: "label", up: 0, height: 14, frame});
  if (sheet.parts.has(`${name}.residual`)) parallel(sheet, place, name);
  else sublayers(sheet, place, name).forEach((sub) => sequential(sheet, place, sub));
  rise(sheet, place, sheet.config.norm_placement === "post" ? PAD + 7 : PAD, false);
  frame.height = place.up - begin;
  const label = sheet.items.find((item) => item.type === "label" && item.frame === frame);
  label.up = place.up - 16;
}

function sublayers(sheet, place, name) {
  const {parts} = sheet;
  const found = [{name: `${name}.self_attention`, what: "self"}];
  if (parts.has(`${name}.cross_attention`)) found.push({name: `${name}.cross_attention`, what: "cross"});
  return [...found, {name: `${name}.feed_forward`, what: "feed"}];
}

function describe(sheet, place, {name, what}) {
  const {config} = sheet;
  const heads = `${config.n_heads} heads`;
  const rotary = what === "self" && !AT_INPUT.has(config.position) && config.position !== "none"
    ? `, ${POSITIONS[config.position]}` : "";
  if (what === "self") {
    const masked = place.stack === "decoder";
    return {name, title: masked ? "Masked self-attention" : "Self-attention",
      sub: `${ATTENTIONS[config.attention] ?? ""}${heads}${rotary}`, className: "attention", live: `${name}.weights`,
      says: "self-attention"};
  }
  if (what === "cross") return {name, title: "Cross-attention", sub: heads, className: "attention",
    live: `${name}.weights`, says: "cross-attention", memory: true};
  const experts = sheet.parts.get(name)?.kind === "Experts";
  return {name, title: experts ? `${config.experts} experts` : "Feed-forward", sub: experts
    ? `${config.experts_per_token} a token, ${ACTIVATIONS[config.feed_forward]}`
    : `${config.d_ff} wide, ${ACTIVATIONS[config.feed_forward]}`,
    className: experts ? "feed experts" : "feed", says: experts ? "the experts" : "feed-forward"};
}

// One sub-layer with its residual path, the norm where this model has it.
function sequential(sheet, place, sub) {
  const placement = sheet.config.norm_placement;
  const around = `${sub.name}_residual`;
  rise(sheet, place, 5, false);
  const split = place.up;
  const stream = place.from;
  const short = NORMS[sheet.config.norm];
  if (placement !== "post") thin(sheet, place, {name: `${around}.norm`, title: short, says: `the norm of ${stream}`});
  const about = describe(sheet, place, sub);
  box(sheet, place, about);
  if (about.memory) fromMemory(sheet, place, place.up - BOX / 2);
  if (placement === "sandwich") thin(sheet, place, {name: `${around}.norm_after`, title: short, says: "a second norm"});
  const centre = place.up + GAP + PLUS;
  plus(sheet, place, {name: around, title: "Add", adds: stream, says: `the stream after ${about.says}`});
  skip(sheet, place, split, centre);
  if (placement === "post") thin(sheet, place, {name: `${around}.norm`, title: short,
    says: `the normed stream after ${about.says}`});
}

// All sub-layers side by side, between one norm and one sum.
function parallel(sheet, place, name) {
  const placement = sheet.config.norm_placement;
  const around = `${name}.residual`;
  rise(sheet, place, 5, false);
  const split = place.up;
  const stream = place.from;
  const short = NORMS[sheet.config.norm];
  if (placement !== "post") thin(sheet, place, {name: `${around}.norm`, title: short, says: `the norm of ${stream}`});
  const subs = sublayers(sheet, place,
    name).sort((a, b) => (b.what === "cross") - (a.what === "cross")); // beside the memory
  const width = (sheet.wide - 8 * (subs.length - 1)) / subs.length;
  const [below, from] = [place.up, place.from];
  const low = below + 8;
  const foot = low + GAP;
  const head = foot + BOX + 8;
  sheet.items.push({type: "path", points: [[place.centre, below], [place.centre, low]]});
  subs.forEach((sub, i) => {
    const about = describe(sheet, place, sub);
    const x = place.left + i * (width + 8);
    const middle = x + width / 2;
    sheet.items.push({type: "path", arrow: true, points: [[place.centre, low], [middle, low], [middle, foot]]});
    sheet.items.push({type: "box", narrow: true, x, width, up: foot, height: BOX, from, column: place.stack, ...about,
      ...squeezed(about)});
    sheet.items.push({type: "path", points: [[middle, foot + BOX], [middle, head], [place.centre, head]]});
    if (about.memory) fromMemory(sheet, place, foot + BOX / 2, x);
  });
  place.up = head;
  place.from = "all of them together";
  if (placement === "sandwich") thin(sheet, place, {name: `${around}.norm_after`, title: short, says: "a second norm"});
  const centre = place.up + GAP + PLUS;
  plus(sheet, place, {name: around, title: "Add", adds: stream, says: "the stream after the layer"});
  skip(sheet, place, split, centre);
  if (placement === "post") thin(sheet, place, {name: `${around}.norm`, title: short, says: "the normed stream"});
}

function squeezed({title, sub}) {
  const masked = title.startsWith("Masked");
  return {title: masked ? "Self-attention" : title, sub: `${masked ? "masked, " : ""}${sub.split(",")[0]}`};
}

function skip(sheet, place, split, centre) {
  const end = place.lane === "left" ? place.centre - PLUS : place.centre + PLUS;
  sheet.items.push({type: "path", className: "skip", arrow: true, points: [[place.centre, split], [place.laneX, split],
    [place.laneX, centre], [end, centre]]});
}

// The memory comes up from the encoder, over to the path between the columns, and into each cross-attention.
function fromMemory(sheet, place, level, x = place.left) {
  const start = place.memory ? [[place.memory.centre, place.memory.output], [place.memory.centre, place.memory.output
    + GAP + 4], [place.bus, place.memory.output + GAP + 4]] : [[place.bus, 4]];
  sheet.items.push({type: "path", className: "memory", arrow: true, points: [...start, [place.bus, level],
    [x, level]]});
  if (!place.told) sheet.items.push({type: "text", className: "memory", x: place.bus - 6, up: place.memory
    ? place.memory.output + GAP + 8 : 0, text: place.memory ? `memory ${place.memory.size}` : "memory", end: true});
  place.told = true;
}

function drawCollapsed(sheet, place, from, to) {
  rise(sheet, place, 8);
  const many = to - from + 1;
  sheet.items.push({type: "more", x: place.x, width: 2 * PAD + LANE + sheet.wide, up: place.up, height: COLLAPSED,
    title: `layers ${from} to ${to}`, sub: `× ${many}, built alike: open`, column: place.stack, from: place.from});
  place.up += COLLAPSED;
  place.from = `layer ${to}`;
}

function fold(sheet, place) {
  rise(sheet, place, 8);
  sheet.items.push({type: "more", folds: true, x: place.x, width: 2 * PAD + LANE + sheet.wide, up: place.up, height: 26,
    title: "", sub: "fold the middle layers", column: place.stack, from: place.from});
  place.up += 26;
}

function drawHead(sheet, place) {
  const {config, parts, trace} = sheet;
  const pool = parts.get("head.pool");
  if (pool) {
    const names = {cls: "take the first", mean: "mean over all", max: "greatest of all", attention: "attention pool"};
    box(sheet, place, {name: "head.pool", title: "Pool",
      sub: `${names[config.pooling] ?? config.pooling}, [${config.d_model}]`, className: "head",
      says: "the pooled vector"});
  }
  const answers = config.head === "language" ? config.vocab_size : config.n_classes;
  const rows = pool ? "" : `${trace.target_in.length || trace.source.length} × `;
  const kind = parts.get("head")?.kind;
  const title = {LanguageHead: "Output projection", MaskedLanguageHead: "Masked-language head",
    TagHead: "Tag projection", ClassHead: "Class projection"}[kind] ?? "Head";
  const shared = kind === "LanguageHead" && config.embeddings !== "separate" ? ", shared" : "";
  box(sheet, place, {name: "head", title, sub: `[${rows}${answers}]${shared}`, className: "head", says: "the logits"});
  rise(sheet, place, GAP + 3);
  text(sheet, {...place}, {ClassHead: "softmax: a probability a class",
    TagHead: "softmax: a probability a tag"}[kind] ?? "softmax: a probability a token");
  place.up += 18;
}
