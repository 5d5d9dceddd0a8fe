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
    const encoder = drawColumn(sheet, {stack: "encoder", embedding: "source_embedding", input: "source",
      x: 0, lane: "left", tokens: trace.source.length});
    const decoder = drawColumn(sheet, {stack: "decoder", embedding: "target_embedding", input: "target so far",
      x: column + BUS, lane: "right", tokens: trace.target_in.length, head: true,
      memory: encoder, bus: column + BUS / 2});
    return finished(sheet, 2 * column + BUS, Math.max(encoder.top, decoder.top));
  }
  const decoding = kind === "DecoderOnly";
  const aside = decoding && config.cross_attention ? BUS : 0; // room for a memory that comes from elsewhere
  const only = drawColumn(sheet, {stack: decoding ? "decoder" : "encoder", embedding: "embedding", head: true,
    input: kind === "VisionTransformer" ? "image" : "text", x: aside, lane: "right", bus: aside / 2,
    tokens: decoding ? trace.target_in.length : trace.source.length});
  return finished(sheet, column + aside, only.top);
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

// From the input at the bottom to the last norm or the head. `place` is where we are, and what came last.
function drawColumn(sheet, column) {
  const {config, parts} = sheet;
  const isLeft = column.lane === "left";
  const left = column.x + PAD + (isLeft ? LANE : 0);
  const place = {...column, left, centre: left + sheet.wide / 2, up: 4, from: `the ${column.input}`,
    laneX: isLeft ? column.x + PAD + 4 : left + sheet.wide + LANE - 4, size: `[${column.tokens} × ${config.d_model}]`};
  text(sheet, place, `${column.input}, ${column.tokens} ${column.input === "image" ? "patches" : "tokens"}`);
  drawEmbedding(sheet, place);
  const isLayer = new RegExp(`^${column.stack}\\.layers\\.\\d+$`);
  const layers = [...parts.keys()].filter((name) => isLayer.test(name)).length;
  for (const [from, to] of groups(layers, sheet.open)) {
    if (from === to) drawLayer(sheet, place, from);
    else drawCollapsed(sheet, place, from, to);
  }
  if (layers > FEW && sheet.open) fold(sheet, place);
  const norm = parts.get(`${column.stack}.norm`);
  if (norm && norm.kind !== "Identity") {
    const title = config.norm === "rms" ? "Final RMS norm" : "Final layer norm";
    thin(sheet, place, {name: norm.name, title, says: `the last norm of the ${column.stack}`});
  }
  const output = place.up;
  if (column.head) drawHead(sheet, place);
  return {top: place.up, centre: place.centre, output, size: place.size};
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
  const name = place.embedding;
  const title = place.input === "image" ? "Patch embedding" : place.memory ? "Output embedding" : "Input embedding";
  const isAdded = AT_INPUT.has(config.position);
  const scheme = config.position === "none" ? "no positions" : `${POSITIONS[config.position]} in attention`;
  box(sheet, place, {name, title, className: "embedding", says: `the ${title.toLowerCase()}`,
    sub: isAdded ? place.size : `${place.size}, ${scheme}`});
  if (isAdded) addPositions(sheet, place, name);
  const norm = parts.get(`${name}.norm`);
  if (norm) thin(sheet, place, {name: norm.name, title: NORMS[config.norm], says: "the embedding's norm"});
}

// As in the paper's figure: the positions come from the side and are added.
function addPositions(sheet, place, name) {
  const isLeft = place.lane === "left";
  const width = 82;
  const x = isLeft ? place.left : place.left + sheet.wide - width;
  const level = place.up + GAP + PLUS;
  const [from, to] = isLeft ? [x + width, place.centre - PLUS] : [x, place.centre + PLUS];
  sheet.items.push({type: "box", thin: true, x, width, up: level - NORM / 2, height: NORM, className: "position",
    name: `${name}.position`, title: sheet.config.position === "sinusoidal" ? "∿ sinusoids" : "learned",
    column: place.stack, from: "the places of the tokens"});
  sheet.items.push({type: "path", arrow: true, points: [[from, level], [to, level]]});
  plus(sheet, place, {name, title: "Add positions", adds: "the positions", says: "the embedding plus positions"});
}

