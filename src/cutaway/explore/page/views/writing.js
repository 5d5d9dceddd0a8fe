// Decoding, one token at a time: the candidates of each step, sampling, and beam search as a tree.
// For models that generate no text (classes, tags, masked tokens): the candidates of each prediction.

import {h, s, fill, percent, scrollInside} from "../dom.js";
import {slider, bar} from "../controls.js";
import {tokenRow, readable} from "../tokens.js";
import {filterStep, nextSeed, sample, uniform} from "./sampling.js";
import {beamTree, lengthPenalty} from "./beamtree.js";
import {errorLine, latest, waitingLine} from "./requests.js";
import {generatesText, hasPredictions} from "./outputs.js";

const FEW = 12; // candidates in the short list
const MANY = 40; // candidates in the long list
const INTERVAL = 900; // milliseconds per step while playing
const DELAY = 200; // milliseconds between a change of a slider and the search
const TEMPERATURES = [0.1, 0.12, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1, 1.1, 1.2, 1.3, 1.4, 1.5,
                      1.6, 1.8, 2];

export const view = {id: "writing", title: (run) => (generatesText(run.task) ? "Decoding" : "Prediction"), create,
  about: ({task}) => (generatesText(task) ? "The output one token at a time. Click a token to see the candidates of its "
    + "step, and a candidate to continue with it." : "The answers that the model considered, each with its probability."),
  applies: (run) => hasPredictions(run.task)};

function create(context) {
  const text = textCard(context);
  const step = stepCard(context);
  const beam = beamCard(context);
  const element = h("div", {class: "view-writing"}, text.element, step.element, beam.element);

  function show(trace, state) {
    const at = positionOf(trace, state);
    text.show(trace, at, state);
    step.show(trace, at, state);
    beam.element.hidden = !generatesText(trace.task);
    if (generatesText(trace.task)) beam.show(trace, state);
  }

  return {element, show, key: text.key};
}

/** The selected step; by default the first one after the prompt. */
export function positionOf(trace, state) {
  const last = trace.steps.length - 1;
  const chosen = Number.isInteger(state.position) ? state.position : trace.prompt ?? 0;
  return Math.max(0, Math.min(last, chosen));
}

/** The output up to step `at`, without the prompt, followed by the token `id`. */
export function prefixWith(trace, at, id) {
  return [...trace.target_ids.slice(trace.prompt ?? 0, at), id];
}

// ---------------------------------------------------------------- the output, token by token

function textCard(context) {
  const title = h("h2", {});
  const row = h("div", {class: "steps"});
  const strip = h("div", {class: "box strip", tabindex: 0, role: "group", aria: {label: "Probability of each step"}});
  const note = h("p", {class: "small dim"});
  const counter = h("span", {class: "counter"});
  const play = h("button", {type: "button", class: "button quiet", onclick: () => (timer ? stop() : start())},
    "▶ Play");
  const move = (by) => () => { stop(); go(by); };
  const buttons = h("div", {class: "row step-buttons"},
    h("button", {type: "button", class: "button quiet", onclick: move(-1), aria: {label: "Previous step"}}, "◀"),
    play, h("button", {type: "button", class: "button quiet", onclick: move(1), aria: {label: "Next step"}}, "▶"),
      counter);
  const element = h("section", {class: "card"}, title, row, strip, buttons, note);
  element.addEventListener("keydown", key);
  let timer = null;
  let now = null;

  function go(by) {
    const to = Math.max(0, Math.min(now.trace.steps.length - 1, now.at + by));
    if (to !== now.at) context.state.set({position: to}, {replace: true});
    return to < now.trace.steps.length - 1;
  }

  function start() {
    if (now.at >= now.trace.steps.length - 1) context.state.set({position: now.trace.prompt ?? 0}, {replace: true});
    const next = () => { if (!element.isConnected || element.offsetParent === null || !go(1)) stop(); };
    timer = setInterval(next, INTERVAL);
    play.textContent = "❚❚ Pause";
  }

  function stop() {
    clearInterval(timer);
    timer = null;
    play.textContent = "▶ Play";
  }

  function key(event) {
    const by = {ArrowLeft: -1, ArrowRight: 1}[event.key];
    if (!by || !now?.trace.steps.length
      || event.target.closest?.("input, select, textarea, [role=tree], [role=tablist]")) return;
    event.preventDefault();
    move(by)();
  }

  function show(trace, at, state) {
    const focused = row.contains(document.activeElement);
    if (timer && now?.trace !== trace) stop();
    now = {trace, at};
    element.hidden = trace.steps.length < 2 && !generatesText(trace.task);
    title.textContent = titleOf(trace);
    const p = trace.steps.map((step) => step.p);
    fill(row, tokenRow(stepLabels(trace), {p, selected: at, label: "Steps",
      onpick: (i) => { stop(); context.state.set({position: i}, {replace: true}); },
      title: (i) => `step ${i + 1}: ${percent(p[i])}${i < (trace.prompt ?? 0) ? ", part of the prompt" : ""}`}));
    for (const chip of row.querySelectorAll("button.token")) {
      if (Number(chip.dataset.index) < (trace.prompt ?? 0)) chip.classList.add("in-prompt");
    }
    fill(strip, trace.steps.length > 1 && barChart(trace, at, (i) => context.state.set({position: i},
      {replace: true})));
    strip.hidden = trace.steps.length < 2;
    buttons.hidden = trace.steps.length < 2;
    counter.textContent = `step ${at + 1} of ${trace.steps.length}`;
    fill(note, notes(trace, state, context));
    if (focused) row.querySelector(`[data-index="${at}"]`)?.focus();
    for (const [box, chosen] of [[strip, ".here"], [row.firstChild, ".selected"]]) {
      if (box.querySelector(chosen)) scrollInside(box, box.querySelector(chosen));
    }
  }

  return {element, show, key};
}

