// Two models, or one model at two moments of its training, with the same sentence.
import {fill, h, number, percent} from "../dom.js";
import {lineChart, select, toggle} from "../controls.js";
import {heatmap} from "../heatmap.js";
import {latest, traced, trouble, unlessRecorded, venture, waiting} from "./asking.js";
import {cellOf, choiceOf, choiceTitle, headChoice, weightsOf} from "./headchoice.js";
import {chances, forcing, isAsked, likelier, logP, probabilityOf, sideBySide, sumOfLogs, writes} from "./outcome.js";
import {keptSentence} from "./kept.js";
import {pairedChart} from "./paired.js";

const KEPT = "kept"; // in the state: the trained weights, where null means that nothing was chosen yet
const INTRODUCTION = "The same sentence, two sets of weights: another run, or this one earlier in its training.";
const EARLY = "How early they know: the mean probability of what is finally said, if the model stopped after a layer.";

export const view = {id: "compare", title: "Compare", applies, create};

/** There must be something to compare with: an earlier moment, or another run with the same task. */
function applies(run, info = null) {
  if (!isAsked(run.task)) return false;
  return run.snapshots.length > 0 || (info !== null && partners(info, run).length > 1);
}

/** Numbers of the runs that do the same task, so that the same text means the same to them. */
function partners(info, run) {
  return info.runs.map((each, i) => (each.task === run.task ? i : -1)).filter((i) => i >= 0);
}

/** Side B as {run, snapshot}: what was chosen, or another run, or this run as it was early in its training. */
function sideB(context, state) {
  const {info} = context, able = partners(info, context.run());
  const run = able.includes(state.bRun) ? state.bRun : able.find((i) => i !== state.run) ?? state.run;
  const steps = info.runs[run].snapshots;
  if (state.bSnapshot === KEPT) return {run, snapshot: null};
  if (steps.includes(state.bSnapshot)) return {run, snapshot: state.bSnapshot};
  return {run, snapshot: run === state.run && state.snapshot === null ? steps[0] ?? null : null};
}

function create(context) {
  const said = h("div", {class: "stack"}), sure = h("div", {class: "stack"}), maps = h("div");
  const sides = sideChoosers(context, (error) => fill(said, trouble(error)));
  const choice = headChoice(context);
  const own = toggle({label: "B attends over its own output", title: "Otherwise over A's: then the tokens are the same",
                      onchange: (on) => context.state.set({bOwn: on ? 1 : null})});
  const asked = latest();
  let shown = null, pair = null;
  const show = async (trace, state) => {
    const b = sideB(context, state);
    const question = JSON.stringify([context.request(), b, state.bOwn]);
    own.set(state.bOwn);
    own.element.hidden = !writes(trace);
    sides.show(trace, state, b);
    choice.show(context.run(), state);
    if (shown?.trace === trace && shown.question === question) return pair && drawMaps(maps, pair, context, state);
    [shown, pair] = [{trace, question}, null];
    if (!said.childElementCount) fill(said, waiting("Runs the other side …"));
    try {
      pair = await asked((signal) => bothSides(context, trace, state, b, signal));
    } catch (error) {
      [sure, maps].forEach((place) => fill(place));
      fill(said, trouble(error));
    }
    if (pair) draw(pair, context.state.read());
  };
  const draw = (found, state) => {
    const told = answers(found);
    fill(said, told.children);
    fill(sure, charts(found));
    drawMaps(maps, found, context, state);
    context.announce(told.verdict);
  };
  const card = (title, ...children) => h("section", {class: "card"}, h("h3", {}, title), children);
  const element = h("div", {class: "view-compare view-sides stack"},
    h("p", {class: "lead"}, INTRODUCTION), sides.element, card("What they say", said), card("How sure they are", sure),
    card("Where they look", h("div", {class: "row"}, choice.element, own.element), maps));
  return {element, show};
}

/** {a, own, b}: A's trace; B's own; and B as it is compared, with A's output forced unless its own is wanted. */
async function bothSides(context, a, state, side, signal) {
  const run = context.info.runs[side.run];
  const off = state.off.filter((id) => run.switches.some((each) => each.id === id)); // another run may lack some parts
  const asked = context.request({...side, off, prefix: side.run === state.run ? state.prefix : null});
  const own = await traced(context.source, asked, signal);
  const force = writes(a) && !state.bOwn && state.target === null && own.output !== a.output;
  const forced = {...asked, ...forcing(a, side.run !== state.run)};
  const b = force ? await traced(context.source, forced, signal).catch(unlessRecorded(context.source)) : own;
  return {a, own, b: b ?? own, run, names: [nameOfSide(context.info, state), nameOfSide(context.info, side)]};
}

const momentOf = (snapshot) => (snapshot === null ? "trained" : `step ${snapshot}`);

function nameOfSide(info, {run, snapshot}) {
  return info.runs.length > 1 ? `${info.runs[run].name}, ${momentOf(snapshot)}` : momentOf(snapshot);
}

// ---- which two ----

function sideChoosers(context, onError) {
  const element = h("div", {class: "sides"});
  let ofWhat = null, made = null, text = null;
  const forgotten = {target: null, prefix: null, off: [], hidden: [], kind: null, layer: null, head: null};
  const show = (trace, state, b) => {
    const runs = partners(context.info, context.run());
    const what = JSON.stringify([runs, state.run, b.run]);
    text = trace.text;
    if (what !== ofWhat) {
      ofWhat = what;
      const moveA = (patch) => venture(context, patch, onError);
      made = [sideChooser(context.info, "A", state.run, runs, (run) => moveA({...forgotten, run, snapshot: null, text}),
                          (step) => moveA({snapshot: step === KEPT ? null : step})),
              sideChooser(context.info, "B", b.run, runs, (bRun) => context.state.set({bRun, bSnapshot: KEPT}),
                          (bSnapshot) => context.state.set({bRun: b.run, bSnapshot}))];
      fill(element, made.map((side) => side.element));
    }
    [state.snapshot, b.snapshot].forEach((snapshot, i) => made[i].moment.set(snapshot ?? KEPT));
  };
  return {element, show};
}

