// What if? Switch parts off, change a word, and see what becomes of the output.
import {fill, h, number} from "../dom.js";
import {segmented} from "../controls.js";
import {latest, traced, trouble, unlessRecorded, venture, waiting} from "./asking.js";
import {pieces} from "./difference.js";
import {chances, forcing, isAsked, isCode, likelier, logP, probabilityOf, sideBySide, sumOfLogs, writes} from "./outcome.js";
import {pairedChart} from "./paired.js";
import {legendOf, switchboard} from "./switchboard.js";

const INTRODUCTION = "A part that you can switch off without changing the output was not needed for it. "
  + "Switch some off, or change a word, and see.";
const OFF_MEANS = "A head that is off adds nothing; a sub-layer that is off lets its input pass unchanged. "
  + "Several may be off at once.";
const WORTH_MEANS = "how much less likely does the output become when this alone is switched off?";

export const view = {id: "experiments", title: "What if?", create,
  applies: (run) => run.switches.length > 0 && isAsked(run.task)};

function create(context) {
  const sections = [boardSection(context), resultSection(context), scoreSection(context), wordSection(context)];
  const element = h("div", {class: "view-experiments view-sides stack"}, h("p", {class: "lead"}, INTRODUCTION),
    sections.map((section) => section.element));
  return {element, show: (trace, state) => sections.forEach((section) => section.show(trace, state))};
}

const card = (title, ...children) => h("section", {class: "card"}, h("h3", {}, title), children);
const outcome = (same) => (same ? "The output stays the same" : "The output changes");
const FIGURES = {bleu: "BLEU", chrf: "chrF"}; // names that are not written like words
const parts = (count) => (count === 1 ? "1 part" : `${count} parts`);

// ---- the board ----

function boardSection(context) {
  const place = h("div"), refused = h("div"), legend = h("div");
  const measure = h("button", {type: "button", class: "button", onclick: () => ask()}, "measure each one");
  const asked = latest();
  let board = null, ofRun = null, worth = null, ofQuestion = null;
  const update = () => board.update(context.state.read().off, worth);
  const flip = (off) => {
    fill(refused);
    venture(context, {off}, (error) => fill(refused, trouble(error)));
    update(); // at once: the new trace takes its time
  };
  const show = () => {
    const question = JSON.stringify(context.request({off: []})); // when it changes, what was measured no longer holds
    if (ofRun !== context.run()) {
      ofRun = context.run();
      board = switchboard(ofRun.switches, flip);
      fill(place, board.element);
    }
    if (ofQuestion !== question) {
      [worth, ofQuestion, measure.disabled] = [null, question, false];
      asked(async () => null);
      fill(legend);
    }
    update();
  };
  const ask = async () => {
    measure.disabled = true;
    fill(legend, waiting(`Switches ${ofRun.switches.length} parts off, one after the other …`));
    try {
      const answer = await asked((signal) => context.source.ablations(context.request({off: []}), signal));
      if (answer) tell(answer);
    } catch (error) {
      measure.disabled = false;
      fill(legend, trouble(error));
    }
  };
  const tell = (answer) => {
    worth = new Map(answer.rows.map((row) => [row.id, row.log_p - answer.log_p]));
    fill(legend, legendOf(worth, ofRun.switches));
    update();
    context.announce(legend.textContent);
  };
  const element = card("Switch parts off", h("p", {class: "dim small"}, OFF_MEANS), place, refused,
    h("div", {class: "row measure"}, measure, h("span", {class: "dim small"}, WORTH_MEANS)), legend);
  return {element, show};
}

// ---- the output before and after ----

function resultSection(context) {
  const place = h("div", {class: "stack"});
  const asked = latest();
  let shown = null;
  const show = async (trace, state) => {
    if (shown === trace) return;
    shown = trace;
    if (!state.off.length) {
      asked(async () => null);
      fill(place, nothingOff(trace));
      return;
    }
    fill(place, waiting("Compares with everything switched on …"));
    try {
      const found = await asked((signal) => beforeAndAfter(context, trace, state, signal));
      if (found) fill(place, comparison(found, state.off.length, context));
    } catch (error) {
      fill(place, trouble(error));
    }
  };
  return {element: card("What becomes of the output", place), show};
}