function titleOf(trace) {
  if (generatesText(trace.task)) return "The output, one token at a time";
  return trace.task === "tagging" ? "One tag for each word" : "Masked tokens";
}

function stepLabels(trace) {
  if (trace.task !== "tagging" || !trace.tags) return trace.steps.map((step) => step.token);
  return trace.tags.map(({word, tag}) => `${word} · ${tag}`);
}

function notes(trace, state, context) {
  const found = [];
  const forced = generatesText(trace.task) ? state.prefix?.length ?? 0 : 0;
  found.push("The bars show the probability of each token. ");
  if (trace.prompt) found.push(`The first ${trace.prompt} tokens (in italics) are the prompt. `);
  if (forced) {
    const undo = () => context.state.set({prefix: null, position: null});
    found.push(forced === 1 ? "You set the first token of the output. "
      : `You set the first ${forced} tokens of the output. `,
      h("button", {type: "button", class: "button quiet", onclick: undo}, "Undo"));
  }
  if (generatesText(trace.task) && trace.finished === false) found.push("The output stopped at the maximum length. ");
  return found;
}

/** The probability of the token of each step as a bar chart. */
function barChart(trace, at, onpick) {
  const [wide, tall, edge] = [Math.max(14, Math.min(34, Math.floor(640 / trace.steps.length))), 56, 4];
  const whole = wide * trace.steps.length + 2 * edge;
  const svg = s("svg", {class: "columns", width: whole, height: tall + 18, role: "img",
    aria: {label: chartText(trace)}},
    s("line", {class: "level", x1: 0, x2: whole, y1: 2, y2: 2}));
  trace.steps.forEach((step, i) => {
    const [x, high] = [edge + i * wide, Math.max(1.5, step.p * (tall - 2))];
    const marks = `${i === at ? " here" : ""}${i < (trace.prompt ?? 0) ? " in-prompt" : ""}`;
    const numbered = trace.steps.length <= 40 || i === at || i % 5 === 4;
    svg.append(s("g", {class: `column${marks}`, onclick: () => onpick(i)},
      s("rect", {class: "hit", x, y: 0, width: wide, height: tall + 18}),
      s("rect", {class: "fill", x: x + 2, y: tall - high, width: wide - 4, height: high}),
      numbered && s("text", {x: x + wide / 2, y: tall + 14, "text-anchor": "middle"}, i + 1),
      s("title", {}, `step ${i + 1}: ${readable(step.token)}, ${percent(step.p)}`)));
  });
  return svg;
}

