// The shell: it opens the model, asks for a trace of the text in the address, and shows it in the view in the address.

import {fill, h} from "./dom.js";
import {tabs} from "./controls.js";
import {header, restoreTheme} from "./header.js";
import {input} from "./input.js";
import {result} from "./result.js";
import {key, sourceOf} from "./source.js";
import {nameRuns, read, set, subscribe} from "./state.js";
import {view as map} from "./views/map.js";
import {view as attention} from "./views/attention.js";
import {view as writing} from "./views/writing.js";
import {view as lens} from "./views/lens.js";
import {view as experiments} from "./views/experiments.js";
import {view as compare} from "./views/compare.js";
import {view as timelapse} from "./views/timelapse.js";
import {view as heads} from "./views/heads.js";

const VIEWS = [map, attention, writing, lens, experiments, compare, timelapse, heads];
const FIRST = "attention"; // the view of an address that names none
const ASKED = ["run", "snapshot", "text", "target", "prefix", "off", "hidden"]; // a change of these needs a new trace
const PATIENCE = 150; // milliseconds before the page says that it waits
const KEPT = 12; // traces, so that Back is quick

const state = {read, set, subscribe};
const made = new Map(); // id of a view -> what its create() gave
const traces = new Map(); // key of a request -> its trace
let source = null;
let info = null;
let current = null; // the trace on show
let asking = null; // ends the request under way

restoreTheme();
const spoken = h("p", {class: "visually-hidden", aria: {live: "polite"}});
const alarm = h("div", {});
const waiting = h("p", {class: "waiting-line", role: "status", hidden: true}, "The model is at work …");
const tabBar = h("nav", {aria: {label: "Views"}});
const panels = h("main", {id: "content", tabindex: -1});
let parts = null;
let tabsOf = null; // {run, control}
boot();

async function boot() {
  try {
    source = await sourceOf(document);
    info = await source.info();
  } catch (error) {
    fill(document.getElementById("page"), alarm);
    return fail(error);
  }
  if (!info.views) document.title = `${info.title} · Cutaway`; // in a report, it is the report that has a title
  document.getElementById("page").classList.toggle("in-report", Boolean(info.views));
  parts = {
    header: header(info, choose, announce),
    input: input({run: (text) => ask(text), refuse: (sentence) => fail(new Error(sentence)), limits: info.limits,
      recorded: info.recorded}),
    result: result((patch) => state.set(patch)),
  };
  const bar = h("div", {role: "search", aria: {label: "What to ask the model"}}, parts.input.element);
  fill(document.getElementById("page"), parts.header.element, bar, alarm, waiting, parts.result.element, tabBar, panels,
    spoken);
  document.getElementById("skip").addEventListener("click", skip);
  document.addEventListener("keydown", pressed);
  nameRuns(info.runs.map((each) => each.name));
  document.addEventListener("themechange", draw);
  state.subscribe((_, changed) => (changed.some((name) => ASKED.includes(name)) ? load() : draw()));
  await load();
  const wanted = state.read().run;
  if (!info.runs[wanted]) {
    fail(new Error(`There is no run ${wanted} here. There are: ${info.runs.map((each) => each.name).join(", ")}.`));
  }
}

// The text that is meant: the one in the address, or the first example.
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

function ask(said) {
  clearAlarm();
  if (said === text()) load(true);
  else state.set({text: said, target: null, prefix: null, hidden: []});
}

// Another run has other heads and other words: what does not fit it is forgotten.
function choose(patch) {
  if (!("run" in patch)) return state.set(patch);
  const same = info.runs[patch.run].task === run().task;
  return state.set({...patch, text: same ? text() : null, snapshot: null, target: null, prefix: null, off: [],
    hidden: [], kind: null,
                    layer: null, head: null, token: null});
}

async function load(anew = false) {
  asking?.abort();
  const mine = asking = new AbortController();
  const wanted = request();
  const name = key("trace", wanted);
  if (anew) traces.delete(name);
  clearAlarm();
  frame();
  const late = setTimeout(() => wait(true), traces.has(name) ? 1e6 : PATIENCE);
  try {
    const trace = traces.get(name) ?? await source.trace(wanted, mine.signal);
    if (mine !== asking) return;
    remember(name, trace);
    current = trace;
    parts.result.show(trace, run(), state.read());
    draw();
  } catch (error) {
    if (mine !== asking || error.name === "AbortError") return;
    current = null;
    parts.result.clear();
    draw();
    fail(error);
  } finally {
    clearTimeout(late);
    if (mine === asking) wait(false);
  }
}

function remember(name, trace) {
  traces.delete(name);
  traces.set(name, trace);
  if (traces.size > KEPT) traces.delete(traces.keys().next().value);
}

function wait(on) {
  waiting.hidden = !on;
  panels.classList.toggle("stale", on);
  panels.setAttribute("aria-busy", String(on));
}

// All around the view: it is right even before the model has answered.
function frame() {
  parts.header.show({...state.read(), run: info.runs.indexOf(run())});
  parts.input.show(run(), text());
  if (tabsOf?.run === run()) return;
  const options = fitting().map((view) => ({value: view.id, label: titleOf(view)}));
  tabsOf = {run: run(), control: tabs({label: "Views", options, value: view().id,
    onchange: (id) => state.set({view: id})})};
  fill(tabBar, tabsOf.control.element);
}

function titleOf(view) {
  return typeof view.title === "function" ? view.title(run()) : view.title;
}

// The views that have something to show of this run; a report holds the answers for some of them alone.
function fitting() {
  return VIEWS.filter((each) => each.applies(run(), info) && (info.views ?? [each.id]).includes(each.id));
}

function view() {
  const wanted = state.read().view ?? FIRST;
  return fitting().find((each) => each.id === wanted) ?? fitting().find((each) => each.id === FIRST) ?? fitting()[0];
}

function draw() {
  const shown = view();
  tabsOf?.control.set(shown.id);
  for (const panel of panels.children) panel.hidden = panel.id !== `panel-${shown.id}` || !current;
  if (!current) return;
  try {
    const opened = open(shown);
    performance.mark("draw-begin");
    opened.show(current, state.read());
    performance.measure("draw", "draw-begin");
  } catch (error) {
    fail(error);
  }
}

function open(shown) {
  if (!made.has(shown.id)) {
    const created = shown.create({source, info, state, run, trace: () => current, request, announce, fail});
    panels.append(h("section", {class: "panel", id: `panel-${shown.id}`, role: "tabpanel",
      aria: {labelledby: `tab-${shown.id}`}}, created.element));
    made.set(shown.id, created);
  }
  return made.get(shown.id);
}

function announce(said) {
  spoken.textContent = said;
}

function fail(error) {
  if (error.name === "AbortError") return;
  if (!(error instanceof Error) || error.name !== "Error") console.error(error);
  fill(alarm, h("div", {class: "banner", role: "alert"}, h("p", {dir: "auto"}, error.message ?? String(error)),
    h("button", {type: "button", class: "button quiet", onclick: clearAlarm}, "Close")));
}

function clearAlarm() {
  fill(alarm);
}

// The address belongs to the state, so the link moves the focus itself.
function skip(event) {
  event.preventDefault();
  panels.focus();
  panels.scrollIntoView();
}

function pressed(event) {
  const busy = event.target.closest?.("input, textarea, select, [role=tablist], [role=application], [contenteditable]");
  if (busy || event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented || !current) return;
  made.get(view().id)?.key?.(event);
}
