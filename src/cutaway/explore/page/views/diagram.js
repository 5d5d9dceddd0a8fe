// The layout of the architecture diagram, from the parts and the configuration of a model.
//
// The diagram grows upwards, as data flows: `up` is the height above the bottom; `finish` converts it to y.
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
const PAD = 12; // between the frame of a layer and its content
const LANE = 26; // for the residual connection, beside the boxes
const BUS = 46; // for the memory, between the two columns
const COLLAPSED = 46; // height of a collapsed group of layers
const MAX_LAYERS = 4; // with more layers, the middle ones are collapsed

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

/** {width, height, items}: boxes, pluses, frames, lines and texts of the diagram of a run, in reading order. */
export function layOutModel(run, trace, {open = false} = {}) {
  const parts = partsByName(run.parts);
  const config = run.config;
  const kind = run.parts.kind;
  const sheet = {parts, config, trace, open, items: [], wide: boxWidth(config, parts)};
  const column = 2 * PAD + LANE + sheet.wide;
  if (kind === "EncoderDecoder") {
    const encoder = drawColumn(sheet, {stack: "encoder", embedding: "source_embedding", input: "source",
      x: 0, lane: "left", tokens: trace.source.length});
    const decoder = drawColumn(sheet, {stack: "decoder", embedding: "target_embedding", input: "target so far",
      x: column + BUS, lane: "right", tokens: trace.target_in.length, head: true,
      memory: encoder, bus: column + BUS / 2});
    return finish(sheet, 2 * column + BUS, Math.max(encoder.top, decoder.top));
  }
  const isDecoder = kind === "DecoderOnly";
  const margin = isDecoder && config.cross_attention ? BUS : 0; // for a memory from outside
  const only = drawColumn(sheet, {stack: isDecoder ? "decoder" : "encoder", embedding: "embedding", head: true,
    input: kind === "VisionTransformer" ? "image" : "text", x: margin, lane: "right", bus: margin / 2,
    tokens: isDecoder ? trace.target_in.length : trace.source.length});
  return finish(sheet, column + margin, only.top);
}

// Parallel sub-layers need more width.
function boxWidth(config, parts) {
  if (config.block !== "parallel") return 220;
  return parts.has("decoder.layers.0.cross_attention") ? 340 : 260;
}

// Convert heights above the bottom to y coordinates.
function finish(sheet, width, top) {
  const height = top + 8;
  for (const item of sheet.items) {
    if (item.type === "path") item.points = item.points.map(([x, up]) => [x, height - up]);
    else item.y = height - item.up - (item.height ?? 0);
  }
  return {width, height, items: sheet.items};
}

// One column, from the input at the bottom to the last norm or the head. `place`: the current position, and the name of
// the last piece.
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
  if (layers > MAX_LAYERS && sheet.open) drawCollapseButton(sheet, place);
  const norm = parts.get(`${column.stack}.norm`);
  if (norm && norm.kind !== "Identity") {
    const title = config.norm === "rms" ? "Final RMS norm" : "Final layer norm";
    thin(sheet, place, {name: norm.name, title, output: `the last norm of the ${column.stack}`});
  }
  const output = place.up;
  if (column.head) drawHead(sheet, place);
  return {top: place.up, centre: place.centre, output, size: place.size};
}

/** The layers to draw as [from, to]: one layer if from = to, else a collapsed group. */
function groups(layers, open) {
  const each = Array.from({length: layers}, (_, i) => [i, i]);
  if (layers <= MAX_LAYERS || open) return each;
  return [each[0], [1, layers - 2], each[layers - 1]];
}

// ---------------------------------------------------------------- pieces; each starts at place.up and increases it

function text(sheet, place, content) {
  sheet.items.push({type: "text", x: place.centre, up: place.up + 4, text: content});
  place.up += 16;
}

/** A vertical line to the next piece. */
function line(sheet, place, by = GAP, arrow = true) {
  sheet.items.push({type: "path", points: [[place.centre, place.up], [place.centre, place.up + by]], arrow});
  place.up += by;
}

function box(sheet, place, options) {
  line(sheet, place, options.gap ?? GAP);
  sheet.items.push({type: "box", x: place.left, width: sheet.wide, up: place.up, height: BOX, from: place.from,
    sub: place.size, column: place.stack, ...options});
  place.up += BOX;
  place.from = options.output;
}

function thin(sheet, place, options) {
  line(sheet, place, options.gap ?? GAP);
  sheet.items.push({type: "box", thin: true, x: place.left + 24, width: sheet.wide - 48, up: place.up, height: NORM,
    from: place.from, column: place.stack, className: "norm", ...options});
  place.up += NORM;
  place.from = options.output;
}

function plus(sheet, place, options) {
  line(sheet, place, GAP);
  sheet.items.push({type: "plus", x: place.centre - PLUS, width: 2 * PLUS, up: place.up, height: 2 * PLUS,
    from: place.from, column: place.stack, ...options});
  place.up += 2 * PLUS;
  place.from = options.output;
}

