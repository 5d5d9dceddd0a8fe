// Experiments: switch parts of the model off, or change a word, and compare the outputs.
import {fill, h, number} from "../dom.js";
import {segmented} from "../controls.js";
import {errorLine, fetchTrace, latest, trySet, unlessRecorded, waitingLine} from "./requests.js";
import {wordChoice} from "./changeword.js";
import {changeOfProbability, forceOutput, generatesText, hasPredictions, isCode, logP} from "./outputs.js";
import {outputProbabilities, probabilityOf, probabilityTitle, sideBySide, sumOfLogs} from "./outputs.js";
import {pairedChart} from "./pairedchart.js";
import {effectLegend, switchboard} from "./switchboard.js";

const introduction = (canChangeWord) =>
  `${canChangeWord ? "You can also change a word of the input. " : ""}`
  + "If the output stays the same without a part, that is measured for this input only; "
  + "scores on test data can still fall.";
const OFF_MEANS = "Click a sub-layer, or a head by its number. A head that is off outputs zeros. "
  + "A sub-layer that is off adds nothing to the residual stream.";
const MEASURE_MEANS = "How much less probable does the output become if only this part is off?";

export const view = {id: "experiments", title: "Experiments", create,
  about: "What each part of the model contributes. Click a head or a sub-layer to switch it off, and compare the output.",
  applies: (run) => run.switches.length > 0 && hasPredictions(run.task)};

function create(context) {
  const hasScores = Boolean(context.source.score); // they need test data
  const canRun = !context.source.recorded;
  const sections = [boardSection(context), resultSection(context), ...(hasScores ? [scoreSection(context)] : []),
    ...(canRun ? [wordSection(context)] : [])];
  const lead = h("p", {class: "lead"});
  const element = h("div", {class: "view-experiments view-sides stack"}, lead, sections.map((section) => section.element));
  const show = (trace, state) => {
    fill(lead, introduction(canRun && trace.task !== "image_classification"));
    sections.forEach((section) => section.show(trace, state));
  };
  return {element, show};
}

const card = (title, ...children) => h("section", {class: "card"}, h("h3", {}, title), children);
const verdictOf = (same) => (same ? "The output stays the same" : "The output changes");
const SCORE_NAMES = {bleu: "BLEU", chrf: "chrF"}; // spelling of scores
const parts = (count) => (count === 1 ? "1 part" : `${count} parts`);

// ---- the switchboard ----

function boardSection(context) {
  const place = h("div"), problem = h("div"), legend = h("div");
  const measure = h("button", {type: "button", class: "button", onclick: () => run()}, "Measure each part");
  const send = latest();
  let board = null, drawnRun = null, effects = null, measured = null;
  const update = () => board.update(context.state.read().off, effects);
  const change = (off) => {
    fill(problem);
    trySet(context, {off}, (error) => fill(problem, errorLine(error)));
    update(); // before the new trace is here
  };
  const show = () => {
    const request = JSON.stringify(context.request({off: []})); // another request makes the measurement invalid
    if (drawnRun !== context.run()) {
      drawnRun = context.run();
      board = switchboard(drawnRun.switches, change, (off) => context.source.has("trace", context.request({off})));
      fill(place, board.element);
    }
    if (measured !== request) {
      [effects, measured, measure.disabled] = [null, request, false];
      measure.parentElement.hidden = !context.source.has("ablations", context.request({off: []}));
      send(async () => null);
      fill(legend);
    }
    update();
  };
  const run = async () => {
    measure.disabled = true;
    fill(legend, waitingLine(`Measuring ${drawnRun.switches.length} parts, one after the other …`));
    try {
      const answer = await send((signal) => context.source.ablations(context.request({off: []}), signal));
      if (answer) showEffects(answer);
    } catch (error) {
      measure.disabled = false;
      fill(legend, errorLine(error));
    }
  };
  const showEffects = (answer) => {
    effects = new Map(answer.rows.map((row) => [row.id, row.log_p - answer.log_p]));
    fill(legend, effectLegend(effects, drawnRun.switches));
    update();
    context.announce(legend.textContent);
  };
  const element = card("Switch parts off", h("p", {class: "dim small"}, OFF_MEANS), place, problem,
    h("div", {class: "row measure"}, measure, h("span", {class: "dim small"}, MEASURE_MEANS)), legend);
  return {element, show};
}

