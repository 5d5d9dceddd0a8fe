// The output of the model with its probabilities, and the changes that are in force (parts off, forced output).

import {fill, h, number, percent, scrollInside} from "./dom.js";
import {bar} from "./controls.js";
import {readable, tokenRow} from "./tokens.js";
import {topCandidates} from "./views/sampling.js";

const MANY = 60; // tokens; longer outputs get a smaller font

/** {element, show(trace, run, state)}; change(patch) is called when the user clicks something here. */
export function result(change, isRecorded = false) {
  const output = h("div", {aria: {live: "polite"}});
  const changes = h("div", {});
  const element = h("section", {class: "result", aria: {label: "Result"}}, output, changes);
  const show = (trace, run, state) => {
    fill(output, (OUTPUTS[trace.task] ?? generatedText)(trace, isRecorded ? null : change), measures(trace, run));
    fill(changes, activeChanges(trace, run, state, change));
    for (const start of output.querySelectorAll(".answer-start")) scrollInside(start.parentElement, start);
  };
  return {element, show};
}

const OUTPUTS = {translation: generatedText, language_model: continuation, masked_language_model: maskedText,
                 classification: classes, image_classification: classes, tagging: tags, embedding: vector};

function generatedText(trace) {
  const isLong = trace.output.length > 240;
  return [h("p", {class: `output${isLong ? " long" : ""}`, tabindex: isLong ? 0 : null, dir: "auto"},
    trace.output || h("span", {class: "dim"}, "(empty)")), outputTokens(trace.target_out, trace.steps)];
}

function continuation(trace) {
  const row = outputTokens(trace.target_out, trace.steps, trace.prompt);
  return [h("div", {class: "output code", tabindex: 0, dir: "auto"}, h("span", {class: "dim"}, trace.text),
    h("span", {class: "answer-start"}), trace.output), row];
}

function outputTokens(tokens, steps, prompt = 0) {
  const p = steps?.length === tokens.length ? steps.map((step, i) => (i < prompt ? null : step.p)) : null;
  const title = (i) => (i < prompt ? "part of the prompt" : p ? `probability ${percent(p[i])}${rank(steps[i])}` : null);
  const row = tokenRow(tokens, {p, label: "Tokens of the output with their probabilities", title});
  for (const chip of [...row.children].slice(0, prompt)) chip.classList.add("in-prompt");
  row.classList.toggle("many", tokens.length > MANY);
  if (tokens.length > MANY) row.tabIndex = 0; // it scrolls
  row.children[prompt]?.classList.add("answer-start"); // to scroll to it after a long prompt
  return row;
}

function rank(step) {
  return step.rank > 0 ? `, rank ${step.rank + 1}` : "";
}

function maskedText(trace, change) {
  const steps = new Map(trace.hidden.map((position, i) => [position, trace.steps[i]]));
  const toggle = (i) => change({hidden: steps.has(i) ? trace.hidden.filter((at) => at !== i)
    : [...trace.hidden, i].sort((a, b) => a - b)});
  const click = (text) => (change ? `Click to ${text} it` : "");
  const prediction = ({token, p}) => `Prediction: “${readable(token)}” (${percent(p)}). ${click("unmask")}`;
  const title = (i) => (steps.has(i) ? prediction(steps.get(i)) : click("mask"));
  const label = change ? "Input tokens; click one to mask it" : "Input tokens";
  const row = tokenRow(trace.source, {label, onpick: change && toggle, title});
  for (const [position, step] of steps) {
    const chip = row.children[position];
    chip?.classList.add("hidden-token");
    chip?.append(" → ", h("b", {}, h("bdi", {}, readable(step.token))), ` ${percent(step.p)}`);
  }
  const hint = change && "Click a token to mask it. The model then predicts the masked token.";
  return [h("p", {class: "output", dir: "auto"}, trace.output), row, hint && h("p", {class: "measures"}, hint)];
}