function drawLayer(sheet, place, i) {
  const name = `${place.stack}.layers.${i}`;
  const begin = place.up + 6;
  const frame = {type: "frame", x: place.x, width: 2 * PAD + LANE + sheet.wide, up: begin, name, title: `layer ${i}`,
    column: place.stack, side: place.lane};
  const label = {...frame, type: "label", height: 14};
  sheet.items.push(frame, label);
  rise(sheet, place, 6 + PAD, false);
  if (sheet.parts.has(`${name}.residual`)) parallel(sheet, place, name);
  else for (const sub of sublayers(sheet, name)) sequential(sheet, place, sub);
  rise(sheet, place, sheet.config.norm_placement === "post" ? PAD + 7 : PAD, false);
  frame.height = place.up - begin;
  label.up = place.up - 16;
}

function sublayers(sheet, name) {
  const found = ["self_attention", "cross_attention", "feed_forward"].map((what) => ({name: `${name}.${what}`, what}));
  return found.filter((sub) => sheet.parts.has(sub.name));
}

/** What stands in the box of a sub-layer. */
function describe(sheet, place, {name, what}) {
  const {config} = sheet;
  if (what === "feed_forward") return describeFeedForward(sheet, place, name);
  const look = {name, className: "attention", live: `${name}.weights`, says: what.replace("_", "-")};
  if (what === "cross_attention") {
    return {...look, title: "Cross-attention", sub: `${config.n_heads} heads, ${place.size}`, memory: true};
  }
  const acts = AT_INPUT.has(config.position) || config.position === "none" ? "" : `${POSITIONS[config.position]}, `;
  return {...look, title: place.stack === "decoder" ? "Masked self-attention" : "Self-attention",
    sub: `${ATTENTIONS[config.attention]}${config.n_heads} heads, ${acts}${place.size}`};
}

function describeFeedForward({config, parts}, place, name) {
  const activation = ACTIVATIONS[config.feed_forward];
  if (parts.get(name).kind !== "Experts") {
    return {name, title: "Feed-forward", className: "feed", says: "feed-forward",
      sub: `${config.d_ff} wide, ${activation}, ${place.size}`};
  }
  return {name, title: `${config.experts} experts`, className: "feed experts", says: "the experts",
    sub: `${config.experts_per_token} a token, ${activation}, ${place.size}`};
}

// One sub-layer with its residual path.
function sequential(sheet, place, sub) {
  const about = describe(sheet, place, sub);
  residual(sheet, place, {name: `${sub.name}_residual`, says: about.says}, () => {
    box(sheet, place, about);
    if (about.memory) fromMemory(sheet, place, place.up - BOX / 2);
  });
}

// All sub-layers side by side, cross-attention next to where the memory comes from.
function parallel(sheet, place, name) {
  const subs = sublayers(sheet, name).sort((a, b) => (b.what === "cross_attention") - (a.what === "cross_attention"));
  residual(sheet, place, {name: `${name}.residual`, says: "the layer"}, () => sideBySide(sheet, place, subs));
}

// x + f(x), with the norm where this model has it.
function residual(sheet, place, {name, says}, drawInside) {
  const placement = sheet.config.norm_placement;
  const title = NORMS[sheet.config.norm];
  rise(sheet, place, 5, false);
  const [split, stream] = [place.up, place.from];
  if (placement !== "post") thin(sheet, place, {name: `${name}.norm`, title, says: `the norm of ${stream}`});
  drawInside();
  if (placement === "sandwich") thin(sheet, place, {name: `${name}.norm_after`, title, says: `the norm of ${says}`});
  skip(sheet, place, split, place.up + GAP + PLUS);
  plus(sheet, place, {name, title: "Add", adds: stream, says: `the stream after ${says}`});
  if (placement === "post") thin(sheet, place, {name: `${name}.norm`, title, says: `the norm of ${place.from}`});
}