function sideChooser(info, letter, run, runs, onRun, onMoment) {
  const moments = [...info.runs[run].snapshots, null].map((step) => ({value: step ?? KEPT, label: momentOf(step)}));
  const moment = select({label: "weights", options: moments, value: KEPT, onchange: onMoment});
  const names = runs.map((i) => ({value: i, label: info.runs[i].name}));
  const which = runs.length > 1 ? select({label: "run", options: names, value: run, onchange: onRun}) : null;
  const controls = h("div", {class: "row"}, which?.element, moment.element);
  return {moment, element: h("fieldset", {class: "card side"}, h("legend", {}, letter), controls)};
}

// ---- what they say, and how sure they are ----

function answers(found) {
  const sides = sideBySide([`A: ${found.names[0]}`, `B: ${found.names[1]}`], found.a, found.own);
  const p = likewise(found);
  const told = p?.length ? likelier(logP(found.a), sumOfLogs(p), "is", "is") : "";
  const verdict = `${sides.same ? "Both say the same." : "They differ."} ${told && `To B, what A says ${told}.`}`;
  return {verdict, children: [h("p", {class: "verdict"}, verdict), sides.element]};
}

/** How likely each token of A's answer is to B; null where the two cut the text into other tokens. */
function likewise({a, b}) {
  const first = chances(a), second = chances(b);
  if (first.p.length !== second.p.length || (writes(a) && !alike(first.tokens, second.tokens))) return null;
  return writes(a) ? second.p : a.steps.map((step, i) => probabilityOf(b.steps[i], step.id));
}

const alike = (first, second) => JSON.stringify(first) === JSON.stringify(second);

function charts(found) {
  const first = chances(found.a), second = likewise(found);
  const label = found.a.tags ? "How likely A's tag of each word is." : "How likely each token of A's answer is.";
  const paired = second?.length ? pairedChart({tokens: first.tokens, first: first.p, second, names: ["A", "B"], label})
    : h("p", {class: "dim small"}, "The two have not the same tokens here: there is nothing to set side by side.");
  return [paired, depthChart(found)];
}

/** How early each of them knows: the mean probability of what is finally said, by layer. */
function depthChart({a, b}) {
  if (!a.lens?.final.length || !b.lens?.final.length) return null;
  const names = a.lens.rows, same = names.length === b.lens.rows.length, end = same ? names.length - 1 : 1;
  const line = ({final}) => final.map((row, i) => [end * i / Math.max(1, final.length - 1), mean(row)]);
  const told = (lens) => lens.final.map((row) => percent(mean(row))).join(", ");
  const layers = {label: "after which layer", min: -0.06 * end, max: 1.06 * end, format: (at) => names[at] ?? ""};
  const depth = {label: "depth, from the embedding to the last layer", format: number};
  const lines = [{name: "A", points: line(a.lens)}, {name: "B", points: line(b.lens)}];
  const drawing = lineChart({lines, width: 440, height: 210, x: same ? layers : depth,
                             y: {min: 0, max: 1, format: percent},
                             label: `After each layer, A: ${told(a.lens)}; B: ${told(b.lens)}.`});
  return h("figure", {class: "drawn"}, h("figcaption", {class: "small dim"}, EARLY), drawing);
}

const mean = (values) => values.reduce((sum, value) => sum + value, 0) / Math.max(1, values.length);

// ---- where they look ----

function drawMaps(place, {a, b, names, run}, context, state) {
  const choice = choiceOf(context.run(), state);
  const [first, second] = [weightsOf(a, choice), weightsOf(b, choiceOf(run, choice))];
  const same = first && second && alike([first.rows, first.columns], [second.rows, second.columns]);
  fill(place, keptSentence(a.kept ?? b.kept), h("div", {class: "maps"}, mapOf("A", names[0], first, choice), mapOf("B", names[1], second, choice),
    same ? differenceMap(first, second, choice)
      : h("p", {class: "dim small"}, "No difference is drawn: the tokens along the sides are not the same.")));
}

function mapOf(letter, name, weights, choice) {
  const label = `${letter}: ${choiceTitle(choice)}`;
  const drawing = weights ? heatmap({...weights, label, describe: cellOf(weights)}).element
    : h("p", {class: "dim"}, "has no such attention");
  return h("figure", {class: "drawn"}, h("figcaption", {}, h("strong", {}, letter), ` ${name}`), drawing);
}

function differenceMap(a, b, choice) {
  const weights = {rows: a.rows, columns: a.columns, at: (q, k) => b.at(q, k) - a.at(q, k)};
  const points = (value) => `${value > 0 ? "+" : "−"}${percent(Math.abs(value))}`;
  const legend = h("span", {class: "difference-legend small"}, h("span", {class: "more"}, "B looks more"),
    h("span", {class: "less"}, "B looks less"));
  const options = {signed: true, label: `B minus A: ${choiceTitle(choice)}`, describe: cellOf(weights, points)};
  return h("figure", {class: "drawn"}, h("figcaption", {}, h("strong", {}, "B − A"), legend),
    heatmap({...weights, ...options}).element);
}
