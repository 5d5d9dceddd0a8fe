// Writing, one token after the other: what could have come, what sampling would do to it, and beam search as a tree.
// For models that do not write (classes, tags, hidden tokens) the same candidates, under the title "Answer".

import {h, s, fill, number, percent} from "../dom.js";
import {slider, bar} from "../controls.js";
import {tokenRow, readable} from "../tokens.js";
import {filtered, nextSeed, chance, drawn} from "./sampling.js";
import {beamTree, lengthPenalty} from "./beamtree.js";
import {latest, waiting, trouble} from "./asking.js";

const FEW = 12;
const MANY = 40;
const PACE = 900; // milliseconds a step while playing
const PATIENCE = 200; // before a moved slider starts a search
const TEMPERATURES = [0.1, 0.12, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.8, 2];

const writes = (task) => task === "translation" || task === "language_model";

export const view = {id: "writing", title: (run) => (writes(run.task) ? "Writing" : "Answer"), applies: () => true, create};

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
  const play = h("button", {type: "button", class: "button quiet", onclick: () => (timer ? stop() : start())}, "▶ play");
  const move = (by) => () => { stop(); go(by); };
  const buttons = h("div", {class: "row walk"},
    h("button", {type: "button", class: "button quiet", onclick: move(-1), aria: {label: "Previous step"}}, "◀"),
    play, h("button", {type: "button", class: "button quiet", onclick: move(1), aria: {label: "Next step"}}, "▶"), counter);
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
    if (!by || !now?.trace.steps.length || event.target.closest?.("input, select, textarea, [role=tree], [role=tablist]")) return;
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
    fill(strip, trace.steps.length > 1 && stripChart(trace, at, (i) => context.state.set({position: i}, {replace: true})));
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
  if (trace.prompt) told.push(`The first ${trace.prompt} tokens were given (dashed); their probabilities say how well the model would have guessed them. `);
  if (forced) {
    told.push(`${forced === 1 ? "The first token was" : `The first ${forced} tokens were`} set by you; the model went on from there. `,
      h("button", {type: "button", class: "button quiet", onclick: () => context.state.set({prefix: null, position: null})}, "let it write by itself"));
  }
  if (writes(trace.task) && trace.finished === false) told.push("It was cut off at the greatest length. ");
  return told;
}

