// One input through the training: the output, its probability and the attention at each snapshot.
import {fill, h, percent} from "../dom.js";
import {lineChart} from "../controls.js";
import {heatmap} from "../heatmap.js";
import {readable, tokenRow} from "../tokens.js";
import {errorLine, latest, waitingLine} from "./requests.js";
import {diffLines} from "./textdiff.js";
import {cellText, choiceOf, choiceTitle, headControls, weightsOf} from "./headcontrols.js";
import {generatesText, nats, signedNats} from "./outputs.js";
import {truncationNote} from "./truncation.js";
import {snapshotSlider} from "./snapshotslider.js";

const FINAL = "kept"; // in the state: the final weights

const NOTHING = "This run has no snapshots of its training here. A training saves them if the setting train.snapshots is "
  + "above 0; an exported page has them with the option --snapshots.";

export const view = {id: "timelapse", title: "Training", applies, create,
  about: "The output and the attention at each saved step of the training. Move the slider from the first step to the "
    + "last."};

/** A view without snapshots says how to get them; a report leaves it out. */
function applies(run, info) {
  return run.attention.length > 0 && (run.snapshots.length > 0 || !info.views);
}

const weightsName = (step) => (step === null ? "final weights" : `step ${step.toLocaleString("en")}`);

function create(context) {
  const choose = (snapshot) => context.state.set({step: snapshot.step ?? FINAL}, {replace: true});
  const slider = snapshotSlider(choose, (snapshot) => weightsName(snapshot.step)), controls = headControls(context);
  const [output, tokens, curve, heat] = ["output-then", "tokens-then", "curve", "heat"].map((name) =>
    h("div", {class: name}));
  const tokenMap = createTokenMap(choose), drawAttention = createAttentionMap(heat);
  const send = latest();
  let shown = null;
  let history = null; // {task, source, target_in, target_out, steps, tokens, snapshots}

  const show = (trace, state) => {
    const hasSnapshots = context.run().snapshots.length > 0;
    [nothing.hidden, content.hidden] = [hasSnapshots, !hasSnapshots];
    if (!hasSnapshots) return;
    const request = context.request({snapshot: null});
    controls.show(context.run(), state);
    if (JSON.stringify(request) !== shown) {
      shown = JSON.stringify(request);
      load(request, trace);
    } else draw();
  };
  const load = async (request, trace) => {
    const mine = history = {snapshots: [], steps: [], task: trace.task};
    clear(waitingLine("Loading the snapshots …"));
    const add = (line) => {
      if (history !== mine) return;
      if (line.steps) Object.assign(history, line, {tokens: tokensOf(trace, line)});
      else history.snapshots.push({...line, p: line.p.slice(-history.tokens.length)});
      draw();
    };
    try {
      if (await send((signal) => context.source.snapshots(request, add, signal))) {
        context.announce(`${history.snapshots.length} snapshots are loaded.`);
      }
    } catch (error) {
      if (history !== mine) return;
      shown = null; // try again the next time
      clear(errorLine(error));
    }
  };
  const draw = () => {
    if (!history?.snapshots.length) return;
    const {step, snapshot} = context.state.read();
    const at = indexOf(history, step ?? snapshot), current = history.snapshots[at];
    slider.show(history.snapshots, at, history.steps.length - history.snapshots.length);
    fill(output, outputCards(history, current));
    fill(tokens, tokenProbabilities(history, at));
    fill(curve, probabilityCurve(history, current));
    tokenMap.show(history, at);
    drawAttention({...history, attention: current.attention, kept: current.kept},
      choiceOf(context.run(), context.state.read()), current.step);
  };
  const clear = (message) => {
    slider.clear();
    [tokens, curve].forEach((place) => fill(place));
    tokenMap.clear();
    drawAttention(null);
    fill(output, message);
  };
  const card = (title, ...children) => h("section", {class: "card"}, h("h3", {}, title), children);
  const nothing = h("p", {class: "note"}, NOTHING);
  const content = h("div", {class: "stack"}, slider.element,
    card("Output of this snapshot", output),
    card("Probability of the final output", tokens, h("div", {class: "pair"}, curve, tokenMap.element)),
    card("Attention of this snapshot", controls.element, heat));
  const element = h("div", {class: "view-timelapse view-sides stack"}, nothing,
    content);
  return {element, show, key: slider.key};
}

/** The names of the predictions: output tokens without the prompt, words with tags, masked positions, or one answer. */
function tokensOf(trace, line) {
  if (generatesText(trace.task)) return line.target_out.slice(trace.prompt);
  if (trace.tags) return trace.tags.map((tag) => tag.word);
  return trace.hidden.length ? trace.hidden.map((at) => `token ${at}`) : ["the answer"];
}