function classes(trace) {
  const lines = topCandidates(trace.steps[0]).slice(0, 5).flatMap(({token, p}, i) =>
    [h("bdi", {class: i ? null : "chosen"}, token), bar(p), h("span", {}, percent(p))]);
  return [h("p", {class: "output"}, h("bdi", {}, trace.output)), h("div", {class: "classes"}, lines)];
}

function tags(trace) {
  return h("p", {class: "tagged-words", dir: "auto"}, (trace.tags ?? []).map(({word, tag, p}) =>
    h("span", {class: p < 0.5 ? "unsure" : null, title: `probability ${percent(p)}`}, h("bdi", {}, readable(word)),
      h("small", {}, h("bdi", {}, tag)))));
}

function vector(trace) {
  return h("p", {class: "output code"}, trace.output);
}

function decodingMethod({task}, {decode}) {
  if (!decode || !["translation", "language_model"].includes(task)) return null;
  if (decode.strategy === "beam") return `beam search, beam size ${decode.beam_size}`;
  if (decode.strategy !== "sample") return "greedy decoding";
  const settings = [["temperature", decode.temperature, 1], ["top-k", decode.top_k, 0], ["top-p", decode.top_p, 1]];
  const active = settings.filter(([, value, off]) => value !== off).map(([name, value]) => `${name} ${value}`);
  return ["sampled", ...active].join(", ");
}

function measures(trace, run) {
  const isCorrect = trace.reference !== null && trace.reference !== undefined && trace.reference === trace.output;
  const hasProbability = trace.log_p !== null && trace.log_p !== undefined;
  const facts = [
    hasProbability ? `log-probability ${number(trace.log_p)} nats` : null,
    hasProbability ? `probability ${percent(Math.exp(trace.log_p))}` : null,
    decodingMethod(trace, run),
    trace.finished === false ? "stopped at the maximum length" : null,
    trace.milliseconds ? `${Math.round(trace.milliseconds)} ms` : null,
  ].filter(Boolean).join(" · ");
  const verdict = trace.reference ? h("span", {class: isCorrect ? "right" : "wrong"},
    isCorrect ? "✓ same as the reference" : "✗ reference: ",
    isCorrect ? null : h("bdi", {}, trace.reference)) : null;
  const unknown = trace.unknown?.length ? h("span", {class: "wrong"}, "Not in the vocabulary: ",
    [...new Set(trace.unknown)].slice(0, 12).map((word, i) => [i ? ", " : "", h("bdi", {}, readable(word, 30))])) : null;
  const parts = [verdict, unknown, facts].filter(Boolean);
  return h("p", {class: "measures"}, parts.map((part, i) => [i ? " · " : "", part]));
}

function activeChanges(trace, run, state, change) {
  const titles = new Map((run.switches ?? []).map((each) => [each.id, each.title]));
  const line = (what, patch, undo) => h("p", {class: "changes"}, what, " ",
    h("button", {type: "button", class: "button link", onclick: () => change(patch)}, undo));
  const off = state.off.map((id) => titles.get(id) ?? id);
  const list = off.length > 4 ? `${off.slice(0, 4).join("; ")}; and ${off.length - 4} more` : off.join("; ");
  const forced = state.prefix?.length ? trace.target_out.slice(trace.prompt,
    trace.prompt + state.prefix.length).map((token) => readable(token)).join(" ") : "";
  return [
    off.length ? line(`Switched off: ${list}.`, {off: []}, "Switch everything on") : null,
    state.prefix?.length ? line(["You set the start of the output: “", h("bdi", {}, forced), "”."], {prefix: null},
      "Undo") : null,
    state.target !== null ? line(["You set the whole output: “", h("bdi", {}, state.target), "”."],
      {target: null}, "Undo") : null,
    state.snapshot !== null ? line(`These are the weights after training step ${state.snapshot}.`,
      {snapshot: null}, "Use the final weights") : null,
  ];
}
