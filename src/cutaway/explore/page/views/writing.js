// Writing, one token after the other: what could have come, what sampling would do to it, and beam search as a tree.
// For models that do not write (classes, tags, hidden tokens) the same candidates, under the title "Answer".

import {h, s, fill, number, percent} from "../dom.js";
import {slider, bar} from "../controls.js";
import {tokenRow, readable} from "../tokens.js";
import {filtered, nextSeed, chance, drawn} from "./sampling.js";
import {beamTree, lengthPenalty} from "./beamtree.js";
import {latest, waiting, trouble} from "./asking.js";
import {isAsked} from "./outcome.js";

const FEW = 12;
const MANY = 40;
const PACE = 900; // milliseconds a step while playing
const PATIENCE = 200; // before a moved slider starts a search
const TEMPERATURES = [0.1, 0.12, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1, 1.1, 1.2, 1.3, 1.4, 1.5,
                      1.6, 1.8, 2];

const writes = (task) => task === "translation" || task === "language_model";

export const view = {id: "writing", title: (run) => (writes(run.task) ? "Writing" : "Answer"), create,
  applies: (run) => isAsked(run.task)};

function create(context) {
  const text = textCard(context);
  const step = stepCard(context);
  const beam = beamCard(context);
  const element = h("div", {class: "view-writing"}, text.element, step.element, beam.element);

  function show(trace, state) {
    const at = positionOf(trace, state);
    text.show(trace, at, state);
    step.show(trace, at, state);
    beam.element.hidden = !writes(trace.task);
    if (writes(trace.task)) beam.show(trace, state);
  }

  return {element, show, key: text.key};
}

/** The chosen step; at first, the first that the model wrote itself. */
export function positionOf(trace, state) {
  const last = trace.steps.length - 1;
  const chosen = Number.isInteger(state.position) ? state.position : trace.prompt ?? 0;
  return Math.max(0, Math.min(last, chosen));
}

/** The output that begins as this one does before step `at` and goes on with `id`. A prompt is not part of it. */
export function prefixWith(trace, at, id) {
  return [...trace.target_ids.slice(trace.prompt ?? 0, at), id];
}

// ---------------------------------------------------------------- the text, token by token

function textCard(context) {
  const title = h("h2", {});
  const row = h("div", {class: "said"});
  const strip = h("div", {class: "box strip"});
  const note = h("p", {class: "small dim"});
  const counter = h("span", {class: "counter"});
  const play = h("button", {type: "button", class: "button quiet", onclick: () => (timer ? stop() : start())},
    "▶ play");
  const move = (by) => () => { stop(); go(by); };
  const buttons = h("div", {class: "row walk"},
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
    timer = setInterval(() => { if (!element.isConnected || element.offsetParent === null || !go(1)) stop(); }, PACE);
    play.textContent = "❚❚ pause";
  }

  function stop() {
    clearInterval(timer);
    timer = null;
    play.textContent = "▶ play";
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
    element.hidden = trace.steps.length < 2 && !writes(trace.task);
    title.textContent = headline(trace);
    const written = trace.steps.map((step) => step.p);
    fill(row, tokenRow(faces(trace), {p: written, selected: at, label: "Steps",
      onpick: (i) => { stop(); context.state.set({position: i}, {replace: true}); },
      title: (i) => `step ${i + 1}: ${percent(written[i])}${i < (trace.prompt ?? 0) ? ", given" : ""}`}));
    for (const chip of row.querySelectorAll("button.token")) {
      if (Number(chip.dataset.index) < (trace.prompt ?? 0)) chip.classList.add("given");
    }
    fill(strip, trace.steps.length > 1 && stripChart(trace, at, (i) => context.state.set({position: i},
      {replace: true})));
    strip.hidden = trace.steps.length < 2;
    buttons.hidden = trace.steps.length < 2;
    counter.textContent = `step ${at + 1} of ${trace.steps.length}`;
    fill(note, noteOf(trace, state, context));
    if (focused) row.querySelector(`[data-index="${at}"]`)?.focus();
    strip.querySelector(".here")?.scrollIntoView?.({block: "nearest", inline: "nearest"});
  }

  return {element, show, key};
}

function headline(trace) {
  if (writes(trace.task)) return "Written one token at a time";
  return trace.task === "tagging" ? "A tag for each word" : "What was hidden";
}

