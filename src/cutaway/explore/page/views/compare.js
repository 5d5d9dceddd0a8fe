// The same input with two sets of weights: two runs, or two steps of one training.
import {fill, h, number, percent} from "../dom.js";
import {lineChart, select, toggle} from "../controls.js";
import {heatmap} from "../heatmap.js";
import {nounsOf} from "../nouns.js";
import {errorLine, fetchTrace, latest, trySet, unlessRecorded, waitingLine} from "./requests.js";
import {cellText, choiceOf, choiceTitle, headControls, weightsOf} from "./headcontrols.js";
import {changeOfProbability, forceOutput, generatesText, hasPredictions, logP} from "./outputs.js";
import {outputProbabilities, probabilityOf, probabilityTitle, sideBySide, sumOfLogs} from "./outputs.js";
import {truncationNote} from "./truncation.js";
import {pairedChart} from "./pairedchart.js";

const FINAL = "kept"; // in the state: the final weights; null means no choice
const INTRODUCTION = "The same input with two sets of weights: two runs, or two steps of one training.";
const NOTHING = "This page has nothing to compare with. Open two runs for the same task (cutaway explore RUN OTHER), "
  + "or a run with snapshots of its training (setting train.snapshots; in an exported page, the option --snapshots).";

export const view = {id: "compare", title: "Compare", applies: (run) => hasPredictions(run.task), create,
  about: ({task}) => `Two runs, or two steps of one training, on the same ${nounsOf(task).input}. Choose side A and `
    + "side B."};

/** Whether there is something to compare with: a snapshot, or another run with the same task. */
function canCompare({info, run}) {
  return run().snapshots.length > 0 || partners(info, run()).length > 1;
}

function depthCaption({task}) {
  if (!generatesText(task)) return "Mean probability of A's predictions after each layer (logit lens).";
  return "Mean probability of the tokens of A's output after each layer (logit lens). "
    + "If you let the decoder of B read B's output, B's line is for the tokens of that output.";
}

/** The numbers of the runs with the same task. */
function partners(info, run) {
  return info.runs.map((each, i) => (each.task === run.task ? i : -1)).filter((i) => i >= 0);
}

/** Side B as {run, snapshot}: the user's choice, or another run, or the first snapshot of this run. */
function sideB(context, state) {
  const {info} = context, runs = partners(info, context.run());
  const run = runs.includes(state.bRun) ? state.bRun : runs.find((i) => i !== state.run) ?? state.run;
  const steps = info.runs[run].snapshots;
  if (state.bSnapshot === FINAL) return {run, snapshot: null};
  if (steps.includes(state.bSnapshot)) return {run, snapshot: state.bSnapshot};
  return {run, snapshot: run === state.run && state.snapshot === null ? steps[0] ?? null : null};
}

function create(context) {
  const outputs = h("div", {class: "stack"}), probabilities = h("div", {class: "stack"}), maps = h("div");
  const sides = sideControls(context, (error) => fill(outputs, errorLine(error)));
  const controls = headControls(context);
  const own = toggle({label: "let the decoder of B read B's output",
                      title: "Otherwise it reads A's output, so that the tokens are the same",
                      onchange: (on) => context.state.set({bOwn: on ? 1 : null})});
  const send = latest();
  let shown = null, pair = null;
  const show = async (trace, state) => {
    const isPossible = canCompare(context);
    [nothing.hidden, content.hidden] = [isPossible, !isPossible];
    if (!isPossible) return;
    const b = sideB(context, state);
    const wanted = JSON.stringify([context.request(), b, state.bOwn]);
    own.set(state.bOwn);
    own.element.hidden = !generatesText(trace.task);
    sides.show(trace, state, b);
    controls.show(context.run(), state);
    if (shown?.trace === trace && shown.wanted === wanted) return pair && drawMaps(maps, pair, context, state);
    [shown, pair] = [{trace, wanted}, null];
    if (!outputs.childElementCount) fill(outputs, waitingLine("Running the model with the weights of B …"));
    try {
      pair = await send((signal) => bothSides(context, trace, state, b, signal));
    } catch (error) {
      [probabilities, maps].forEach((place) => fill(place));
      fill(outputs, errorLine(error));
    }
    if (pair) draw(pair, context.state.read());
  };
  const draw = (found, state) => {
    const {verdict, children} = compareOutputs(found);
    fill(outputs, children);
    fill(probabilities, charts(found));
    drawMaps(maps, found, context, state);
    context.announce(verdict);
  };
  const card = (title, ...children) => h("section", {class: "card"}, h("h3", {}, title), children);
  const nothing = h("p", {class: "note"}, NOTHING);
  const content = h("div", {class: "stack"}, sides.element, card("Outputs", outputs), card("Probabilities", probabilities),
    card("Attention", h("div", {class: "row"}, controls.element, own.element), maps));
  const element = h("div", {class: "view-compare view-sides stack"}, h("p", {class: "lead"}, INTRODUCTION), nothing,
    content);
  return {element, show};
}