/** How sure the model was at each step, as columns. */
function stripChart(trace, at, onpick) {
  const [width, height, edge] = [Math.max(14, Math.min(34, Math.floor(640 / trace.steps.length))), 56, 4];
  const least = trace.steps.reduce((best, step, i) => (i >= (trace.prompt ?? 0) && (best < 0 || step.p < trace.steps[best].p) ? i : best), -1);
  const svg = s("svg", {class: "columns", width: width * trace.steps.length + 2 * edge, height: height + 18, role: "img",
    aria: {label: `How sure it was at each of ${trace.steps.length} steps; least sure at step ${least + 1}, ${readable(trace.steps[Math.max(0, least)].token)}, ${percent(trace.steps[Math.max(0, least)].p)}.`}});
  svg.append(s("line", {class: "level", x1: 0, x2: width * trace.steps.length + 2 * edge, y1: 2, y2: 2}));
  trace.steps.forEach((step, i) => {
    const tall = Math.max(1.5, step.p * (height - 2));
    const x = edge + i * width;
    svg.append(s("g", {class: `column${i === at ? " here" : ""}${i < (trace.prompt ?? 0) ? " given" : ""}`, onclick: () => onpick(i)},
      s("rect", {class: "hit", x, y: 0, width, height: height + 18}), s("rect", {class: "fill", x: x + 2, y: height - tall, width: width - 4, height: tall}),
      (trace.steps.length <= 40 || i === at || i % 5 === 4) && s("text", {x: x + width / 2, y: height + 14, "text-anchor": "middle"}, i + 1),
      s("title", {}, `step ${i + 1}: ${readable(step.token)}, ${percent(step.p)}`)));
  });
  return svg;
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
  const seed = h("input", {type: "number", min: 0, max: 4294967295, step: 1, class: "seed", aria: {label: "Seed of the draw"},
    onchange: () => context.state.set({seed: Math.abs(Math.trunc(Number(seed.value))) >>> 0}, {replace: true})});
  const sampling = h("div", {class: "sampling"}, h("h3", {}, "Sampling"), knobs.element, facts,
    h("div", {class: "row"}, draw, h("label", {class: "small dim"}, "seed ", seed)), lot);
  const element = h("section", {class: "card step"}, title, before, h("div", {class: "halves"}, h("div", {}, list, more), sampling));
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
      fill(before, trace.task === "masked_language_model" ? "Hide a token of the text above, and see what the model thinks it was." : "The model said nothing here.");
      fill(list);
      more.hidden = true;
      return;
    }
    const settings = knobs.show(state, context.run());
    const distribution = filtered(step, generating ? settings : {});
    title.textContent = generating ? `Step ${at + 1}: what could come here` : trace.steps.length > 1 ? `${at + 1} of ${trace.steps.length}: what it could be` : "What it could be";
    fill(before, beforeOf(trace, at));
    const given = at < (trace.prompt ?? 0);
    fill(list, candidateTable({step, distribution, all, generating, lucky: lucky?.candidate, take: generating && !given ? take : null}));
    const beyond = Math.min(MANY, distribution.candidates.length) - FEW;
    more.hidden = beyond <= 0;
    more.textContent = all ? "fewer" : `${beyond} more`;
    seed.value = String(seedOf(state));
    if (generating) fill(facts, factsOf(distribution));
  }

  function drawOne() {
    const {trace, at, state} = now;
    const next = nextSeed(seedOf(state));
    const settings = knobs.show(state, context.run());
    lucky = {trace, at, candidate: drawn(filtered(trace.steps[at], settings), chance(next))};
    context.state.set({seed: next}, {replace: true});
    redraw();
  }

  function take(id) {
    const {trace, at} = now;
    context.state.set({prefix: prefixWith(trace, at, id), position: at + 1, target: null});
  }

  return {element, show};
}

function seedOf(state) {
  return Number.isInteger(state.seed) ? state.seed >>> 0 : 1;
}

function lotOf({candidate}, trace, at, take) {
  if (!candidate) return "Drawn: one of the rare tokens beyond those listed, which this page cannot name.";
  const word = h("bdi", {class: "word"}, readable(candidate.token));
  if (at < (trace.prompt ?? 0)) return ["Drawn: ", word, ". (It was given here, so there is no going on from it.)"];
  if (candidate.id === trace.steps[at].id) return ["Drawn: ", word, ", which is what was said."];
  return ["Drawn: ", word, ". ", h("button", {type: "button", class: "button quiet", onclick: () => take(candidate.id)}, "go on from it")];
}

function beforeOf(trace, at) {
  if (trace.task === "tagging") return trace.tags ? ["For the word ", h("bdi", {class: "word"}, readable(trace.tags[at].word)), ":"] : null;
  if (trace.task === "masked_language_model") {
    const place = trace.hidden[at];
    const side = (from, to) => h("bdi", {class: "word"}, trace.source.slice(Math.max(0, from), Math.max(0, to)).map((token) => readable(token)).join(" "));
    return ["Between ", side(place - 4, place), " and ", side(place + 1, place + 5), ":"];
  }
  if (!writes(trace.task)) return null;
  if (at === 0) return trace.prompt ? "At the very beginning:" : "At the beginning of the output:";
  const told = trace.target_out.slice(Math.max(0, at - 12), at).map((token) => readable(token)).join(" ");
  return ["After ", h("bdi", {class: "word"}, at > 12 ? `… ${told}` : told), ":"];
}