function faces(trace) {
  if (trace.task !== "tagging" || !trace.tags) return trace.steps.map((step) => step.token);
  return trace.tags.map(({word, tag}) => `${word} · ${tag}`);
}

function noteOf(trace, state, context) {
  const told = [];
  const forced = writes(trace.task) ? state.prefix?.length ?? 0 : 0;
  if (trace.prompt) {
    told.push(`The first ${trace.prompt} tokens were given (dashed); `,
      "their probabilities say how well the model would have guessed them. ");
  }
  if (forced) {
    const free = () => context.state.set({prefix: null, position: null});
    told.push(forced === 1 ? "The first token was" : `The first ${forced} tokens were`,
      " set by you; the model went on from there. ",
      h("button", {type: "button", class: "button quiet", onclick: free}, "let it write by itself"));
  }
  if (writes(trace.task) && trace.finished === false) told.push("It was cut off at the greatest length. ");
  return told;
}

/** How sure the model was at each step, as columns. */
function stripChart(trace, at, onpick) {
  const [wide, tall, edge] = [Math.max(14, Math.min(34, Math.floor(640 / trace.steps.length))), 56, 4];
  const whole = wide * trace.steps.length + 2 * edge;
  const svg = s("svg", {class: "columns", width: whole, height: tall + 18, role: "img",
    aria: {label: stripTold(trace)}},
    s("line", {class: "level", x1: 0, x2: whole, y1: 2, y2: 2}));
  trace.steps.forEach((step, i) => {
    const [x, high] = [edge + i * wide, Math.max(1.5, step.p * (tall - 2))];
    const marks = `${i === at ? " here" : ""}${i < (trace.prompt ?? 0) ? " given" : ""}`;
    const numbered = trace.steps.length <= 40 || i === at || i % 5 === 4;
    svg.append(s("g", {class: `column${marks}`, onclick: () => onpick(i)},
      s("rect", {class: "hit", x, y: 0, width: wide, height: tall + 18}),
      s("rect", {class: "fill", x: x + 2, y: tall - high, width: wide - 4, height: high}),
      numbered && s("text", {x: x + wide / 2, y: tall + 14, "text-anchor": "middle"}, i + 1),
      s("title", {}, `step ${i + 1}: ${readable(step.token)}, ${percent(step.p)}`)));
  });
  return svg;
}

function stripTold(trace) {
  const own = trace.steps.map((step, i) => ({...step, number: i + 1})).slice(trace.prompt ?? 0);
  if (!own.length) return "All tokens were given.";
  const least = own.reduce((best, step) => (step.p < best.p ? step : best));
  return `How sure it was at each of ${trace.steps.length} steps; least at step ${least.number}, `
    + `${readable(least.token)}, ${percent(least.p)}.`;
}

// ---------------------------------------------------------------- one step: its candidates, and sampling