function drawEmbedding(sheet, place) {
  const {config, parts} = sheet;
  const name = place.embedding;
  const titles = {image: "Patch embedding", source: "Source embedding", text: "Embedding"};
  const title = titles[place.input] ?? "Target embedding";
  const isAdded = AT_INPUT.has(config.position);
  const scheme = config.position === "none" ? "no positions" : `${POSITIONS[config.position]} in attention`;
  box(sheet, place, {name, title, className: "embedding", output: `the ${title.toLowerCase()}`,
    sub: isAdded ? place.size : `${place.size}, ${scheme}`});
  if (isAdded) addPositions(sheet, place, name);
  const norm = parts.get(`${name}.norm`);
  if (norm) thin(sheet, place, {name: norm.name, title: NORMS[config.norm], output: "the norm of the embedding"});
}

// As in the paper's figure, the positions are added from the side.
function addPositions(sheet, place, name) {
  const isLeft = place.lane === "left";
  const width = 82;
  const x = isLeft ? place.left : place.left + sheet.wide - width;
  const level = place.up + GAP + PLUS;
  const [from, to] = isLeft ? [x + width, place.centre - PLUS] : [x, place.centre + PLUS];
  sheet.items.push({type: "box", thin: true, x, width, up: level - NORM / 2, height: NORM, className: "position",
    name: `${name}.position`, title: sheet.config.position === "sinusoidal" ? "∿ sinusoids" : "learned",
    column: place.stack, from: `the positions of the ${place.input === "image" ? "patches" : "tokens"}`});
  sheet.items.push({type: "path", arrow: true, points: [[from, level], [to, level]]});
  plus(sheet, place, {name, title: "Add positions", adds: "the positions", output: "the embedding plus positions"});
}

function drawLayer(sheet, place, i) {
  const name = `${place.stack}.layers.${i}`;
  const start = place.up + 6;
  const frame = {type: "frame", x: place.x, width: 2 * PAD + LANE + sheet.wide, up: start, name, title: `layer ${i}`,
    column: place.stack, side: place.lane};
  const label = {...frame, type: "label", height: 14};
  sheet.items.push(frame, label);
  line(sheet, place, 6 + PAD, false);
  if (sheet.parts.has(`${name}.residual`)) parallel(sheet, place, name);
  else for (const sub of sublayers(sheet, name)) sequential(sheet, place, sub);
  line(sheet, place, sheet.config.norm_placement === "post" ? PAD + 7 : PAD, false);
  frame.height = place.up - start;
  label.up = place.up - 16;
}

function sublayers(sheet, name) {
  const found = ["self_attention", "cross_attention", "feed_forward"].map((what) => ({name: `${name}.${what}`, what}));
  return found.filter((sub) => sheet.parts.has(sub.name));
}

/** The content of the box of a sub-layer. */
function describe(sheet, place, {name, what}) {
  const {config} = sheet;
  if (what === "feed_forward") return describeFeedForward(sheet, place, name);
  const common = {name, className: "attention", weights: `${name}.weights`, output: what.replace("_", "-")};
  if (what === "cross_attention") {
    return {...common, title: "Cross-attention", sub: `${config.n_heads} heads, ${place.size}`, memory: true};
  }
  const position = AT_INPUT.has(config.position) || config.position === "none" ? "" : `${POSITIONS[config.position]}, `;
  return {...common, title: place.stack === "decoder" ? "Masked self-attention" : "Self-attention",
    sub: `${ATTENTIONS[config.attention]}${config.n_heads} heads, ${position}${place.size}`};
}

function describeFeedForward({config, parts}, place, name) {
  const activation = ACTIVATIONS[config.feed_forward];
  if (parts.get(name).kind !== "Experts") {
    return {name, title: "Feed-forward", className: "feed", output: "feed-forward",
      sub: `${config.d_ff} wide, ${activation}, ${place.size}`};
  }
  return {name, title: `${config.experts} experts`, className: "feed experts", output: "the experts",
    sub: `${config.experts_per_token} per token, ${activation}, ${place.size}`};
}

// One sub-layer with its residual connection.
function sequential(sheet, place, sub) {
  const content = describe(sheet, place, sub);
  residual(sheet, place, {name: `${sub.name}_residual`, output: content.output}, () => {
    box(sheet, place, content);
    if (content.memory) drawMemory(sheet, place, place.up - BOX / 2);
  });
}

// All sub-layers side by side, with cross-attention next to the memory.
function parallel(sheet, place, name) {
  const subs = sublayers(sheet, name).sort((a, b) => (b.what === "cross_attention") - (a.what === "cross_attention"));
  residual(sheet, place, {name: `${name}.residual`, output: "the layer"}, () => sideBySide(sheet, place, subs));
}