// ---- the output before and after ----

function resultSection(context) {
  const place = h("div", {class: "stack"});
  const send = latest();
  let shown = null;
  const show = async (trace, state) => {
    if (shown === trace) return;
    shown = trace;
    if (!state.off.length) {
      send(async () => null);
      fill(place, nothingOff(trace));
      return;
    }
    fill(place, waitingLine("Running the model with everything on …"));
    try {
      const found = await send((signal) => beforeAndAfter(context, trace, state, signal));
      if (found) fill(place, comparison(found, state.off.length, context));
    } catch (error) {
      fill(place, errorLine(error));
    }
  };
  return {element: card("Output before and after", place), show};
}

function nothingOff(trace) {
  return h("div", {class: isCode(trace) ? "code" : null}, h("p", {class: "text", dir: "auto"}, trace.output),
    h("p", {class: "dim small"}, "Nothing is switched off. Click a part above."));
}

/** {before, after, first, second}: both traces, and the probability of each token of the first output in both.
    {total} instead of `second` if only the log-probability of the whole output is known. */
async function beforeAndAfter(context, after, state, signal) {
  const before = await fetchTrace(context.source, context.request({off: []}), signal);
  const first = outputProbabilities(before);
  if (!generatesText(before.task)) return {before, after, first, second: newProbabilities(before, after)};
  if (state.target !== null || after.output === before.output) {
    return {before, after, first, second: outputProbabilities(after).p};
  }
  const forcedTrace = fetchTrace(context.source, context.request(forceOutput(before)), signal);
  const forced = await forcedTrace.catch(unlessRecorded(context.source));
  if (forced) return {before, after, first, second: outputProbabilities(forced).p};
  return {before, after, first, second: [], total: await recordedTotal(context, state.off)};
}

/** An exported file has no forced outputs, but the log-probability of the first output without each single part. */
async function recordedTotal(context, off) {
  const measured = off.length === 1 ? await context.source.ablations(context.request({off: []})) : {rows: []};
  return measured.rows.find((row) => row.id === off[0])?.log_p ?? null;
}

/** The probability of each prediction of the first trace in the second. */
const newProbabilities = (before, after) =>
  before.steps.map((step, i) => (after.steps[i] ? probabilityOf(after.steps[i], step.id) : null));

function comparison({before, after, first, second, total = null}, count, context) {
  const names = ["everything on", `${parts(count)} off`];
  const sides = sideBySide(names, before, after);
  const fits = first.tokens.length === second.length && second.length > 0;
  const change = changeOfProbability(logP(before), fits ? sumOfLogs(second) : total);
  const verdict = `${verdictOf(sides.same)}. ${change && `The original output ${change}.`}`;
  const label = probabilityTitle(before, "the original");
  context.announce(verdict);
  return [h("p", {class: "verdict"}, verdict), sides.element,
    fits && pairedChart({tokens: first.tokens, first: first.p, second, names, label})];
}

// ---- scores on test data ----