function stepCard(context) {
  const title = h("h2", {});
  const before = h("p", {class: "before"});
  const list = h("div", {class: "candidates"});
  const more = h("button", {type: "button", class: "button quiet", onclick: () => { all = !all; redraw(); }});
  const knobs = samplingKnobs(context);
  const facts = h("p", {class: "facts", aria: {live: "polite"}});
  const lot = h("p", {class: "lot", aria: {live: "polite"}});
  const draw = h("button", {type: "button", class: "button", onclick: drawOne}, "Draw one");
  const seed = h("input", {type: "number", min: 0, max: 4294967295, step: 1, class: "seed",
    aria: {label: "Seed of the draw"},
    onchange: () => context.state.set({seed: Math.abs(Math.trunc(Number(seed.value))) >>> 0}, {replace: true})});
  const sampling = h("div", {class: "sampling"}, h("h3", {}, "Sampling"), knobs.element, facts,
    h("div", {class: "row"}, draw, h("label", {class: "small dim"}, "seed ", seed)), lot);
  const element = h("section", {class: "card step"}, title, before, h("div", {class: "halves"},
    h("div", {}, list, more), sampling));
  let all = false;
  let now = null;
  let lucky = null; // what was drawn last, {trace, at, candidate}

  function show(trace, at, state) {
    if (lucky && (lucky.trace !== trace || lucky.at !== at)) lucky = null;
    now = {trace, at, state};
    redraw();
  }

  function redraw() {
    const {trace, at, state} = now;
    const step = trace.steps[at];
    const generating = writes(trace.task);
    sampling.hidden = !generating || !step;
    fill(lot, lucky && lotOf(lucky, trace, at, take));
    if (!step) {
      title.textContent = "Nothing to answer yet";
      fill(before, trace.task === "masked_language_model"
        ? "Hide a token of the text above, and see what the model thinks it was." : "The model said nothing here.");
      fill(list);
      more.hidden = true;
      return;
    }
    const settings = knobs.show(state, context.run());
    const distribution = filtered(step, generating ? settings : {});
    title.textContent = generating ? `Step ${at + 1}: what could come here`
      : trace.steps.length > 1 ? `${at + 1} of ${trace.steps.length}: what it could be` : "What it could be";
    fill(before, beforeOf(trace, at));
    const given = at < (trace.prompt ?? 0);
    const mayTake = generating && !given && !context.info.recorded;
    const drawing = {step, distribution, generating, lucky: lucky?.candidate, take: mayTake ? take : null};
    fill(list, candidateTable(drawing, all ? MANY : FEW));
    const beyond = Math.min(MANY, distribution.candidates.length) - FEW;
    more.hidden = beyond <= 0;
    more.textContent = all ? "fewer" : `${beyond} more`;
    seed.value = String(seedOf(state));
    if (generating) fill(facts, factsOf(distribution));
  }

  function drawOne() {
    const {trace, at, state} = now;
    const seed = seedOf(state); // the one that is shown; the next draw has the next
    const settings = knobs.show(state, context.run());
    lucky = {trace, at, seed, candidate: drawn(filtered(trace.steps[at], settings), chance(nextSeed(nextSeed(seed))))};
    context.state.set({seed: (seed + 1) >>> 0}, {replace: true});
    redraw();
  }

  function take(id) {
    const {trace, at} = now;
    context.state.set({prefix: prefixWith(trace, at, id), position: at + 1, target: null});
  }

  return {element, show};
}

// The slider's steps are even in its logarithm, about.
function nearest(temperature) {
  const away = (i) => Math.abs(Math.log(TEMPERATURES[i] / temperature));
  return TEMPERATURES.reduce((best, _, i) => (away(i) < away(best) ? i : best), 0);
}

function seedOf(state) {
  return Number.isInteger(state.seed) ? state.seed >>> 0 : 1;
}

function lotOf({candidate}, trace, at, take) {
  if (!candidate) return "Drawn: one of the rare tokens beyond those listed, which this page cannot name.";
  const word = h("bdi", {class: "word"}, readable(candidate.token));
  if (at < (trace.prompt ?? 0)) return ["Drawn: ", word, ". (It was given here, so there is no going on from it.)"];
  if (candidate.id === trace.steps[at].id) return ["Drawn: ", word, ", which is what was said."];
  return ["Drawn: ", word, ". ", h("button", {type: "button", class: "button quiet", onclick: () => take(candidate.id)},
    "go on from it")];
}

function beforeOf(trace, at) {
  const word = (told) => h("bdi", {class: "word"}, told);
  const joined = (tokens) => tokens.map((token) => readable(token)).join(" ");
  if (trace.task === "tagging" && trace.tags) return ["For the word ", word(readable(trace.tags[at].word)), ":"];
  if (trace.task === "masked_language_model") {
    const place = trace.hidden[at];
    const [left, right] = [trace.source.slice(Math.max(0, place - 4), place), trace.source.slice(place + 1, place + 5)];
    return ["Between ", word(joined(left)), " and ", word(joined(right)), ":"];
  }
  if (!writes(trace.task)) return null;
  if (at === 0) return trace.prompt ? "At the very beginning:" : "At the beginning of the output:";
  const told = joined(trace.target_out.slice(Math.max(0, at - 12), at));
  return ["After ", word(at > 12 ? `… ${told}` : told), ":"];
}