/** {a, own, b}: the trace of A; of B with its own output; and of B with A's output, unless the user wants its own. */
async function bothSides(context, a, state, side, signal) {
  const run = context.info.runs[side.run];
  const off = state.off.filter((id) => run.switches.some((each) => each.id === id)); // the other run may not have all
  const request = context.request({...side, off, prefix: side.run === state.run ? state.prefix : null});
  const own = await fetchTrace(context.source, request, signal);
  const force = generatesText(a.task) && !state.bOwn && state.target === null && own.output !== a.output;
  const forced = {...request, ...forceOutput(a, side.run !== state.run)};
  const b = force ? await fetchTrace(context.source, forced, signal).catch(unlessRecorded(context.source)) : own;
  return {a, own, b: b ?? own, run, names: [sideName(context.info, state), sideName(context.info, side)]};
}

const weightsName = (snapshot) => (snapshot === null ? "final" : `step ${snapshot}`);

function sideName(info, {run, snapshot}) {
  const weights = snapshot === null ? "final weights" : `step ${snapshot}`;
  return info.runs.length > 1 ? `${info.runs[run].name}, ${weights}` : weights;
}

// ---- choice of the two sides ----

function sideControls(context, onError) {
  const element = h("div", {class: "sides"});
  let drawn = null, controls = null, text = null;
  const reset = {target: null, prefix: null, off: [], hidden: [], kind: null, layer: null, head: null};
  const show = (trace, state, b) => {
    const runs = partners(context.info, context.run());
    const wanted = JSON.stringify([runs, state.run, b.run]);
    text = trace.text;
    if (wanted !== drawn) {
      drawn = wanted;
      const setA = (patch) => trySet(context, patch, onError);
      controls = [sideControl(context.info, "A", state.run, runs, (run) => setA({...reset, run, snapshot: null, text}),
                              (step) => setA({snapshot: step === FINAL ? null : step})),
                  sideControl(context.info, "B", b.run, runs, (bRun) => context.state.set({bRun, bSnapshot: FINAL}),
                              (bSnapshot) => context.state.set({bRun: b.run, bSnapshot}))];
      fill(element, controls.map((side) => side.element));
    }
    [state.snapshot, b.snapshot].forEach((snapshot, i) => controls[i].weights.set(snapshot ?? FINAL));
  };
  return {element, show};
}

function sideControl(info, letter, run, runs, onRun, onWeights) {
  const steps = [...info.runs[run].snapshots, null].map((step) => ({value: step ?? FINAL, label: weightsName(step)}));
  const weights = select({label: "weights", options: steps, value: FINAL, onchange: onWeights});
  const names = runs.map((i) => ({value: i, label: info.runs[i].name}));
  const which = runs.length > 1 ? select({label: "run", options: names, value: run, onchange: onRun}) : null;
  const row = h("div", {class: "row"}, which?.element, weights.element);
  return {weights, element: h("fieldset", {class: "card side"}, h("legend", {}, letter), row)};
}

// ---- outputs and probabilities ----

function compareOutputs(found) {
  const sides = sideBySide([`A: ${found.names[0]}`, `B: ${found.names[1]}`], found.a, found.own);
  const p = probabilitiesUnderB(found);
  const change = p?.length ? changeOfProbability(logP(found.a), sumOfLogs(p), "is", "is") : "";
  const verdict = `${sides.same ? "The outputs are the same." : "The outputs differ."} `
    + `${change && `With the weights of B, A's output ${change}.`}`;
  return {verdict, children: [h("p", {class: "verdict"}, verdict), sides.element]};
}