function scoreSection(context) {
  const place = h("div");
  const send = latest();
  let sentences = 50, shown = null;
  const size = segmented({label: "examples", options: [50, 100, 200].map((value) => ({value, label: String(value)})),
                          value: sentences, onchange: (value) => { sentences = value; }});
  const button = h("button", {type: "button", class: "button", onclick: () => run()}, "Measure on test data");
  const stop = (...content) => {
    send(async () => null);
    fill(place, content);
  };
  const show = (trace, state) => {
    const wanted = JSON.stringify([state.run, state.snapshot, state.off]);
    button.disabled = !state.off.length;
    if (wanted === shown) return;
    shown = wanted;
    stop(!state.off.length && h("p", {class: "dim small"}, "Switch a part off first."));
  };
  const run = async () => {
    const progress = progressLine(() => stop());
    fill(place, progress.element);
    try {
      const request = context.request({sentences});
      const answer = await send((signal) => context.source.score(request, progress.update, signal));
      if (answer) fill(place, scoreTable(answer, context));
    } catch (error) {
      fill(place, errorLine(error));
    }
  };
  const why = "A single example can mislead. Compare the scores on test data with and without the parts that are off.";
  const element = card("Scores on test data", h("p", {class: "dim small"}, why),
    h("div", {class: "row"}, size.element, button), place);
  return {element, show};
}

function progressLine(onstop) {
  const bar = h("progress", {aria: {label: "Progress"}}), line = h("span", {class: "small dim"}, "starting …");
  const update = ({done, of}) => {
    if (of) [bar.max, bar.value, line.textContent] = [of, done, `${done} of ${of}`];
  };
  const stop = h("button", {type: "button", class: "button quiet", onclick: onstop}, "Stop");
  return {element: h("div", {class: "row progress"}, bar, line, stop), update};
}

function scoreTable({before, after, sentences, note}, context) {
  const names = Object.keys(before);
  const formatChange = (value) => (value > 0 ? "+" : "") + number(+value.toFixed(6));
  const line = (name) => h("tr", {}, h("th", {scope: "row"}, SCORE_NAMES[name] ?? name),
    h("td", {}, number(before[name])), h("td", {}, number(after[name])),
    h("td", {}, h("strong", {}, formatChange(after[name] - before[name]))));
  const heads = ["", "everything on", "parts off", "difference"].map((title) => h("th", {scope: "col"}, title));
  context.announce(names.map((name) => `${name}: ${number(before[name])} → ${number(after[name])}`).join("; "));
  const table = h("table", {class: "figures"}, h("caption", {class: "small dim"}, `${sentences} test examples`),
    h("thead", {}, h("tr", {}, heads)), h("tbody", {}, names.map(line)));
  return [h("div", {class: "box"}, table), note && h("p", {class: "dim small mono"}, note)];
}

// ---- change a word ----

function wordSection(context) {
  const place = h("div", {class: "stack"});
  const send = latest();
  let text = null;
  const show = (trace) => {
    element.hidden = trace.task === "image_classification";
    if (trace.text === text) return;
    text = trace.text;
    send(async () => null);
    fill(place);
    choice.show(text);
  };
  const run = async (changed) => {
    const request = (each) => context.request({text: each, target: null, prefix: null});
    const both = (signal) =>
      Promise.all([text, changed].map((each) => fetchTrace(context.source, request(each), signal)));
    fill(place, waitingLine("Running the model on both texts …"));
    try {
      const found = await send(both);
      if (found) fill(place, wordComparison(found, text, changed, context));
    } catch (error) {
      fill(place, errorLine(error));
    }
  };
  const choice = wordChoice({button: "Compare", run});
  const hint = h("p", {class: "dim small"},
    "Click a word of the input. Replace it with another word, or with nothing.");
  const element = card("Change a word", hint, choice.element, place);
  return {element, show};
}

function wordComparison(found, text, changed, context) {
  const sides = sideBySide([text, changed].map((each) => h("bdi", {class: "quoted"}, each)), ...found);
  const off = context.state.read().off.length;
  const verdict = `${verdictOf(sides.same)}${off ? `, with ${parts(off)} switched off in both` : ""}.`;
  const use = () => context.state.set({text: changed, target: null, prefix: null});
  context.announce(sides.same ? verdict : `${verdict} New output: ${found[1].output}`);
  return [h("p", {class: "verdict"}, verdict), sides.element, changed !== text && h("div", {},
    h("button", {type: "button", class: "button quiet", onclick: use}, "Use this text"))];
}