function chartText(trace) {
  const output = trace.steps.map((step, i) => ({...step, number: i + 1})).slice(trace.prompt ?? 0);
  if (!output.length) return "All tokens belong to the prompt.";
  const least = output.reduce((best, step) => (step.p < best.p ? step : best));
  return `Probability of the token at each of ${trace.steps.length} steps. The lowest is at step ${least.number}: `
    + `${readable(least.token)}, ${percent(least.p)}.`;
}

// ---------------------------------------------------------------- one step: its candidates, and sampling

function stepCard(context) {
  const title = h("h2", {});
  const before = h("p", {class: "before"});
  const list = h("div", {class: "candidates"});
  const more = h("button", {type: "button", class: "button quiet", onclick: () => { all = !all; redraw(); }});
  const sliders = samplingSliders(context);
  const facts = h("p", {class: "facts", aria: {live: "polite"}});
  const result = h("p", {class: "sampled", aria: {live: "polite"}});
  const button = h("button", {type: "button", class: "button", onclick: sampleOne}, "Sample a token");
  const seed = h("input", {type: "number", min: 0, max: 4294967295, step: 1, class: "seed",
    aria: {label: "Random seed"},
    onchange: () => context.state.set({seed: Math.abs(Math.trunc(Number(seed.value))) >>> 0}, {replace: true})});
  const sampling = h("div", {class: "sampling"}, h("h3", {}, "Sampling"), sliders.element, facts,
    h("div", {class: "row"}, button, h("label", {class: "small dim"}, "seed ", seed)), result);
  const element = h("section", {class: "card step"}, title, before, h("div", {class: "halves"},
    h("div", {}, list, more), sampling));
  let all = false;
  let now = null;
  let sampled = null; // the last sample: {trace, at, candidate}

  function show(trace, at, state) {
    if (sampled && (sampled.trace !== trace || sampled.at !== at)) sampled = null;
    now = {trace, at, state};
    redraw();
  }

  function redraw() {
    const {trace, at, state} = now;
    const step = trace.steps[at];
    const generates = generatesText(trace.task);
    sampling.hidden = !generates || !step;
    fill(result, sampled && sampleText(sampled, trace, at, context.info.recorded ? null : use));
    if (!step) {
      title.textContent = "No prediction";
      fill(before, trace.task === "masked_language_model"
        ? "Click a token above to mask it. The model then predicts it." : "The model predicts nothing here.");
      fill(list);
      more.hidden = true;
      return;
    }
    const settings = sliders.show(state, context.run());
    const distribution = filterStep(step, generates ? settings : {});
    title.textContent = generates ? `Step ${at + 1}: candidates for this token`
      : trace.steps.length > 1 ? `Prediction ${at + 1} of ${trace.steps.length}: candidates` : "Candidates";
    fill(before, contextOf(trace, at));
    const isPrompt = at < (trace.prompt ?? 0);
    const canUse = generates && !isPrompt && !context.info.recorded;
    const options = {step, distribution, generates, sampled: sampled?.candidate, use: canUse ? use : null};
    fill(list, candidateTable(options, all ? MANY : FEW));
    const hiddenCount = Math.min(MANY, distribution.candidates.length) - FEW;
    more.hidden = hiddenCount <= 0;
    more.textContent = all ? "Show fewer" : `Show ${hiddenCount} more`;
    seed.value = String(seedOf(state));
    if (generates) fill(facts, factsOf(distribution));
  }

  function sampleOne() {
    const {trace, at, state} = now;
    const seed = seedOf(state); // the next sample uses seed + 1
    const distribution = filterStep(trace.steps[at], sliders.show(state, context.run()));
    sampled = {trace, at, seed, candidate: sample(distribution, uniform(nextSeed(nextSeed(seed))))};
    context.state.set({seed: (seed + 1) >>> 0}, {replace: true});
    redraw();
  }

  function use(id) {
    const {trace, at} = now;
    context.state.set({prefix: prefixWith(trace, at, id), position: at + 1, target: null});
  }

  return {element, show};
}