/** The probability of each token of A's output under B; null if A and B have different tokens. */
function probabilitiesUnderB({a, b}) {
  const first = outputProbabilities(a), second = outputProbabilities(b), generates = generatesText(a.task);
  if (first.p.length !== second.p.length || (generates && !areEqual(first.tokens, second.tokens))) return null;
  return generates ? second.p : a.steps.map((step, i) => probabilityOf(b.steps[i], step.id));
}

const areEqual = (first, second) => JSON.stringify(first) === JSON.stringify(second);

function charts(found) {
  const first = outputProbabilities(found.a), second = probabilitiesUnderB(found);
  const label = probabilityTitle(found.a, "A's");
  const paired = second?.length ? pairedChart({tokens: first.tokens, first: first.p, second, names: ["A", "B"], label})
    : h("p", {class: "dim small"}, "A and B have different tokens here, so their probabilities cannot be compared.");
  return [paired, depthChart(found)];
}

function depthChart({a, b}) {
  if (!a.lens?.final.length || !b.lens?.final.length) return null;
  const names = a.lens.rows, same = names.length === b.lens.rows.length, end = same ? names.length - 1 : 1;
  const line = ({final}) => final.map((row, i) => [end * i / Math.max(1, final.length - 1), mean(row)]);
  const values = (lens) => lens.final.map((row) => percent(mean(row))).join(", ");
  const layers = {label: "after this layer", min: -0.06 * end, max: 1.06 * end, format: (at) => names[at] ?? ""};
  const depth = {label: "depth, from the embedding to the last layer", format: number};
  const lines = [{name: "A", points: line(a.lens)}, {name: "B", points: line(b.lens)}];
  const chart = lineChart({lines, width: 440, height: 210, x: same ? layers : depth,
                           y: {min: 0, max: 1, format: percent},
                           label: `After each layer, A: ${values(a.lens)}; B: ${values(b.lens)}.`});
  return h("figure", {class: "drawn"}, h("figcaption", {class: "small dim"}, depthCaption(a)), chart);
}

const mean = (values) => values.reduce((sum, value) => sum + value, 0) / Math.max(1, values.length);

// ---- attention ----

function drawMaps(place, {a, b, names, run}, context, state) {
  const choice = choiceOf(context.run(), state);
  const [first, second] = [weightsOf(a, choice), weightsOf(b, choiceOf(run, choice))];
  const same = first && second && areEqual([first.rows, first.columns], [second.rows, second.columns]);
  fill(place, truncationNote(a.kept ?? b.kept), h("div", {class: "maps"},
    weightsMap("A", names[0], first, choice), weightsMap("B", names[1], second, choice),
    same ? differenceMap(first, second, choice)
      : h("p", {class: "dim small"}, "The tokens of A and B differ, so there is no difference to draw.")));
}

function weightsMap(letter, name, weights, choice) {
  const label = `${letter}: ${choiceTitle(choice)}`;
  const map = weights ? heatmap({...weights, label, describe: cellText(weights)}).element
    : h("p", {class: "dim"}, "This model does not have this attention layer.");
  return h("figure", {class: "drawn"}, h("figcaption", {}, h("strong", {}, letter), ` ${name}`), map);
}

function differenceMap(a, b, choice) {
  const weights = {rows: a.rows, columns: a.columns, at: (q, k) => b.at(q, k) - a.at(q, k)};
  const points = (value) => `${value > 0 ? "+" : "−"}${percent(Math.abs(value))}`;
  const legend = h("span", {class: "difference-legend small"}, h("span", {class: "more"}, "more in B"),
    h("span", {class: "less"}, "less in B"));
  const options = {signed: true, label: `B minus A: ${choiceTitle(choice)}`, describe: cellText(weights, points)};
  return h("figure", {class: "drawn"}, h("figcaption", {}, h("strong", {}, "B − A"), legend),
    heatmap({...weights, ...options}).element);
}