function samplingKnobs(context) {
  const set = (patch) => context.state.set(patch, {replace: true});
  const temperature = slider({label: "temperature", min: 0, max: TEMPERATURES.length - 1, value: nearest(1),
    format: (i) => String(TEMPERATURES[i]), oninput: (i) => set({temperature: TEMPERATURES[i]})});
  const k = slider({label: "top-k", min: 0, max: 100, value: 0, format: (v) => (v ? String(v) : "off"),
    oninput: (v) => set({top_k: v})});
  const p = slider({label: "top-p", min: 0.05, max: 1, step: 0.01, value: 1,
    format: (v) => (v < 1 ? v.toFixed(2) : "off"), oninput: (v) => set({top_p: v})});
  const back = () => set({temperature: null, top_k: null, top_p: null});
  const reset = h("button", {type: "button", class: "button quiet", onclick: back}, "reset");

  function show(state, run) {
    const usual = run?.decode ?? {};
    const settings = {temperature: inside(state.temperature ?? usual.temperature, 0.1, 2, 1),
      topK: Math.round(inside(state.top_k ?? usual.top_k, 0, 100, 0)),
      topP: inside(state.top_p ?? usual.top_p, 0.05, 1, 1)};
    temperature.set(nearest(settings.temperature));
    k.set(settings.topK);
    p.set(settings.topP);
    reset.hidden = [state.temperature, state.top_k, state.top_p].every((value) => (value ?? null) === null);
    return settings;
  }

  return {element: h("div", {class: "knobs"}, temperature.element, k.element, p.element, reset), show};
}

/** How much is left, and how open the choice still is. */
function factsOf({kept, of, mass, before, after}) {
  const share = percent(mass > 1 - 1e-9 ? 1 : mass);
  const open = `as open as a choice among ${number(2 ** before)} → ${number(2 ** after)} equally likely tokens`;
  return [`${kept.toLocaleString("en")} of ${of.toLocaleString("en")} tokens may be drawn; at this temperature they `,
    `hold ${share} of the probability. Entropy ${before.toFixed(2)} → ${after.toFixed(2)} bits: ${open}.`];
}

// What is shown one by one: the likeliest, what was said and what was drawn; all the rest is one row.
function candidateTable(drawing, most) {
  const {step, distribution: {candidates, tail}, generating, lucky, take} = drawing;
  const wanted = (each) => each.index < most || each.id === step.id || each.id === lucky?.id;
  const [shown, rest] = [candidates.filter(wanted), candidates.filter((each) => !wanted(each))];
  const unlisted = !candidates.some((each) => each.id === step.id);
  const sum = (key) => rest.reduce((total, each) => total + each[key], 0) + tail[key];
  const others = {p: sum("p"), q: sum("q"), count: rest.length + tail.count - (unlisted && tail.count ? 1 : 0)};
  const faces = candidates.map((each) => readable(each.token));
  const look = {...drawing, twins: new Set(faces.filter((face, i) => faces.indexOf(face) !== i)),
    top: Math.max(1e-9, ...candidates.map((each) => Math.max(each.p, generating ? each.q : 0)))};
  const column = (name, told) => h("th", {scope: "col", class: name}, told);
  const unseen = (told) => h("span", {class: "visually-hidden"}, told);
  return h("table", {aria: {label: "Candidates, likeliest first"}},
    h("thead", {}, h("tr", {}, column(null, generating ? "token" : "answer"), column("bars", unseen("as bars")),
      column("figure", generating ? "model" : "p"), generating && column("figure", "drawn"),
      take && column(null, unseen("choose")))),
    h("tbody", {}, shown.map((each) => candidateRow(each, look)), unlisted && unlistedRow(look),
      others.count > 0 && othersRow(others, look)));
}

function candidateRow(each, {step, generating, lucky, take, top, twins}) {
  const [said, chance, out] = [each.id === step.id, each.id === lucky?.id, generating && !each.kept];
  const marks = [said && "chosen", out && "out", chance && "lucky"].filter(Boolean).join(" ");
  const face = readable(each.token);
  const number = twins.has(face) && h("span", {class: "twin", title: "other tokens read alike: its number"},
    `#${each.id}`);
  return h("tr", {class: marks},
    h("th", {scope: "row", title: `logit ${each.logit}, id ${each.id}`},
      h(out ? "s" : "span", {}, h("bdi", {class: "word"}, face)), number,
      said && h("span", {class: "pill"}, "said"), chance && h("span", {class: "pill"}, "drawn"),
      out && h("span", {class: "visually-hidden"}, "may not be drawn")),
    figures(each.p, generating ? each.q : null, top, each.kept),
    take && h("td", {class: "act"}, !said && h("button", {type: "button", class: "button quiet",
      aria: {label: `Take ${face} instead`}, title: "take this instead, and let the model go on",
      onclick: () => take(each.id)}, "take")));
}