function samplingKnobs(context) {
  const set = (patch) => context.state.set(patch, {replace: true});
  const nearest = (t) => TEMPERATURES.reduce((best, each, i) => (Math.abs(Math.log(each / t)) < Math.abs(Math.log(TEMPERATURES[best] / t)) ? i : best), 0);
  const temperature = slider({label: "temperature", min: 0, max: TEMPERATURES.length - 1, step: 1, value: nearest(1), format: (i) => String(TEMPERATURES[i]),
    oninput: (i) => set({temperature: TEMPERATURES[i]})});
  const k = slider({label: "top-k", min: 0, max: 100, step: 1, value: 0, format: (v) => (v ? String(v) : "off"), oninput: (v) => set({top_k: v})});
  const p = slider({label: "top-p", min: 0.05, max: 1, step: 0.01, value: 1, format: (v) => (v < 1 ? v.toFixed(2) : "off"), oninput: (v) => set({top_p: v})});
  const reset = h("button", {type: "button", class: "button quiet", onclick: () => set({temperature: null, top_k: null, top_p: null})}, "reset");
  const within = (value, least, most, otherwise) => (Number.isFinite(value) ? Math.max(least, Math.min(most, value)) : otherwise);

  function show(state, run) {
    const usual = run?.decode ?? {};
    const settings = {temperature: within(state.temperature ?? usual.temperature, 0.1, 2, 1), topK: Math.round(within(state.top_k ?? usual.top_k, 0, 100, 0)),
      topP: within(state.top_p ?? usual.top_p, 0.05, 1, 1)};
    temperature.set(nearest(settings.temperature));
    k.set(settings.topK);
    p.set(settings.topP);
    reset.hidden = [state.temperature, state.top_k, state.top_p].every((value) => value === null || value === undefined);
    return settings;
  }

  return {element: h("div", {class: "knobs"}, temperature.element, k.element, p.element, reset), show};
}

/** How much is left, and how open the choice still is. */
function factsOf({kept, of, mass, before, after}) {
  const among = (bits) => number(2 ** bits);
  return [`${kept.toLocaleString("en")} of ${of.toLocaleString("en")} tokens may be drawn; at this temperature they hold ${percent(mass > 1 - 1e-9 ? 1 : mass)} of the probability. `,
    `Entropy ${before.toFixed(2)} → ${after.toFixed(2)} bits: as open as a choice among ${among(before)} → ${among(after)} equally likely tokens.`];
}

function candidateTable({step, distribution, all, generating, lucky, take}) {
  const {candidates, tail} = distribution;
  const shown = candidates.slice(0, all ? MANY : FEW);
  const extra = [...new Set([candidates.find((each) => each.id === step.id), candidates.find((each) => each.id === lucky?.id)])]
    .filter((each) => each && each.index >= shown.length).sort((a, b) => a.index - b.index);
  const unlisted = !candidates.some((each) => each.id === step.id);
  const rest = candidates.filter((each) => each.index >= shown.length && !extra.includes(each));
  const sum = (key) => rest.reduce((total, each) => total + each[key], 0) + tail[key];
  const count = rest.length + tail.count - (unlisted && tail.count ? 1 : 0);
  const most = Math.max(...candidates.map((each) => Math.max(each.p, generating ? each.q : 0)), 1e-9);
  const faces = candidates.map((each) => readable(each.token));
  const twins = new Set(faces.filter((face, i) => faces.indexOf(face) !== i));
  const row = (each) => candidateRow(each, {step, generating, lucky, take, most, twins});
  return h("table", {aria: {label: "Candidates, likeliest first"}},
    h("thead", {}, h("tr", {}, h("th", {scope: "col"}, writesTitle(generating)), h("th", {scope: "col", class: "bars"}, h("span", {class: "visually-hidden"}, "as bars")),
      h("th", {scope: "col", class: "figure"}, generating ? "model" : "p"), generating && h("th", {scope: "col", class: "figure"}, "drawn"), take && h("th", {}, h("span", {class: "visually-hidden"}, "choose")))),
    h("tbody", {}, shown.map(row), extra.map(row),
      unlisted && h("tr", {class: "chosen"}, h("th", {scope: "row"}, h("bdi", {class: "word"}, readable(step.token)), h("span", {class: "pill"}, `said, rank ${step.rank + 1}`)),
        h("td", {class: "bars"}, bar(step.p / most)), h("td", {class: "figure"}, percent(step.p)), generating && h("td", {class: "figure"}, "–"), take && h("td", {})),
      count > 0 && h("tr", {class: "others"}, h("th", {scope: "row"}, `${count.toLocaleString("en")} others`), h("td", {class: "bars"}, pairOfBars(sum("p") / most, generating ? sum("q") / most : null)),
        h("td", {class: "figure"}, percent(sum("p"))), generating && h("td", {class: "figure"}, sum("q") > 0 ? percent(sum("q")) : "–"), take && h("td", {}))));
}

