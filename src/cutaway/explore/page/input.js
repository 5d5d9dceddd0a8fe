// The input: a text box with examples, or a row of images.

import {fill, h} from "./dom.js";
import {imageCanvas} from "./image.js";

const LABELS = {translation: "Text to translate", language_model: "Start of a text that the model continues",
                masked_language_model: "Text with masked tokens", classification: "Text to classify",
                tagging: "Text to tag", embedding: "Text to embed"};

/** {element, show(run, text)}; run(text) is called by Enter, by the button, or by an example. */
export function input({run: submit, reject, limits, recorded}) {
  const element = h("div", {class: "input"});
  let drawn = null;
  let content = null;
  const show = (run, text) => {
    if (drawn !== run) {
      content = run.task === "image_classification" ? imageRow(run, submit)
        : textBox(run, {submit, reject, limits, recorded});
      fill(element, content.elements);
    }
    drawn = run;
    content.set(text);
  };
  return {element, show};
}

function imageRow(run, submit) {
  const buttons = run.examples.map((example) => h("button",
    {type: "button", class: "example with-image", onclick: () => submit(String(example.number)),
    title: `Example ${example.number}: ${example.label}`}, imageCanvas(example.pixels, `Image ${example.number}`),
      h("bdi", {}, example.label)));
  const set = (text) => markPressed(buttons, run.examples.findIndex((example) => String(example.number) === text));
  return {elements: h("div", {class: "examples", role: "group", aria: {label: "Images"}}, buttons), set};
}

function textBox(run, {submit, reject, limits, recorded}) {
  const isOneLine = run.task !== "language_model";
  const field = h("textarea", {rows: isOneLine ? 1 : 3, class: isOneLine ? null : "code", spellcheck: false,
    dir: "auto", id: "text", readonly: recorded,
    aria: {label: LABELS[run.task] ?? "Text"}, placeholder: LABELS[run.task] ?? "Text",
    onkeydown: (event) => {
      if (event.key !== "Enter" || event.isComposing || !isSubmit(event, isOneLine)) return;
      event.preventDefault();
      go();
    }});
  const go = () => {
    const problem = problemOf(field.value, run, limits);
    if (problem) reject(problem);
    else submit(field.value);
  };
  const button = h("button", {type: "button", class: "button", onclick: go,
    title: isOneLine ? "Enter" : "Ctrl + Enter"}, "Run");
  const buttons = run.examples.map((example) => h("button",
    {type: "button", class: "example", dir: "auto", title: example.slice(0, 300),
    onclick: () => submit(example)}, shorten(example)));
  const set = (text) => {
    field.value = text;
    markPressed(buttons, run.examples.indexOf(text));
  };
  const examples = buttons.length ? h("div", {class: "examples", role: "group", aria: {label: "Examples"}}, buttons)
    : null;
  const note = recorded ? h("p", {class: "small dim"}, "This file has recorded examples only. Choose one of them.")
    : null;
  return {elements: [h("div", {class: "ask"}, field, recorded ? null : button), note, examples], set};
}

// Enter runs the model; Ctrl+Enter if the text can have several lines.
function isSubmit(event, isOneLine) {
  return event.ctrlKey || event.metaKey || (isOneLine && !event.shiftKey);
}

function shorten(text) {
  const line = text.trim().replace(/\s*\n\s*/g, " ⏎ ");
  return line.length > 60 ? `${line.slice(0, 58)}…` : line;
}

function problemOf(text, run, limits) {
  const most = limits?.characters ?? Infinity;
  if (text.length > most) {
    const [count, allowed] = [text.length.toLocaleString("en"), most.toLocaleString("en")];
    return `This text has ${count} characters; the limit is ${allowed}. Shorten it.`;
  }
  return text.trim() || run.task === "language_model" ? null : "There is no text. Write one, or choose an example.";
}

function markPressed(buttons, chosen) {
  buttons.forEach((button, i) => button.setAttribute("aria-pressed", String(i === chosen)));
}