function nothingOff(trace) {
  return h("div", {class: isCode(trace) ? "code" : null}, h("p", {class: "text", dir: "auto"}, trace.output),
    h("p", {class: "dim small"}, "Nothing is switched off. Press a switch above."));
}

/** {before, after, first, second}: both traces, and how likely each token of the first answer is in both;
    {total} instead of the second where only that is known. */
async function beforeAndAfter(context, after, state, signal) {
  const before = await traced(context.source, context.request({off: []}), signal);
  const first = chances(before);
  if (!writes(before)) return {before, after, first, second: stillLikely(before, after)};
  if (state.target !== null || after.output === before.output) return {before, after, first, second: chances(after).p};
  const again = traced(context.source, context.request(forcing(before)), signal);
  const forced = await again.catch(unlessRecorded(context.source));
  if (forced) return {before, after, first, second: chances(forced).p};
  return {before, after, first, second: [], total: await alone(context, state.off)};
}

/** A recorded file has no forced answers, but the log probability of the first one without each single part. */
async function alone(context, off) {
  const measured = off.length === 1 ? await context.source.ablations(context.request({off: []})) : {rows: []};
  return measured.rows.find((row) => row.id === off[0])?.log_p ?? null;
}

/** For models that answer at once: how likely the first answer is at each place of the second. */
const stillLikely = (before, after) =>
  before.steps.map((step, i) => (after.steps[i] ? probabilityOf(after.steps[i], step.id) : null));

function comparison({before, after, first, second, total = null}, count, context) {
  const names = ["everything on", `${parts(count)} off`];
  const sides = sideBySide(names, before, after);
  const fits = first.tokens.length === second.length && second.length > 0;
  const told = likelier(logP(before), fits ? sumOfLogs(second) : total);
  const verdict = `${outcome(sides.same)}. ${told && `What the model said at first ${told}.`}`;
  const label = before.tags ? "How likely each word's first tag is." : "How likely each token of the first answer is.";
  context.announce(verdict);
  return [h("p", {class: "verdict"}, verdict), sides.element,
    fits && pairedChart({tokens: first.tokens, first: first.p, second, names, label})];
}

// ---- over test data ----

function scoreSection(context) {
  const place = h("div");
  const asked = latest();
  let sentences = 50, ofQuestion = null;
  const size = segmented({label: "How many", options: [50, 100, 200].map((value) => ({value, label: String(value)})),
                          value: sentences, onchange: (value) => { sentences = value; }});
  const button = h("button", {type: "button", class: "button", onclick: () => ask()}, "measure on test data");
  const stop = (...left) => {
    asked(async () => null);
    fill(place, left);
  };
  const show = (trace, state) => {
    const question = JSON.stringify([state.run, state.snapshot, state.off]);
    button.disabled = !state.off.length;
    if (question === ofQuestion) return;
    ofQuestion = question;
    stop(!state.off.length && h("p", {class: "dim small"}, "Switch something off first."));
  };
  const ask = async () => {
    const progress = progressLine(() => stop());
    fill(place, progress.element);
    try {
      const answer = await asked((signal) => context.source.score(context.request({sentences}), progress.tell, signal));
      if (answer) fill(place, scoreTable(answer, context));
    } catch (error) {
      fill(place, trouble(error));
    }
  };
  const why = "One example may be luck. Measure what the model loses on test data with the same parts off.";
  const element = card("Over many examples", h("p", {class: "dim small"}, why),
    h("div", {class: "row"}, size.element, button), place);
  return {element, show};
}

function progressLine(onstop) {
  const bar = h("progress", {aria: {label: "Progress"}}), line = h("span", {class: "small dim"}, "begins …");
  const tell = ({done, of}) => {
    if (of) [bar.max, bar.value, line.textContent] = [of, done, `${done} of ${of}`];
  };
  const stop = h("button", {type: "button", class: "button quiet", onclick: onstop}, "stop");
  return {element: h("div", {class: "row progress"}, bar, line, stop), tell};
}

