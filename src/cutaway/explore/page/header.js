// The header: run, weights (a snapshot or the final ones), colour theme, and a button that copies the link.

import {fill, h} from "./dom.js";
import {segmented, select} from "./controls.js";

const TASKS = {translation: "translation", language_model: "language model",
               masked_language_model: "masked language model", classification: "classification", tagging: "tagging",
               image_classification: "image classification", embedding: "sentence embeddings"};

/** {element, show(state)}; choose(patch) is called when the user changes something; start: the button of the tour. */
export function header(info, {choose, announce, canSwitchEngine, start}) {
  const facts = h("span", {class: "facts"});
  const choices = h("div", {class: "row"});
  const title = h("h1", {}, "Cutaway", info.runs.length > 1 ? null : [": ", h("bdi", {}, info.title)]);
  const element = h("header", {class: "masthead"}, title, facts, start, choices);
  let drawn = null;
  const show = (state) => {
    const run = info.runs[state.run];
    fill(facts, factsOf(run));
    const wanted = `${state.run} ${state.snapshot}`;
    if (drawn === wanted) return;
    drawn = wanted;
    fill(choices, runSelect(info, state, choose), weightsSelect(run, state, choose),
      canSwitchEngine ? engineControl(state, choose) : null, themeControl(), copyButton(announce));
  };
  return {element, show};
}

function factsOf(run) {
  const millions = run.parameters / 1e6;
  const size = millions >= 0.1 ? `${+millions.toPrecision(3)} million` : run.parameters.toLocaleString("en");
  const vocabulary = run.vocab_size ? ` · vocabulary of ${run.vocab_size.toLocaleString("en")} tokens` : "";
  const stored = run.weights ? ` · runs in this page (weights: ${run.weights})` : "";
  return `${TASKS[run.task] ?? run.task} · ${size} parameters${vocabulary}${stored}`;
}

function runSelect(info, state, choose) {
  if (info.runs.length < 2) return null;
  const options = info.runs.map((run, i) => ({value: i, label: run.name, title: run.path}));
  return select({label: "run", options, value: state.run, onchange: (run) => choose({run})}).element;
}

function weightsSelect(run, state, choose) {
  if (!run.snapshots?.length) return null;
  const options = [...run.snapshots.map((step) => ({value: step, label: `step ${step.toLocaleString("en")}`})),
    {value: null, label: "final"}];
  return select({label: "weights", options, value: state.snapshot, onchange: (snapshot) => choose({snapshot})}).element;
}

function engineControl(state, choose) {
  const options = [{value: null, label: "Server", title: "Python computes the answers"},
    {value: "browser", label: "Browser", title: "This page computes the answers, in JavaScript"}];
  return segmented({label: "engine", options, value: state.engine, onchange: (engine) => choose({engine})}).element;
}

/** Apply the colour theme of the address (?theme=dark), or else the saved one, before anything is drawn. */
export function restoreTheme() {
  const asked = new URLSearchParams(location.search).get("theme");
  if (asked === "light" || asked === "dark") chosen = asked;
  applyTheme(savedTheme());
}

function themeControl() {
  const options = [{value: "auto", label: "Auto", title: "Use the system setting"}, {value: "light", label: "Light"},
    {value: "dark", label: "Dark"}];
  return segmented({label: "Colour theme", hideLabel: true, options, value: savedTheme(),
    onchange: (value) => { saveTheme(value); applyTheme(value); }}).element;
}

function applyTheme(value) {
  if (value === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = value;
  document.dispatchEvent(new Event("themechange"));
}

// A page that was opened from a file may have no storage. Then the choice lasts until the page is closed.
let chosen = null;

function savedTheme() {
  try {
    return chosen ?? localStorage.getItem("cutaway-theme") ?? "auto";
  } catch {
    return "auto";
  }
}

function saveTheme(value) {
  chosen = value;
  try {
    localStorage.setItem("cutaway-theme", value);
  } catch {
    // `chosen` has it
  }
}

function copyButton(announce) {
  const button = h("button", {type: "button", class: "button quiet", title: "The link opens the page as you see it now",
    onclick: async () => {
    const isCopied = await copy(location.href);
    button.textContent = isCopied ? "Copied" : "Copy it from the address bar";
    announce(button.textContent);
    setTimeout(() => { button.textContent = "Copy link"; }, 1600);
  }}, "Copy link");
  return button;
}

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return false;
  }
}
