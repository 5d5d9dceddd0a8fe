// What is asked: a text box with examples, or a strip of pictures.

import {fill, h} from "./dom.js";
import {picture} from "./picture.js";

const ASKED = {translation: "Text to translate", language_model: "A beginning, which the model goes on from",
               masked_language_model: "A text with gaps to fill in", classification: "Text to classify",
                 tagging: "Text to tag", embedding: "Text to make a vector of"};

/** {element, show(run, text)}; run(text) is called by Enter, the button, or an example. */
export function input({run: ask, refuse, limits, recorded}) {
  const element = h("div", {class: "input"});
  let drawn = null;
  let shown = null;
  const show = (run, text) => {
    if (drawn !== run) shown = run.task === "image_classification" ? strip(run, ask)
      : box(run, {ask, refuse, limits, recorded});
    if (drawn !== run) fill(element, shown.elements);
    drawn = run;
    shown.set(text);
  };
  return {element, show};
}

function strip(run, ask) {
  const buttons = run.examples.map((example) => h("button",
    {type: "button", class: "example pictured", onclick: () => ask(String(example.number)),
    title: `Example ${example.number}: ${example.label}`}, picture(example.pixels, `Picture ${example.number}`),
      h("bdi", {}, example.label)));
  const set = (text) => press(buttons, run.examples.findIndex((example) => String(example.number) === text));
  return {elements: h("div", {class: "examples", role: "group", aria: {label: "Pictures to choose from"}}, buttons),
    set};
}

function box(run, {ask, refuse, limits, recorded}) {
  const prose = run.task !== "language_model";
  const field = h("textarea", {rows: prose ? 1 : 3, class: prose ? null : "code", spellcheck: false, dir: "auto",
    id: "text", readonly: recorded,
    aria: {label: ASKED[run.task] ?? "Text"}, placeholder: ASKED[run.task] ?? "Text",
    onkeydown: (event) => {
      if (event.key !== "Enter" || event.isComposing || !meant(event, prose)) return;
      event.preventDefault();
      go();
    }});
  const go = () => {
    const trouble = problem(field.value, run, limits);
    if (trouble) refuse(trouble);
    else ask(field.value);
  };
  const button = h("button", {type: "button", class: "button", onclick: go, title: prose ? "Enter" : "Ctrl + Enter"},
    "Run");
  const buttons = run.examples.map((example) => h("button",
    {type: "button", class: "example", dir: "auto", title: example.slice(0, 300),
    onclick: () => ask(example)}, short(example)));
  const set = (text) => {
    field.value = text;
    press(buttons, run.examples.indexOf(text));
  };
  const examples = buttons.length ? h("div", {class: "examples", role: "group", aria: {label: "Examples"}}, buttons)
    : null;
  const told = recorded ? h("p", {class: "small dim"}, "This file holds recorded views: choose one of the examples.")
    : null;
  return {elements: [h("div", {class: "ask"}, field, recorded ? null : button), told, examples], set};
}

// Enter runs; where line ends are part of the text, Ctrl+Enter does.
function meant(event, prose) {
  return event.ctrlKey || event.metaKey || (prose && !event.shiftKey);
}

function short(text) {
  const line = text.trim().replace(/\s*\n\s*/g, " ⏎ ");
  return line.length > 60 ? `${line.slice(0, 58)}…` : line;
}

function problem(text, run, limits) {
  const most = limits?.characters ?? Infinity;
  if (text.length > most) {
    const [given, allowed] = [text.length.toLocaleString("en"), most.toLocaleString("en")];
    return `This text has ${given} characters; at most ${allowed} can be asked at once.`;
  }
  return text.trim() || run.task === "language_model" ? null : "There is no text yet: write one, or choose an example.";
}

function press(buttons, chosen) {
  buttons.forEach((button, i) => button.setAttribute("aria-pressed", String(i === chosen)));
}