function writesTitle(generating) {
  return generating ? "token" : "answer";
}

function candidateRow(each, {step, generating, lucky, take, most, twins}) {
  const said = each.id === step.id;
  const out = generating && !each.kept;
  const marks = [said && "chosen", out && "out", lucky?.id === each.id && "lucky"].filter(Boolean).join(" ");
  const word = h(out ? "s" : "span", {}, h("bdi", {class: "word"}, readable(each.token)));
  return h("tr", {class: marks},
    h("th", {scope: "row", title: `logit ${number(each.logit)}, id ${each.id}`}, word,
      twins.has(readable(each.token)) && h("span", {class: "twin", title: "other tokens read alike: this is its number"}, `#${each.id}`), said && h("span", {class: "pill"}, "said"), lucky?.id === each.id && h("span", {class: "pill"}, "drawn"),
      out && h("span", {class: "visually-hidden"}, "may not be drawn")),
    h("td", {class: "bars"}, pairOfBars(each.p / most, generating ? each.q / most : null)),
    h("td", {class: "figure"}, percent(each.p)), generating && h("td", {class: "figure"}, each.kept ? percent(each.q) : "–"),
    take && h("td", {class: "act"}, !said && h("button", {type: "button", class: "button quiet", aria: {label: `Take ${readable(each.token)} instead`}, title: "take this instead, and let the model go on",
      onclick: () => take(each.id)}, "take")));
}

function pairOfBars(p, q) {
  return h("span", {class: `pair${q === null ? " single" : ""}`}, h("span", {class: "original"}, bar(p)), q !== null && h("span", {class: "renewed"}, bar(q)));
}

// ---------------------------------------------------------------- beam search

function beamCard(context) {
  const ask = latest();
  const set = (patch) => context.state.set({...patch, found: null}, {replace: true});
  const size = slider({label: "beam size", min: 1, max: 8, step: 1, value: 4, format: String, oninput: (v) => set({beam_size: v})});
  const alpha = slider({label: "length penalty α", min: 0, max: 2, step: 0.1, value: 0.6, format: (v) => v.toFixed(1), oninput: (v) => set({length_penalty: +v.toFixed(1)})});
  const why = h("p", {class: "finding", aria: {live: "polite"}});
  const readout = h("p", {class: "readout"});
  const texts = h("div", {class: "box"});
  const status = h("div", {});
  const tree = beamTree({onpick: (node) => { picked = node; read(node); tree.highlight(node.id); }, onlook: (node) => read(node ?? picked)});
  const body = h("div", {}, why, tree.element, readout, treeLegend(), texts);
  const element = h("section", {class: "card beam"}, h("h2", {}, "Beam search, as a tree"),
    h("p", {class: "intro"}, "Greedy search takes the likeliest token and has no way back. Beam search follows the k likeliest beginnings side by side; ",
      "whole texts are then compared by log p divided by the length penalty ((5 + length) / 6)", h("sup", {}, "α"), "."),
    h("div", {class: "knobs"}, size.element, alpha.element), status, body);
  let asked = null;
  let search = null;
  let picked = null;
  let timer = null;

  function show(trace, state) {
    const usual = context.run()?.decode ?? {};
    const beamSize = Math.round(inside(state.beam_size ?? usual.beam_size ?? 4, 1, 8));
    const penalty = inside(state.length_penalty ?? usual.length_penalty ?? 0.6, 0, 2);
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
    fill(readout, node ? nodeTold(node, tree.path(node.id), search.length_penalty) : h("span", {class: "dim"}, "Point at a node, or walk with the arrow keys, to read its numbers."));
  }

  return {element, show};
}

function inside(value, least, most) {
  return Math.max(least, Math.min(most, Number.isFinite(value) ? value : least));
}