// The index of the nearest temperature on a logarithmic scale.
function nearest(temperature) {
  const distance = (i) => Math.abs(Math.log(TEMPERATURES[i] / temperature));
  return TEMPERATURES.reduce((best, _, i) => (distance(i) < distance(best) ? i : best), 0);
}

function seedOf(state) {
  return Number.isInteger(state.seed) ? state.seed >>> 0 : 1;
}

function sampleText({candidate}, trace, at, use) {
  if (!candidate) return "Sampled: a rare token that is not in the list.";
  const word = h("bdi", {class: "word"}, readable(candidate.token));
  if (at < (trace.prompt ?? 0)) return ["Sampled: ", word, ". This position belongs to the prompt."];
  if (candidate.id === trace.steps[at].id) return ["Sampled: ", word, ", the same as the output."];
  const button = use && h("button", {type: "button", class: "button quiet", onclick: () => use(candidate.id)},
    "Continue with it");
  return ["Sampled: ", word, ". ", button];
}

function contextOf(trace, at) {
  const word = (text) => h("bdi", {class: "word"}, text);
  const joined = (tokens) => tokens.map((token) => readable(token)).join(" ");
  if (trace.task === "tagging" && trace.tags) return ["For the word ", word(readable(trace.tags[at].word)), ":"];
  if (trace.task === "masked_language_model") {
    const place = trace.hidden[at];
    const [left, right] = [trace.source.slice(Math.max(0, place - 4), place), trace.source.slice(place + 1, place + 5)];
    return ["Between ", word(joined(left)), " and ", word(joined(right)), ":"];
  }
  if (!generatesText(trace.task)) return null;
  if (at === 0) return trace.prompt ? "At the start of the prompt:" : "At the start of the output:";
  const text = joined(trace.target_out.slice(Math.max(0, at - 12), at));
  return ["After ", word(at > 12 ? `… ${text}` : text), ":"];
}

function samplingSliders(context) {
  const set = (patch) => context.state.set(patch, {replace: true});
  const temperature = slider({label: "temperature", min: 0, max: TEMPERATURES.length - 1, value: nearest(1),
    format: (i) => String(TEMPERATURES[i]), oninput: (i) => set({temperature: TEMPERATURES[i]})});
  const k = slider({label: "top-k", min: 0, max: 100, value: 0, format: (v) => (v ? String(v) : "off"),
    oninput: (v) => set({top_k: v})});
  const p = slider({label: "top-p", min: 0.05, max: 1, step: 0.01, value: 1,
    format: (v) => (v < 1 ? v.toFixed(2) : "off"), oninput: (v) => set({top_p: v})});
  const reset = h("button", {type: "button", class: "button quiet",
    onclick: () => set({temperature: null, top_k: null, top_p: null})}, "Reset");

  function show(state, run) {
    const defaults = run?.decode ?? {};
    const settings = {temperature: clamp(state.temperature ?? defaults.temperature, 0.1, 2, 1),
      topK: Math.round(clamp(state.top_k ?? defaults.top_k, 0, 100, 0)),
      topP: clamp(state.top_p ?? defaults.top_p, 0.05, 1, 1)};
    temperature.set(nearest(settings.temperature));
    k.set(settings.topK);
    p.set(settings.topP);
    reset.hidden = [state.temperature, state.top_k, state.top_p].every((value) => (value ?? null) === null);
    return settings;
  }

  return {element: h("div", {class: "sliders"}, temperature.element, k.element, p.element, reset), show};
}

/** How many tokens can be sampled, and the entropy before and after the settings. */
function factsOf({kept, of, mass, before, after}) {
  const share = percent(mass > 1 - 1e-9 ? 1 : mass);
  const count = kept === 1 ? "1 token" : `${kept.toLocaleString("en")} tokens`;
  return [`Top-k and top-p keep ${count} of ${of.toLocaleString("en")}, with ${share} of the probability `,
    "that the temperature gives. ",
    `Entropy: ${before.toFixed(2)} bits for the model, ${after.toFixed(2)} bits with these settings.`];
}