// What was said is so unlikely that the server does not name it among the candidates.
function unlistedRow({step, generating, take, top}) {
  return h("tr", {class: "chosen"},
    h("th", {scope: "row"}, h("bdi", {class: "word"}, readable(step.token)),
      h("span", {class: "pill"}, `said, rank ${step.rank + 1}`)),
    figures(step.p, generating ? 0 : null, top, false), take && h("td", {}));
}

function othersRow({p, q, count}, {generating, take, top}) {
  return h("tr", {class: "others"}, h("th", {scope: "row"}, `${count.toLocaleString("en")} others`),
    figures(p, generating ? q : null, top, q > 0), take && h("td", {}));
}

/** The cells of a probability by the model and, where there is sampling, of the one that is drawn with. */
function figures(p, q, top, kept) {
  return [h("td", {class: "bars"}, pairOfBars(p / top, q === null ? null : q / top)),
    h("td", {class: "figure"}, percent(p)), q !== null && h("td", {class: "figure"}, kept ? percent(q) : "–")];
}

function pairOfBars(p, q) {
  return h("span", {class: `pair${q === null ? " single" : ""}`}, h("span", {class: "original"}, bar(p)),
    q !== null && h("span", {class: "renewed"}, bar(q)));
}

// ---------------------------------------------------------------- beam search

function beamCard(context) {
  const ask = latest();
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
    onlook: (node) => read(node ?? picked)});
  const body = h("div", {}, why, tree.element, readout, treeLegend(), texts);
  const element = h("section", {class: "card beam"}, h("h2", {}, "Beam search, as a tree"),
    h("p", {class: "intro"}, "Greedy search takes the likeliest token and has no way back. Beam search follows the k ",
      "likeliest beginnings side by side; whole texts are then compared by log p divided by the length penalty ",
      "((5 + length) / 6)", h("sup", {}, "α"), "."),
    h("div", {class: "knobs"}, size.element, alpha.element), status, body);
  let asked = null;
  let search = null;
  let picked = null;
  let timer = null;

  function show(trace, state) {
    const usual = context.run()?.decode ?? {};
    const beamSize = Math.round(inside(state.beam_size ?? usual.beam_size, 1, 8, 4));
    const penalty = inside(state.length_penalty ?? usual.length_penalty, 0, 2, 0.6);
    size.set(beamSize);
    alpha.set(penalty);
    const request = context.request({target: null, beam_size: beamSize, length_penalty: penalty});
    const name = JSON.stringify(request);
    if (name !== asked) {
      const first = asked === null;
      asked = name;
      clearTimeout(timer);
      timer = setTimeout(() => find(request, trace, name), first ? 0 : PATIENCE);
    } else if (search) choose(state.found);
  }

  async function find(request, trace, name) {
    const slow = setTimeout(() => fill(status, waiting("Searching …")), 150);
    element.setAttribute("aria-busy", "true");
    try {
      const answer = await ask((signal) => context.source.beam(request, signal));
      if (answer && name === asked) present(answer, trace);
    } catch (error) {
      if (name !== asked) return;
      search = null;
      body.hidden = true;
      fill(status, trouble(error));
    } finally {
      clearTimeout(slow);
      if (name === asked) element.removeAttribute("aria-busy");
    }
  }

  function present(answer, trace) {
    search = answer;
    body.hidden = false;
    fill(status);
    tree.show(answer);
    picked = null;
    fill(why, reasons(answer, tree).map((told) => [told, " "]));
    fill(texts, foundTable(answer, trace, (node) => context.state.set({found: node}, {replace: true})));
    choose(context.state.read().found);
  }

  function choose(id) {
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
    fill(readout, node ? nodeTold(node, tree.path(node.id), search.length_penalty) : h("span", {class: "dim"},
      "Point at a node, or walk with the arrow keys, to read its numbers."));
  }

  return {element, show};
}

function inside(value, least, most, otherwise) {
  return Number.isFinite(value) ? Math.max(least, Math.min(most, value)) : otherwise;
}

