// The page: load the runs, request a trace of the text in the address, and show it in the view in the address.

import {fill, h} from "./dom.js";
import {tabs} from "./controls.js";
import {header, restoreTheme} from "./header.js";
import {input} from "./input.js";
import {result} from "./result.js";
import {answerKey, sourceOf} from "./source.js";
import {nameRuns, read, set, subscribe} from "./state.js";
import {tour} from "./tour.js";
import {view as map} from "./views/map.js";
import {view as attention} from "./views/attention.js";
import {view as writing} from "./views/writing.js";
import {view as lens} from "./views/lens.js";
import {view as why} from "./views/why.js";
import {view as experiments} from "./views/experiments.js";
import {view as compare} from "./views/compare.js";
import {view as timelapse} from "./views/timelapse.js";
import {view as heads} from "./views/heads.js";

const VIEWS = [map, attention, writing, lens, why, experiments, compare, timelapse, heads];
const DEFAULT_VIEW = "attention";
const REQUEST_KEYS = ["run", "snapshot", "text", "target", "prefix", "off", "hidden"]; // a change needs a new trace
const NO_QUESTION = {why_step: null, why_token: null, why_rival: null}; // these belong to one text of one run
const DELAY = 150; // milliseconds before the page says that it is waiting
const CACHE_SIZE = 12; // traces

const state = {read, set, subscribe};
const created = new Map(); // id of a view -> the result of its create()
const traces = new Map(); // key of a request -> its trace
let source = null;
let info = null;
let current = null; // the trace that is shown
let accepted = null; // the state of the shown trace: the fields of REQUEST_KEYS
let running = null; // AbortController of the current request

restoreTheme();
const announcement = h("p", {class: "visually-hidden", aria: {live: "polite"}}); // for screen readers
const banner = h("div", {});
const waiting = h("p", {class: "waiting-line", role: "status", hidden: true}, "Running the model …");
const tabBar = h("nav", {aria: {label: "Views"}});
const about = h("p", {class: "about"}); // what the view shows
const panels = h("main", {id: "content", tabindex: -1}, h("section", {class: "panel", id: "no-result", hidden: true},
  h("p", {class: "note"}, "There is no result to show. Change the input, or choose an example.")));
let parts = null;
let currentTabs = null; // {run, control}
start();

async function start() {
  try {
    source = await sourceOf(document, state.read().engine);
    info = await source.info();
  } catch (error) {
    fill(document.getElementById("page"), banner);
    return showError(error);
  }
  if (!info.views) document.title = `${info.title} · Cutaway`; // a report keeps its title
  document.getElementById("page").classList.toggle("in-report", Boolean(info.views));
  const guide = tour({state, info, run, page: document.getElementById("page"), tabBar,
    views: () => availableViews().map((each) => each.id)});
  parts = {
    tour: guide,
    header: header(info, {choose, announce, canSwitchEngine: "describeRun" in source, start: guide.button}),
    input: input({run: (text) => submit(text), reject: (message) => showError(new Error(message)),
      limits: info.limits, recorded: info.recorded}),
    result: result((patch) => state.set(patch), info.recorded),
  };
  const bar = h("div", {role: "search", aria: {label: "Input of the model"}}, parts.input.element);
  fill(document.getElementById("page"), parts.header.element, bar, banner, waiting, parts.result.element, tabBar,
    about, parts.tour.element, panels, announcement);
  document.getElementById("skip").addEventListener("click", skipToView);
  document.addEventListener("keydown", handleKey);
  nameRuns(info.runs.map((each) => each.name));
  document.addEventListener("themechange", draw);
  state.subscribe((_, changed) => (changed.some((name) => REQUEST_KEYS.includes(name)) ? load() : draw()));
  await load();
  const wanted = state.read().run;
  if (!info.runs[wanted]) {
    const names = info.runs.map((each) => each.name).join(", ");
    showError(new Error(`There is no run ${wanted} here. Choose one of: ${names}.`));
  }
}

// The text in the address, or the first example.
function text() {
  const first = run().examples[0] ?? "";
  return state.read().text ?? (typeof first === "object" ? String(first.number) : first);
}

function run() {
  return info.runs[state.read().run] ?? info.runs[0];
}

function request(extra = {}) {
  const {run: number, snapshot, target, prefix, off, hidden} = state.read();
  return {run: info.runs[number] ? number : 0, snapshot, text: text(), target, prefix, off: [...off].sort(), hidden,
    ...extra};
}

function submit(newText) {
  clearError();
  if (newText === text()) load(true);
  else state.set({text: newText, target: null, prefix: null, hidden: [], ...NO_QUESTION});
}

