// The line at the top: what is looked at, which run and which snapshot of it, light or dark, the address to pass on.

import {fill, h} from "./dom.js";
import {segmented, select} from "./controls.js";

const TASKS = {translation: "translation", language_model: "language model",
  masked_language_model: "masked language model",
               classification: "classification", tagging: "tagging", image_classification: "pictures", embedding: "sentence vectors"};

/** {element, show(state)}; `choose(patch)` is called with what the reader picks. */
export function header(info, choose, announce) {
  const facts = h("span", {class: "facts"});
  const choices = h("div", {class: "row"});
  const title = h("h1", {}, "Cutaway", info.runs.length > 1 ? null : [": ", h("bdi", {}, info.title)]);
  const element = h("header", {class: "masthead"}, title, facts, choices);
  let drawn = null;
  const show = (state) => {
    const run = info.runs[state.run];
    fill(facts, factsOf(run));
    const wanted = `${state.run} ${state.snapshot}`;
    if (drawn === wanted) return;
    drawn = wanted;
    fill(choices, runs(info, state, choose), snapshots(run, state, choose), theme(), copyButton(announce));
  };
  return {element, show};
}

function factsOf(run) {
  const millions = run.parameters / 1e6;
  const size = millions >= 0.1 ? `${+millions.toPrecision(3)} million` : run.parameters.toLocaleString("en");
  const words = run.vocab_size ? ` · ${run.vocab_size.toLocaleString("en")} tokens` : "";
  return `${TASKS[run.task] ?? run.task} · ${size} parameters${words}`;
}

function runs(info, state, choose) {
  if (info.runs.length < 2) return null;
  const options = info.runs.map((run, i) => ({value: i, label: run.name, title: run.path}));
  return select({label: "run", options, value: state.run, onchange: (run) => choose({run})}).element;
}

function snapshots(run, state, choose) {
  if (!run.snapshots?.length) return null;
  const options = [...run.snapshots.map((step) => ({value: step, label: `step ${step.toLocaleString("en")}`})),
    {value: null, label: "trained"}];
  return select({label: "weights", options, value: state.snapshot, onchange: (snapshot) => choose({snapshot})}).element;
}

/** Put the kept choice of light or dark in force; before anything is drawn. */
export function restoreTheme() {
  wear(kept());
}

function theme() {
  const options = [{value: "auto", label: "Auto", title: "As the system has it"}, {value: "light", label: "Light"},
    {value: "dark", label: "Dark"}];
  return segmented({label: "Light or dark", hideLabel: true, options, value: kept(),
    onchange: (value) => { keep(value); wear(value); }}).element;
}

function wear(value) {
  if (value === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = value;
  document.dispatchEvent(new Event("themechange"));
}

// A page opened from a file may be denied storage: then the choice lasts as long as the page.
let chosen = null;

function kept() {
  try {
    return chosen ?? localStorage.getItem("cutaway-theme") ?? "auto";
  } catch {
    return "auto";
  }
}

function keep(value) {
  chosen = value;
  try {
    localStorage.setItem("cutaway-theme", value);
  } catch {
    // kept in `chosen` only
  }
}

function copyButton(announce) {
  const button = h("button", {type: "button", class: "button quiet", title: "The address holds all that you chose",
    onclick: async () => {
    const done = await copied(location.href);
    button.textContent = done ? "Copied" : "Copy it from the address bar";
    announce(button.textContent);
    setTimeout(() => { button.textContent = "Copy address"; }, 1600);
  }}, "Copy address");
  return button;
}

async function copied(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return false;
  }
}