// The most probable tokens, the output token and the sampled token have a row each; all others share one row.
function candidateTable(options, most) {
  const {step, distribution: {candidates, tail}, generates, sampled, use} = options;
  const wanted = (each) => each.index < most || each.id === step.id || each.id === sampled?.id;
  const [shown, rest] = [candidates.filter(wanted), candidates.filter((each) => !wanted(each))];
  const unlisted = !candidates.some((each) => each.id === step.id);
  const sum = (key) => rest.reduce((total, each) => total + each[key], 0) + tail[key];
  const others = {p: sum("p"), q: sum("q"), count: rest.length + tail.count - (unlisted && tail.count ? 1 : 0)};
  const labels = candidates.map((each) => readable(each.token));
  const rowOptions = {...options, ambiguous: new Set(labels.filter((label, i) => labels.indexOf(label) !== i))};
  const column = (name, text, title = null) => h("th", {scope: "col", class: name, title}, text);
  const hiddenText = (text) => h("span", {class: "visually-hidden"}, text);
  return h("table", {aria: {label: "Candidates, most probable first"}},
    h("thead", {}, h("tr", {}, column(null, generates ? "token" : "prediction"),
      column("bars", hiddenText("as bars")),
      column("figure", generates ? [colourKey("model"), "model"] : "p", "probability according to the model"),
      generates && column("figure", [colourKey("sampling"), "sampling"], "probability after temperature, top-k and top-p"),
      use && column(null, hiddenText("use")))),
    h("tbody", {}, shown.map((each) => candidateRow(each, rowOptions)), unlisted && unlistedRow(rowOptions),
      others.count > 0 && othersRow(others, rowOptions)));
}

// A square in the colour of the bars that a column belongs to.
function colourKey(name) {
  return h("span", {class: `colour-key key-${name}`, aria: {hidden: true}});
}

function candidateRow(each, {step, generates, sampled, use, ambiguous}) {
  const [isOutput, isSampled, isRemoved] = [each.id === step.id, each.id === sampled?.id, generates && !each.kept];
  const marks = [isOutput && "chosen", isRemoved && "removed", isSampled && "is-sampled"].filter(Boolean).join(" ");
  const label = readable(each.token);
  const id = ambiguous.has(label) && h("span", {class: "token-id", title: "token id; another token looks the same"},
    `#${each.id}`);
  return h("tr", {class: marks},
    h("th", {scope: "row", title: `logit ${each.logit}, id ${each.id}`},
      h(isRemoved ? "s" : "span", {}, h("bdi", {class: "word"}, label)), id,
      isOutput && h("span", {class: "pill"}, "output"), isSampled && h("span", {class: "pill"}, "sampled"),
      isRemoved && h("span", {class: "visually-hidden"}, "cannot be sampled")),
    probabilityCells(each.p, generates ? each.q : null, each.kept),
    use && h("td", {class: "act"}, !isOutput && h("button", {type: "button", class: "button quiet",
      aria: {label: `Use ${label} instead`}, title: "Use this token instead, and continue from there",
      onclick: () => use(each.id)}, "use")));
}

// The output token, if it is not among the listed candidates.
function unlistedRow({step, generates, use}) {
  return h("tr", {class: "chosen"},
    h("th", {scope: "row"}, h("bdi", {class: "word"}, readable(step.token)),
      h("span", {class: "pill"}, `output, rank ${step.rank + 1}`)),
    probabilityCells(step.p, generates ? 0 : null, false), use && h("td", {}));
}

function othersRow({p, q, count}, {generates, use}) {
  return h("tr", {class: "others"}, h("th", {scope: "row"}, `${count.toLocaleString("en")} others`),
    probabilityCells(p, generates ? q : null, q > 0), use && h("td", {}));
}

/** The cells for the probability of the model p and, if text is generated, for sampling q. A full bar means 1. */
function probabilityCells(p, q, kept) {
  return [h("td", {class: "bars"}, bars(p, q)),
    h("td", {class: "figure"}, percent(p)), q !== null && h("td", {class: "figure"}, kept ? percent(q) : "–")];
}

function bars(p, q) {
  return h("span", {class: `pair${q === null ? " single" : ""}`}, h("span", {class: "model-p"}, bar(p)),
    q !== null && h("span", {class: "sampling-p"}, bar(q)));
}

// ---------------------------------------------------------------- beam search

