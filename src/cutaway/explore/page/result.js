// What the model said, how sure it was, and what was changed about it (parts off, words forced).

import {fill, h, number, percent} from "./dom.js";
import {bar} from "./controls.js";
import {readable, tokenRow} from "./tokens.js";
import {likeliest as chances} from "./views/sampling.js";

const MANY = 60; // tokens; from here on they are drawn smaller

/** {element, show(trace, run, state), clear()}; change(patch) is called by what can be clicked here. */
export function result(change) {
  const said = h("div", {aria: {live: "polite"}});
  const changes = h("div", {});
  const element = h("section", {class: "result", aria: {label: "Result"}}, said, changes);
  const show = (trace, run, state) => {
    fill(said, (SHOWN[trace.task] ?? written)(trace, change), measures(trace, run));
    fill(changes, changed(trace, run, state, change));
  };
  return {element, show, clear: () => { fill(said); fill(changes); }};
}

const SHOWN = {translation: written, language_model: continued, masked_language_model: filled, classification: classes,
               image_classification: classes, tagging: tagged, embedding: vector};

function written(trace) {
  const long = trace.output.length > 240;
  return [h("p", {class: `said${long ? " long" : ""}`, dir: "auto"},
    trace.output || h("span", {class: "dim"}, "(nothing)")),
          sureTokens(trace.target_out, trace.steps)];
}

function continued(trace) {
  const row = sureTokens(trace.target_out, trace.steps, trace.prompt);
  return [h("div", {class: "said code", dir: "auto"}, h("span", {class: "dim"}, trace.text), trace.output), row];
}

function sureTokens(tokens, steps, given = 0) {
  const p = steps?.length === tokens.length ? steps.map((step, i) => (i < given ? null : step.p)) : null;
  const title = (i) => (i < given ? "given" : p ? `${percent(p[i])} sure${rank(steps[i])}` : null);
  const row = tokenRow(tokens, {p, label: "Tokens of the result, and how sure the model was of each", title});
  for (const chip of [...row.children].slice(0, given)) chip.classList.add("given");
  row.classList.toggle("many", tokens.length > MANY);
  return row;
}

function rank(step) {
  return step.rank > 0 ? `, its choice number ${step.rank + 1}` : "";
}

function filled(trace, change) {
  const steps = new Map(trace.hidden.map((position, i) => [position, trace.steps[i]]));
  const flip = (i) => change({hidden: steps.has(i) ? trace.hidden.filter((at) => at !== i)
    : [...trace.hidden, i].sort((a, b) => a - b)});
  const guess = ({token, p}) => `The model says “${readable(token)}” (${percent(p)}). Click to show it again`;
  const title = (i) => (steps.has(i) ? guess(steps.get(i)) : "Click to hide it from the model");
  const row = tokenRow(trace.source, {label: "What the model reads; click to hide a token", onpick: flip, title});
  for (const [position, step] of steps) {
    const chip = row.children[position];
    chip?.classList.add("hidden-token");
    chip?.append(" → ", h("b", {}, h("bdi", {}, readable(step.token))), ` ${percent(step.p)}`);
  }
  const hint = "Click a token to hide it: the model then guesses what stood there.";
  return [h("p", {class: "said", dir: "auto"}, trace.output), row, h("p", {class: "measures"}, hint)];
}

function classes(trace) {
  const lines = chances(trace.steps[0]).slice(0, 5).flatMap(({token, p}, i) => [h("bdi", {class: i ? null : "chosen"}, token), bar(p),
    h("span", {}, percent(p))]);
  return [h("p", {class: "said"}, h("bdi", {}, trace.output)), h("div", {class: "classes"}, lines)];
}

function tagged(trace) {
  return h("p", {class: "tagged-words", dir: "auto"}, (trace.tags ?? []).map(({word, tag, p}) =>
    h("span", {class: p < 0.5 ? "unsure" : null, title: `${percent(p)} sure`}, h("bdi", {}, readable(word)),
      h("small", {}, h("bdi", {}, tag)))));
}

function vector(trace) {
  return h("p", {class: "said code"}, trace.output);
}

// How the text was found: of a sampled one, another could have come out.
function manner({task}, {decode}) {
  if (!decode || !["translation", "language_model"].includes(task)) return null;
  if (decode.strategy !== "sample") return decode.strategy === "beam" ? `beam of ${decode.beam_size}` : null;
  const settings = [["temperature", decode.temperature, 1], ["top-k", decode.top_k, 0], ["top-p", decode.top_p, 1]];
  const told = settings.filter(([, value, off]) => value !== off).map(([name, value]) => `${name} ${value}`);
  return ["drawn by chance", ...told].join(", ");
}

function measures(trace, run) {
  const right = trace.reference !== null && trace.reference !== undefined && trace.reference === trace.output;
  const told = [
    trace.log_p === null || trace.log_p === undefined ? null : `log p ${number(trace.log_p)} nats`,
    manner(trace, run),
    trace.finished === false ? "cut off at the greatest length" : null,
    trace.milliseconds ? `${Math.round(trace.milliseconds)} ms` : null,
  ].filter(Boolean).join(" · ");
  const verdict = trace.reference ? h("span", {class: right ? "right" : "wrong"}, right ? "✓ as in the reference"
    : "✗ the reference says: ",
    right ? null : h("bdi", {}, trace.reference)) : null;
  const unknown = trace.unknown?.length ? h("span", {class: "wrong"}, "Not in the vocabulary: ",
    trace.unknown.slice(0, 12).map((word, i) =>
    [i ? ", " : "", h("bdi", {}, readable(word, 30))])) : null;
  const parts = [verdict, unknown, told].filter(Boolean);
  return h("p", {class: "measures"}, parts.map((part, i) => [i ? " · " : "", part]));
}

function changed(trace, run, state, change) {
  const titles = new Map((run.switches ?? []).map((each) => [each.id, each.title]));
  const line = (what, patch, undo) => h("p", {class: "changes"}, what, " ",
    h("button", {type: "button", class: "button link", onclick: () => change(patch)}, undo));
  const off = state.off.map((id) => titles.get(id) ?? id);
  const told = off.length > 4 ? `${off.slice(0, 4).join("; ")}; and ${off.length - 4} more` : off.join("; ");
  const forced = state.prefix?.length ? trace.target_out.slice(trace.prompt,
    trace.prompt + state.prefix.length).map((token) => readable(token)).join(" ") : "";
  return [
    off.length ? line(`Switched off: ${told}.`, {off: []}, "Switch all on again") : null,
    state.prefix?.length ? line(["The output had to begin with “", h("bdi", {}, forced), "”."], {prefix: null},
      "Let the model begin by itself") : null,
    state.target !== null ? line(["The output was given, not chosen: “", h("bdi", {}, state.target), "”."],
      {target: null}, "Let the model choose") : null,
    state.snapshot !== null ? line(`These are the weights after step ${state.snapshot}, in the middle of training.`,
      {snapshot: null}, "Take the trained ones") : null,
  ];
}