function nodeTold(node, path, alpha) {
  const words = path.slice(1).map((each) => readable(each.token)).join(" ");
  if (node.state === "root") return h("span", {}, "The beginning: nothing is written yet.");
  const penalty = lengthPenalty(node.depth, alpha);
  return [h("bdi", {class: "word"}, words), h("span", {class: "figures"},
    ` p ${percent(node.p)} · log p ${fixed(node.log_p)} · length ${node.depth} · penalty ${fixed(penalty)} · score ${fixed(node.score)}`)];
}

function fixed(value) {
  return value.toFixed(Math.abs(value) < 0.1 && value !== 0 ? 4 : 2).replace(/^-/, "−");
}

/** Why the winner won, as far as that can be computed from the search: a list of sentences, each true. */
export function reasons(search, tree) {
  if (!search.found.length) return ["No whole text was found."];
  const [winner, ...others] = search.found;
  const quoted = (text) => h("bdi", {class: "word"}, `“${shortened(readable(text))}”`);
  const told = [];
  const likeliest = search.found.reduce((best, text) => (text.log_p > best.log_p ? text : best));
  if (!others.length) told.push([quoted(winner.text), " is the only text that was found."]);
  else if (likeliest !== winner && winner.score > likeliest.score) {
    told.push([quoted(winner.text), ` has a lower log-probability (${fixed(winner.log_p)}) than `, quoted(likeliest.text), ` (${fixed(likeliest.log_p)}), but it is longer, `,
      `and wins after dividing by the length penalty: ${fixed(winner.log_p)} / ${fixed(winner.penalty)} = ${fixed(winner.score)} against ${fixed(likeliest.log_p)} / ${fixed(likeliest.penalty)} = ${fixed(likeliest.score)}.`]);
  } else if (likeliest === winner) {
    const second = others[0];
    told.push([quoted(winner.text), " wins: it is the likeliest of the texts found, and its score ", `${fixed(winner.score)} is the best too; next comes `,
      quoted(second.text), ` with ${fixed(second.score)}.`]);
  }
  const detour = detourOf(tree.path(winner.node));
  if (detour && readable(detour.node.token) !== readable(detour.rival.token)) {
    told.push(["Greedy search would have missed it: at step ", String(detour.node.depth), " it takes ", quoted(detour.node.token), ` (${percent(detour.node.p)}), although `,
      quoted(detour.rival.token), ` (${percent(detour.rival.p)}) is likelier there.`]);
  }
  return told;
}

// Long texts often differ at their ends only, so both ends are kept.
function shortened(text) {
  const signs = [...text];
  return signs.length > 90 ? `${signs.slice(0, 40).join("")} … ${signs.slice(-44).join("")}` : text;
}

/** The first place where a path does not take the likeliest token. */
function detourOf(path) {
  for (const node of path) {
    const rival = (node.up?.children ?? []).reduce((best, other) => (other.p > (best?.p ?? node.p) ? other : best), null);
    if (rival) return {node, rival};
  }
  return null;
}

function foundTable(search, trace, onpick) {
  if (!search.found.length) return null;
  return h("table", {class: "found", aria: {label: "Texts found, best first"}},
    h("thead", {}, h("tr", {}, ["text found", "log p", "length", "penalty", "score"].map((name, i) => h("th", {scope: "col", class: i ? "figure" : null}, name)))),
    h("tbody", {}, search.found.map((text, i) => h("tr", {data: {node: text.node}},
      h("th", {scope: "row"}, h("button", {type: "button", class: "pick", aria: {pressed: false}, title: `${text.text}\n(shows its path in the tree)`, onclick: () => onpick(text.node)},
        h("bdi", {}, text.text ? readable(text.text) : "(nothing)")), i === 0 && h("span", {class: "pill"}, "winner"), text.text === trace.output && h("span", {class: "pill"}, "as above")),
      [fixed(text.log_p), String(text.length), fixed(text.penalty), fixed(text.score)].map((figure) => h("td", {class: "figure"}, figure))))));
}

function treeLegend() {
  return h("p", {class: "small dim"}, "Solid: lived on to the next step. Dashed, ✕: likely, but not likely enough for the beam. ●: found, ended by </s>. ■: cut off. Bold: the winner.");
}