function sideBySide(sheet, place, subs) {
  const width = (sheet.wide - 8 * (subs.length - 1)) / subs.length;
  const low = place.up + 8; // where the ways part ...
  const foot = low + GAP;
  const top = foot + BOX + 8; // ... and meet again
  sheet.items.push({type: "path", points: [[place.centre, place.up], [place.centre, low]]});
  subs.forEach((sub, i) => {
    const about = describe(sheet, place, sub);
    const x = place.left + i * (width + 8);
    const middle = x + width / 2;
    sheet.items.push(
      {type: "path", arrow: true, points: [[place.centre, low], [middle, low], [middle, foot]]},
      {type: "box", narrow: true, x, width, up: foot, height: BOX, from: place.from, column: place.stack,
        ...about, ...squeezed(about)},
      {type: "path", points: [[middle, foot + BOX], [middle, top], [place.centre, top]]});
    if (about.memory) fromMemory(sheet, place, foot + BOX / 2, x);
  });
  place.up = top;
  place.from = "all of them together";
}

function squeezed({title, sub}) {
  const masked = title.startsWith("Masked");
  return {title: masked ? "Self-attention" : title, sub: `${masked ? "masked, " : ""}${sub.split(",")[0]}`};
}

function skip(sheet, place, split, centre) {
  const end = place.lane === "left" ? place.centre - PLUS : place.centre + PLUS;
  const points = [[place.centre, split], [place.laneX, split], [place.laneX, centre], [end, centre]];
  sheet.items.push({type: "path", className: "skip", arrow: true, points});
}

// The memory comes up from the encoder, over to the path between the columns, and into each cross-attention.
function fromMemory(sheet, place, level, x = place.left) {
  const {memory, bus} = place;
  const over = memory ? memory.output + GAP + 4 : 4;
  const start = memory ? [[memory.centre, memory.output], [memory.centre, over], [bus, over]] : [[bus, over]];
  sheet.items.push({type: "path", className: "memory", arrow: true, points: [...start, [bus, level], [x, level]]});
  if (place.isTold) return;
  place.isTold = true;
  sheet.items.push({type: "text", className: "memory", x: memory ? bus - 6 : bus + 24, up: memory ? over + 4 : 0,
    text: memory ? `memory ${memory.size}` : "memory", end: true});
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

const POOLS = {cls: "the first", cls_tanh: "the first, tanh", mean: "the mean", max: "the greatest", attention: "by attention"};
const HEADS = {LanguageHead: "Output projection", MaskedLanguageHead: "Masked-language head", TagHead: "Tag projection",
  ClassHead: "Class projection"};

function drawHead(sheet, place) {
  const {config, parts, trace} = sheet;
  const {kind} = parts.get("head");
  const pooled = parts.has("head.pool");
  if (pooled) {
    box(sheet, place, {name: "head.pool", title: "Pool", sub: `${POOLS[config.pooling]}, [${config.d_model}]`,
      className: "head", says: "the pooled vector"});
  }
  if (kind === "VectorHead") return text(sheet, place, "a vector for the whole");
  const rows = pooled ? "" : `${trace.target_in.length || trace.source.length} × `;
  const answers = config.head === "language" ? config.vocab_size : config.n_classes;
  const shared = kind === "LanguageHead" && ["shared", "tied"].includes(config.embeddings) ? ", shared" : "";
  box(sheet, place, {name: "head", title: HEADS[kind] ?? "Head", sub: `[${rows}${answers}]${shared}`,
    className: "head", says: "the logits"});
  rise(sheet, place, GAP + 3);
  const what = {ClassHead: "class", TagHead: "tag"}[kind] ?? "token";
  text(sheet, place, `softmax: a probability for each ${what}`);
}