// Another run has other heads and tokens, so the choices that depend on them are reset. Another engine is loaded anew.
function choose(patch) {
  if (!("run" in patch)) state.set(patch);
  if ("engine" in patch) location.reload();
  if (!("run" in patch)) return;
  const same = info.runs[patch.run].task === run().task;
  return state.set({...patch, text: same ? text() : null, snapshot: null, target: null, prefix: null, off: [],
    hidden: [], kind: null, layer: null, head: null, token: null, ...NO_QUESTION});
}

async function load(again = false) {
  running?.abort();
  const mine = running = new AbortController();
  const wanted = request();
  const name = answerKey("trace", wanted);
  if (again) traces.delete(name);
  clearError();
  drawFrame();
  const timer = setTimeout(() => setWaiting(true), traces.has(name) ? 1e6 : DELAY);
  try {
    const trace = traces.get(name) ?? await source.trace(wanted, mine.signal);
    if (mine !== running) return;
    store(name, trace);
    current = trace;
    accepted = Object.fromEntries(REQUEST_KEYS.map((key) => [key, state.read()[key]]));
    parts.result.show(trace, run(), state.read());
    draw();
  } catch (error) {
    if (mine !== running || error.name === "AbortError") return;
    if (!keepLastResult()) draw();
    showError(error);
  } finally {
    clearTimeout(timer);
    if (mine === running) setWaiting(false);
  }
}

// After a refused request the page shows the last result. The text box keeps the refused text, to be corrected.
function keepLastResult() {
  if (!accepted) return false;
  const [refused, sameRun] = [text(), accepted.run === state.read().run];
  state.set(accepted, {replace: true});
  if (sameRun) parts.input.show(run(), refused);
  return true;
}

function store(name, trace) {
  traces.delete(name);
  traces.set(name, trace);
  if (traces.size > CACHE_SIZE) traces.delete(traces.keys().next().value);
}

function setWaiting(on) {
  waiting.hidden = !on;
  panels.classList.toggle("stale", on);
  panels.setAttribute("aria-busy", String(on));
}

// Everything around the view. It does not depend on the trace.
function drawFrame() {
  parts.header.show({...state.read(), run: info.runs.indexOf(run())});
  parts.input.show(run(), text());
  if (currentTabs?.run === run()) return;
  const options = availableViews().map((view) => ({value: view.id, label: titleOf(view)}));
  currentTabs = {run: run(), control: tabs({label: "Views", options, value: view().id,
    onchange: (id) => state.set({view: id})})};
  fill(tabBar, currentTabs.control.element);
}

function titleOf(view) {
  return ofRun(view.title);
}

// A field of a view: a text, or a function of the run.
function ofRun(field) {
  return typeof field === "function" ? field(run(), info) : field;
}

// The views for the task of this run. A report has the answers for some of them only.
function availableViews() {
  return VIEWS.filter((each) => each.applies(run(), info) && (info.views ?? [each.id]).includes(each.id));
}

function view() {
  const [views, wanted] = [availableViews(), state.read().view ?? DEFAULT_VIEW];
  return views.find((each) => each.id === wanted) ?? views.find((each) => each.id === DEFAULT_VIEW) ?? views[0];
}

function draw() {
  const shown = view();
  currentTabs?.control.set(shown.id);
  for (const panel of panels.children) panel.hidden = panel.id !== (current ? `panel-${shown.id}` : "no-result");
  fill(about, ofRun(shown.about));
  if (!current) return;
  try {
    const opened = open(shown);
    performance.mark("draw-begin");
    opened.show(current, state.read());
    performance.measure("draw", "draw-begin");
    parts.tour.show(current, state.read());
  } catch (error) {
    showError(error);
  }
}

function open(shown) {
  if (!created.has(shown.id)) {
    const opened = shown.create({source, info, state, run, trace: () => current, request, announce});
    panels.append(h("section", {class: "panel", id: `panel-${shown.id}`, role: "tabpanel",
      aria: {labelledby: `tab-${shown.id}`}}, opened.element));
    created.set(shown.id, opened);
  }
  return created.get(shown.id);
}

function announce(text) {
  announcement.textContent = text;
}

function showError(error) {
  if (error.name === "AbortError") return;
  if (!(error instanceof Error) || error.name !== "Error") console.error(error);
  fill(banner, h("div", {class: "banner", role: "alert"}, h("p", {dir: "auto"}, error.message ?? String(error)),
    h("button", {type: "button", class: "button quiet", onclick: clearError}, "Close")));
}

function clearError() {
  fill(banner);
}

// The hash of the address has the state, so the link moves the focus without changing the hash.
function skipToView(event) {
  event.preventDefault();
  panels.focus();
  panels.scrollIntoView();
}

function handleKey(event) {
  const busy = event.target.closest?.("input, textarea, select, [role=tablist], [role=application], [contenteditable]");
  if (busy || event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented || !current) return;
  created.get(view().id)?.key?.(event);
}