/** The index of the snapshot of this step, or of the last one that is loaded. */
function indexOf({snapshots}, step) {
  const at = snapshots.findIndex((each) => (each.step ?? FINAL) === step);
  return at < 0 ? snapshots.length - 1 : at;
}

// ---- one snapshot ----

function outputCards({snapshots, task}, current) {
  const final = snapshots.at(-1).step === null ? snapshots.at(-1) : current;
  const {before, after, same} = diffLines(current.output, final.output);
  const side = (title, text, mark) => h("div", {class: `card side${task === "language_model" ? " code" : ""}`},
    h("h4", {}, title, mark && h("span", {class: "right"}, " ✓ same as the final output")), text);
  return h("div", {class: "sides"}, side(weightsName(current.step), before, same && current !== final),
    !same && side("final output", after));
}

function tokenProbabilities({snapshots, tokens}, at) {
  const current = snapshots[at], before = snapshots[at - 1];
  const change = before ? ` · change of log p since the previous snapshot: ${signedNats(current.log_p - before.log_p)}`
    : "";
  const p = current.log_p === null ? "–" : percent(Math.exp(current.log_p));
  const label = "Tokens of the final output with their probabilities at this snapshot";
  return [tokens.length > 1 && tokenRow(tokens, {p: current.p, label}),
    h("p", {class: "small dim"}, `log p ${nats(current.log_p)} · probability ${p}${change}`)];
}

/** log p over the snapshots. They have equal distances, although their steps are denser at the start. */
function probabilityCurve({snapshots}, current) {
  if (snapshots.length < 2) return null;
  const points = snapshots.map((each, i) => [i, each.log_p]);
  const at = snapshots.indexOf(current), least = Math.min(...points.map(([, y]) => y));
  const stepName = (i) => (snapshots[i] ? snapshots[i].step?.toLocaleString("en") ?? "final" : "");
  const text = (each) => `${nats(each.log_p)} at ${weightsName(each.step)}`;
  const selected = {name: "selected", points: [[at, least], [at, current.log_p]], style: "second"};
  const chart = lineChart({height: 250, width: 440,
    x: {label: "training step", format: stepName}, y: {label: "log p", max: 0},
    lines: [{name: "log p", points, style: "first"}, selected],
    label: `log p of the final output: ${text(snapshots[0])}, ${text(snapshots.at(-1))}. Selected: ${text(current)}.`});
  const caption = "Log-probability of the final output during the training. The last dot is the final weights.";
  return h("figure", {class: "drawn"}, h("figcaption", {class: "small dim"}, caption), chart);
}

/** The probability of each token at each snapshot as a heat map. A click on a row selects the snapshot. */
function createTokenMap(choose) {
  let map = null, drawn = null, column = 0;
  const caption = "Probability of each token. One row per snapshot; a stronger colour is more probable. Click a row to select it.";
  const element = h("figure", {class: "drawn", hidden: true}, h("figcaption", {class: "small dim"}, caption));
  const clear = () => { element.hidden = true; };
  const show = (history, at) => {
    element.hidden = history.tokens.length < 2;
    if (element.hidden) return;
    const onpick = (q, k) => {
      column = k;
      choose(history.snapshots[q]);
    };
    const options = {...tokenMapOptions(history), selected: [at, column], onpick};
    if (drawn === history) map.update(options);
    else {
      map?.element.remove();
      [map, drawn] = [heatmap({...options, label: "Probability of each token at each snapshot"}), history];
      element.append(map.element);
    }
  };
  return {element, show, clear};
}

function tokenMapOptions({snapshots, tokens: columns}) {
  const at = (q, k) => snapshots[q].p[k] ?? NaN;
  const describe = (q, k) =>
    `${weightsName(snapshots[q].step)}, \u2068${readable(columns[k])}\u2069: ${percent(at(q, k))}`;
  return {rows: snapshots.map((each) => String(each.step ?? "final")), columns, at, describe};
}

/** One heat map that is updated, so that its axes do not move. */
function createAttentionMap(place) {
  let map = null;
  return (trace, choice, step) => {
    const weights = trace && weightsOf(trace, choice);
    if (!weights) {
      map = null;
      fill(place, trace && h("p", {class: "dim"}, "This snapshot does not have this attention layer."));
      return;
    }
    const options = {...weights, label: `${choiceTitle(choice)}, ${weightsName(step)}`, describe: cellText(weights)};
    if (map) map.update(options);
    else fill(place, truncationNote(trace.kept), (map = heatmap(options)).element);
  };
}