function scoreTable({before, after, sentences, note}, context) {
  const names = Object.keys(before);
  const signed = (value) => (value > 0 ? "+" : "") + number(+value.toFixed(6));
  const line = (name) => h("tr", {}, h("th", {scope: "row"}, FIGURES[name] ?? name), h("td", {}, number(before[name])),
    h("td", {}, number(after[name])), h("td", {}, h("strong", {}, signed(after[name] - before[name]))));
  const heads = ["", "everything on", "parts off", "difference"].map((title) => h("th", {scope: "col"}, title));
  context.announce(names.map((name) => `${name}: ${number(before[name])} → ${number(after[name])}`).join("; "));
  const table = h("table", {class: "figures"}, h("caption", {class: "small dim"}, `${sentences} test examples`),
    h("thead", {}, h("tr", {}, heads)), h("tbody", {}, names.map(line)));
  return [h("div", {class: "box"}, table), note && h("p", {class: "dim small mono"}, note)];
}

// ---- another word ----

function wordSection(context) {
  const row = h("div"), form = h("div"), place = h("div", {class: "stack"});
  const asked = latest();
  let text = null, picked = null;
  const show = (trace) => {
    element.hidden = trace.task === "image_classification";
    if (trace.text === text) return;
    [text, picked] = [trace.text, null];
    asked(async () => null);
    fill(form);
    fill(place);
    draw();
  };
  const draw = () => fill(row, wordRow(text, picked, pick));
  const pick = (i) => {
    picked = i;
    draw();
    fill(form, wordForm(pieces(text)[i], run));
    form.querySelector("input").select();
  };
  const run = async (word) => {
    const changed = replaced(text, picked, word);
    const request = (each) => context.request({text: each, target: null, prefix: null});
    const both = (signal) => Promise.all([text, changed].map((each) => traced(context.source, request(each), signal)));
    fill(place, waiting("Runs both …"));
    try {
      const found = await asked(both);
      if (found) fill(place, changedWord(found, text, changed, context));
    } catch (error) {
      fill(place, trouble(error));
    }
  };
  const hint = h("p", {class: "dim small"}, "Pick a word of the input and write another in its place, or nothing.");
  const element = card("Change a word", hint, row, form, place);
  return {element, show};
}

/** The words of a text as buttons, with whatever stands between them left in place. */
function wordRow(text, picked, onpick) {
  const word = (piece, i) => h("button", {type: "button", class: "word", aria: {pressed: i === picked},
                                          onclick: () => onpick(i)}, h("bdi", {}, piece));
  const between = (piece) => (piece.includes("\n") ? h("br") : " ");
  return h("div", {class: "words box", role: "group", aria: {label: "Words of the input"}, dir: "auto"},
    pieces(text).map((piece, i) => (piece.trim() ? word(piece, i) : between(piece))));
}

function wordForm(word, run) {
  const field = h("input", {type: "text", id: "another-word", value: word, autocomplete: "off", spellcheck: "false",
                            dir: "auto"});
  const submit = (event) => {
    event.preventDefault();
    run(field.value.trim());
  };
  return h("form", {class: "row", onsubmit: submit},
    h("label", {for: "another-word", class: "small"}, "instead of ", h("bdi", {}, `“${word}”`)),
    field, h("button", {class: "button"}, "see what changes"));
}

/** An empty word takes the space before it along. */
function replaced(text, index, word) {
  const all = pieces(text);
  all[index] = word;
  if (!word && index && !all[index - 1].trim()) all[index - 1] = "";
  return all.join("").trim();
}

function changedWord(found, text, changed, context) {
  const sides = sideBySide([text, changed].map((each) => h("bdi", {class: "quoted"}, each)), ...found);
  const off = context.state.read().off.length;
  const verdict = `${outcome(sides.same)}${off ? `, with ${parts(off)} switched off in both` : ""}.`;
  const take = () => context.state.set({text: changed, target: null, prefix: null});
  context.announce(sides.same ? verdict : `${verdict} It becomes: ${found[1].output}`);
  return [h("p", {class: "verdict"}, verdict), sides.element, changed !== text && h("div", {},
    h("button", {type: "button", class: "button quiet", onclick: take}, "make this the sentence"))];
}