function nodeTold(node, path, alpha) {
  const words = path.slice(1).map((each) => readable(each.token)).join(" ");
  if (node.state === "root") return h("span", {}, "The beginning: nothing is written yet.");
  const penalty = lengthPenalty(node.depth, alpha);
  const figures = [`p ${percent(node.p)}`, `log p ${fixed(node.log_p)}`, `length ${node.depth}`,
    `penalty ${fixed(penalty)}`, `score ${fixed(node.score)}`];
  return [h("bdi", {class: "word"}, words), h("span", {class: "figures"}, ` ${figures.join(" · ")}`)];
}

function fixed(value) {
  return value.toFixed(Math.abs(value) < 0.1 && value !== 0 ? 4 : 2).replace(/^-/, "−");
}

/** Why the winner won, as far as that can be computed from the search: a list of sentences, each true. */
export function reasons(search, tree) {
  if (!search.found.length) return ["No whole text was found."];
  return [whyBest(search.found), whyNotGreedy(tree.path(search.found[0].node))].filter(Boolean);
}

function whyBest([winner, ...others]) {
  if (!others.length) return [quoted(winner.text), " is the only text that was found."];
  const likeliest = others.reduce((best, text) => (text.log_p > best.log_p ? text : best), winner);
  if (likeliest === winner) {
    return [quoted(winner.text), ` wins: it is the likeliest of the texts found, and its score ${fixed(winner.score)} `,
      "is the best too; next comes ", quoted(others[0].text), ` with ${fixed(others[0].score)}.`];
  }
  const division = (text) => `${fixed(text.log_p)} / ${fixed(text.penalty)} = ${fixed(text.score)}`;
  return [quoted(winner.text), ` has a lower log-probability (${fixed(winner.log_p)}) than `, quoted(likeliest.text),
    ` (${fixed(likeliest.log_p)}), but it is longer, and wins after dividing by the length penalty: `,
    `${division(winner)} against ${division(likeliest)}.`];
}

function whyNotGreedy(path) {
  const {node, rival} = detourOf(path) ?? {};
  if (!node || readable(node.token) === readable(rival.token)) return null;
  return [`Greedy search would have missed it: at step ${node.depth} it takes `, quoted(node.token),
    ` (${percent(node.p)}), although `, quoted(rival.token), ` (${percent(rival.p)}) is likelier there.`];
}

function quoted(text) {
  return h("bdi", {class: "word"}, `“${shortened(readable(text))}”`);
}

// Long texts often differ at their ends only, so both ends are kept.
function shortened(text) {
  const signs = [...text];
  return signs.length > 90 ? `${signs.slice(0, 40).join("")} … ${signs.slice(-44).join("")}` : text;
}

/** The first place where a path does not take the likeliest token. */
function detourOf(path) {
  for (const node of path) {
    const rival = (node.up?.children ?? []).reduce((best, other) => (other.p > (best?.p ?? node.p) ? other : best),
      null);
    if (rival) return {node, rival};
  }
  return null;
}

function foundTable(search, trace, onpick) {
  if (!search.found.length) return null;
  const names = ["text found", "log p", "length", "penalty", "score"];
  const head = names.map((name, i) => h("th", {scope: "col", class: i ? "figure" : null}, name));
  return h("table", {class: "found", aria: {label: "Texts found, best first"}}, h("thead", {}, h("tr", {}, head)),
    h("tbody", {}, search.found.map((text, i) => foundRow(text, {wins: i === 0, same: text.text === trace.output,
      onpick}))));
}

function foundRow(text, {wins, same, onpick}) {
  const figures = [fixed(text.log_p), String(text.length), fixed(text.penalty), fixed(text.score)];
  return h("tr", {data: {node: text.node}},
    h("th", {scope: "row"},
      h("button", {type: "button", class: "pick", aria: {pressed: false},
        title: `${text.text}\n(shows its path in the tree)`,
        onclick: () => onpick(text.node)}, h("bdi", {}, text.text ? readable(text.text) : "(nothing)")),
      wins && h("span", {class: "pill"}, "winner"), same && h("span", {class: "pill"}, "as above")),
    figures.map((figure) => h("td", {class: "figure"}, figure)));
}

function treeLegend() {
  return h("p", {class: "small dim"}, "Solid: lived on to the next step. Dashed, ✕: likely, but not likely enough for ",
    "the beam. ●: found, ended by </s>. ■: cut off. Bold: the winner.");
}