// x + f(x), with the norm before, after, or both.
function residual(sheet, place, {name, output}, drawInside) {
  const placement = sheet.config.norm_placement;
  const title = NORMS[sheet.config.norm];
  line(sheet, place, 5, false);
  const [split, stream] = [place.up, place.from];
  if (placement !== "post") thin(sheet, place, {name: `${name}.norm`, title, output: `the norm of ${stream}`});
  drawInside();
  if (placement === "sandwich") {
    thin(sheet, place, {name: `${name}.norm_after`, title, output: `the norm of ${output}`});
  }
  skip(sheet, place, split, place.up + GAP + PLUS);
  plus(sheet, place, {name, title: "Add", adds: stream, output: `the residual stream after ${output}`});
  if (placement === "post") thin(sheet, place, {name: `${name}.norm`, title, output: `the norm of ${place.from}`});
}

function sideBySide(sheet, place, subs) {
  const width = (sheet.wide - 8 * (subs.length - 1)) / subs.length;
  const low = place.up + 8; // the lines separate here ...
  const foot = low + GAP;
  const top = foot + BOX + 8; // ... and meet here
  sheet.items.push({type: "path", points: [[place.centre, place.up], [place.centre, low]]});
  subs.forEach((sub, i) => {
    const content = describe(sheet, place, sub);
    const x = place.left + i * (width + 8);
    const middle = x + width / 2;
    sheet.items.push(
      {type: "path", arrow: true, points: [[place.centre, low], [middle, low], [middle, foot]]},
      {type: "box", narrow: true, x, width, up: foot, height: BOX, from: place.from, column: place.stack,
        ...content, ...shortLabels(content)},
      {type: "path", points: [[middle, foot + BOX], [middle, top], [place.centre, top]]});
    if (content.memory) drawMemory(sheet, place, foot + BOX / 2, x);
  });
  place.up = top;
  place.from = "the sum of all sub-layers";
}

function shortLabels({title, sub}) {
  const masked = title.startsWith("Masked");
  return {title: masked ? "Self-attention" : title, sub: `${masked ? "masked, " : ""}${sub.split(",")[0]}`};
}

function skip(sheet, place, split, centre) {
  const end = place.lane === "left" ? place.centre - PLUS : place.centre + PLUS;
  const points = [[place.centre, split], [place.laneX, split], [place.laneX, centre], [end, centre]];
  sheet.items.push({type: "path", className: "skip", arrow: true, points});
}

// The line of the memory: from the encoder, between the columns, into each cross-attention.
function drawMemory(sheet, place, level, x = place.left) {
  const {memory, bus} = place;
  const over = memory ? memory.output + GAP + 4 : 4;
  const start = memory ? [[memory.centre, memory.output], [memory.centre, over], [bus, over]] : [[bus, over]];
  sheet.items.push({type: "path", className: "memory", arrow: true, points: [...start, [bus, level], [x, level]]});
  if (place.hasMemoryLabel) return;
  place.hasMemoryLabel = true;
  sheet.items.push({type: "text", className: "memory", x: memory ? bus - 6 : bus + 24, up: memory ? over + 4 : 0,
    text: memory ? `memory ${memory.size}` : "memory", end: true});
}

function drawCollapsed(sheet, place, from, to) {
  line(sheet, place, 8);
  const count = to - from + 1;
  sheet.items.push({type: "more", x: place.x, width: 2 * PAD + LANE + sheet.wide, up: place.up, height: COLLAPSED,
    title: `layers ${from} to ${to}`, sub: `show ${count} more layers`, column: place.stack, from: place.from});
  place.up += COLLAPSED;
  place.from = `layer ${to}`;
}

function drawCollapseButton(sheet, place) {
  line(sheet, place, 8);
  sheet.items.push({type: "more", folds: true, x: place.x, width: 2 * PAD + LANE + sheet.wide, up: place.up, height: 26,
    title: "", sub: "hide the middle layers", column: place.stack, from: place.from});
  place.up += 26;
}

const POOLS = {cls: "first token", cls_tanh: "first token, tanh", mean: "mean", max: "maximum", attention: "attention"};
const HEADS = {LanguageHead: "Output projection", MaskedLanguageHead: "Masked-language head", TagHead: "Tag projection",
  ClassHead: "Class projection"};

function drawHead(sheet, place) {
  const {config, parts, trace} = sheet;
  const {kind} = parts.get("head");
  const pooled = parts.has("head.pool");
  if (pooled) {
    box(sheet, place, {name: "head.pool", title: "Pool", sub: `${POOLS[config.pooling]}, [${config.d_model}]`,
      className: "head", output: "the pooled vector"});
  }
  if (kind === "VectorHead") return text(sheet, place, "one vector for the text");
  const rows = pooled ? "" : `${trace.target_in.length || trace.source.length} × `;
  const answers = config.head === "language" ? config.vocab_size : config.n_classes;
  const isTied = kind === "LanguageHead" && ["shared", "tied"].includes(config.embeddings);
  const shared = isTied ? ", tied weights" : "";
  box(sheet, place, {name: "head", title: HEADS[kind] ?? "Head", sub: `[${rows}${answers}]${shared}`,
    className: "head", output: "the logits"});
  line(sheet, place, GAP + 3);
  const what = {ClassHead: "class", TagHead: "tag"}[kind] ?? "token";
  text(sheet, place, `softmax: a probability for each ${what}`);
}