function beamCard(context) {
  const send = latest();
  const set = (patch) => context.state.set({...patch, found: null}, {replace: true});
  const size = slider({label: "beam size", min: 1, max: 8, step: 1, value: 4, format: String,
    oninput: (v) => set({beam_size: v})});
  const alpha = slider({label: "length penalty α", min: 0, max: 2, step: 0.1, value: 0.6, format: (v) => v.toFixed(1),
    oninput: (v) => set({length_penalty: +v.toFixed(1)})});
  const why = h("p", {class: "finding", aria: {live: "polite"}});
  const readout = h("p", {class: "readout"});
  const texts = h("div", {class: "box"});
  const status = h("div", {});
  const tree = beamTree({onpick: (node) => { picked = node; read(node); tree.highlight(node.id); },
    onhover: (node) => read(node ?? picked)});
  const body = h("div", {}, why, tree.element, readout, treeLegend(), texts);
  const element = h("section", {class: "card beam"}, h("h2", {}, "Beam search as a tree"),
    h("p", {class: "intro"}, "Greedy search takes the most probable token at each step. Beam search keeps the best ",
      "unfinished texts at each step; their number is the beam size. Finished texts are ranked by their score: log p ",
      "divided by the length penalty ((5 + length) / 6)", h("sup", {}, "α"), "."),
    context.info.recorded ? null : h("div", {class: "sliders"}, size.element, alpha.element), status, body);
  let requested = null;
  let search = null;
  let picked = null;
  let timer = null;

  function show(trace, state) {
    const defaults = context.run()?.decode ?? {};
    const beamSize = Math.round(clamp(state.beam_size ?? defaults.beam_size, 1, 8, 4));
    const penalty = clamp(state.length_penalty ?? defaults.length_penalty, 0, 2, 0.6);
    size.set(beamSize);
    alpha.set(penalty);
    const request = context.request({target: null, beam_size: beamSize, length_penalty: penalty});
    const name = JSON.stringify(request);
    element.hidden = !context.source.has("beam", request);
    if (element.hidden) return;
    if (name !== requested) {
      const first = requested === null;
      requested = name;
      clearTimeout(timer);
      timer = setTimeout(() => load(request, trace, name), first ? 0 : DELAY);
    } else if (search) select(state.found);
  }

  async function load(request, trace, name) {
    const slow = setTimeout(() => fill(status, waitingLine("Searching …")), 150);
    element.setAttribute("aria-busy", "true");
    try {
      const answer = await send((signal) => context.source.beam(request, signal));
      if (answer && name === requested) showSearch(answer, trace);
    } catch (error) {
      if (name !== requested) return;
      search = null;
      body.hidden = true;
      fill(status, errorLine(error));
    } finally {
      clearTimeout(slow);
      if (name === requested) element.removeAttribute("aria-busy");
    }
  }

  function showSearch(answer, trace) {
    search = answer;
    body.hidden = false;
    fill(status);
    tree.show(answer);
    picked = null;
    fill(why, reasons(answer, tree).map((sentence) => [sentence, " "]));
    fill(texts, foundTable(answer, trace, (node) => context.state.set({found: node}, {replace: true})));
    select(context.state.read().found);
  }

  function select(id) {
    const chosen = search.found.find((text) => text.node === id) ?? null;
    for (const row of texts.querySelectorAll("tr[data-node]")) {
      const here = Number(row.dataset.node) === chosen?.node;
      row.classList.toggle("chosen", here);
      row.querySelector("button").setAttribute("aria-pressed", String(here));
    }
    const node = chosen ? tree.path(chosen.node).at(-1) : picked;
    tree.highlight(node?.id ?? null);
    read(node ?? null);
  }

  function read(node) {
    fill(readout, node ? nodeText(node, tree.path(node.id), search.length_penalty) : h("span", {class: "dim"},
      "Point at a node, or use the arrow keys, to see its numbers."));
  }

  return {element, show};
}

function clamp(value, least, most, fallback) {
  return Number.isFinite(value) ? Math.max(least, Math.min(most, value)) : fallback;
}

function nodeText(node, path, alpha) {
  const words = path.slice(1).map((each) => readable(each.token)).join(" ");
  if (node.state === "root") return h("span", {}, "The start: nothing is generated yet.");
  const penalty = lengthPenalty(node.depth, alpha);
  const figures = [`p ${percent(node.p)}`, `log p ${fixed(node.log_p)}`, `length ${node.depth}`,
    `penalty ${fixed(penalty)}`, `score ${fixed(node.score)}`];
  return [h("bdi", {class: "word"}, words), h("span", {class: "figures"}, ` ${figures.join(" · ")}`)];
}

function fixed(value) {
  return value.toFixed(Math.abs(value) < 0.1 && value !== 0 ? 4 : 2).replace(/^-/, "−");
}

/** Why the winner has the best score, as sentences. */
export function reasons(search, tree) {
  if (!search.found.length) return ["No text was finished."];
  return [whyBest(search.found), whyNotGreedy(tree.path(search.found[0].node))].filter(Boolean);
}

function whyBest([winner, ...others]) {
  if (!others.length) return [quote(winner.text), " is the only finished text."];
  const mostProbable = others.reduce((best, text) => (text.log_p > best.log_p ? text : best), winner);
  if (mostProbable === winner) {
    return [quote(winner.text), " wins. It has the highest log-probability and the best score, ",
      `${fixed(winner.score)}. Second is `, quote(others[0].text), ` with ${fixed(others[0].score)}.`];
  }
  const division = (text) => `${fixed(text.log_p)} / ${fixed(text.penalty)} = ${fixed(text.score)}`;
  return [quote(winner.text), ` has a lower log-probability (${fixed(winner.log_p)}) than `, quote(mostProbable.text),
    ` (${fixed(mostProbable.log_p)}). But it is longer, so it wins after division by the length penalty: `,
    `${division(winner)} is more than ${division(mostProbable)}.`];
}

function whyNotGreedy(path) {
  const {node, rival} = firstDetour(path) ?? {};
  if (!node || readable(node.token) === readable(rival.token)) return null;
  return [`Greedy search does not find it: at step ${node.depth} it takes `, quote(rival.token),
    ` (${percent(rival.p)}) instead of `, quote(node.token), ` (${percent(node.p)}).`];
}

function quote(text) {
  return h("bdi", {class: "word"}, `“${shorten(readable(text))}”`);
}

// Long texts often differ only at the end, so the end is kept too.
function shorten(text) {
  const characters = [...text];
  return characters.length > 90 ? `${characters.slice(0, 40).join("")} … ${characters.slice(-44).join("")}` : text;
}

/** The first node of a path that is not the most probable one: {node, rival}. */
function firstDetour(path) {
  for (const node of path) {
    const rival = (node.up?.children ?? []).reduce((best, other) => (other.p > (best?.p ?? node.p) ? other : best),
      null);
    if (rival) return {node, rival};
  }
  return null;
}

function foundTable(search, trace, onpick) {
  if (!search.found.length) return null;
  const names = ["finished text", "log p", "length", "penalty", "score"];
  const head = names.map((name, i) => h("th", {scope: "col", class: i ? "figure" : null}, name));
  return h("table", {class: "found", aria: {label: "Finished texts, best first"}}, h("thead", {}, h("tr", {}, head)),
    h("tbody", {}, search.found.map((text, i) => foundRow(text, {wins: i === 0, same: text.text === trace.output,
      onpick}))));
}

function foundRow(text, {wins, same, onpick}) {
  const figures = [fixed(text.log_p), String(text.length), fixed(text.penalty), fixed(text.score)];
  return h("tr", {data: {node: text.node}},
    h("th", {scope: "row"},
      h("button", {type: "button", class: "pick", aria: {pressed: false},
        title: `${text.text}\n(click to show its path in the tree)`,
        onclick: () => onpick(text.node)}, h("bdi", {}, text.text ? readable(text.text) : "(empty)")),
      wins && h("span", {class: "pill"}, "winner"), same && h("span", {class: "pill"}, "same as the output above")),
    figures.map((figure) => h("td", {class: "figure"}, figure)));
}

function treeLegend() {
  return h("p", {class: "small dim"}, "Solid line: kept in the beam. Dotted line and ✕: pruned. ",
    "●: finished with </s>. ■: stopped at the maximum length. Bold: the winner.");
}
