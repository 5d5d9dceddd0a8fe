// One sentence through the whole training: what the model wrote at each kept step, how sure it was, where it looked.
import {fill, h, percent} from "../dom.js";
import {lineChart} from "../controls.js";
import {heatmap} from "../heatmap.js";
import {readable, tokenRow} from "../tokens.js";
import {latest, trouble, waiting} from "./asking.js";
import {diffed} from "./difference.js";
import {cellOf, choiceOf, choiceTitle, headChoice, weightsOf} from "./headchoice.js";
import {nats, signedNats, writes} from "./outcome.js";
import {keptSentence} from "./kept.js";
import {scrubBar} from "./scrub.js";

const KEPT = "kept"; // in the state: the weights that were kept in the end
const INTRODUCTION = "How it learnt: the same input, and the model as it was at each kept step of its training.";

export const view = {id: "timelapse", title: "Time-lapse", create,
                     applies: (run) => run.snapshots.length > 0 && run.attention.length > 0};

const momentOf = (step) => (step === null ? "the trained weights" : `step ${step.toLocaleString("en")}`);

function create(context) {
  const choose = (line) => context.state.set({step: line.step ?? KEPT}, {replace: true});
  const scrub = scrubBar(choose, (line) => momentOf(line.step)), choice = headChoice(context);
  const [wrote, sure, curved, looked] = ["wrote", "sure", "curved", "looked"].map((name) => h("div", {class: name}));
  const learnt = learntMap(choose), attention = standingMap(looked);
  const asked = latest();
  let ofQuestion = null, film = null; // film: {task, source, target_in, target_out, steps, answers, lines}

  const show = (trace, state) => {
    const request = context.request({snapshot: null});
    choice.show(context.run(), state);
    if (JSON.stringify(request) !== ofQuestion) {
      ofQuestion = JSON.stringify(request);
      load(request, trace);
    } else draw();
  };
  const load = async (request, trace) => {
    const mine = film = {lines: [], steps: [], task: trace.task};
    clear(waiting("Loads the weights of each kept step …"));
    const take = (line) => {
      if (film !== mine) return;
      if (line.steps) Object.assign(film, line, {answers: answersOf(trace, line)});
      else film.lines.push({...line, p: line.p.slice(-film.answers.length)});
      draw();
    };
    try {
      if (await asked((signal) => context.source.snapshots(request, take, signal))) {
        context.announce(`${film.lines.length} moments of the training are here.`);
      }
    } catch (error) {
      if (film !== mine) return;
      ofQuestion = null; // so that coming back asks again
      clear(trouble(error));
    }
  };
  const draw = () => {
    if (!film?.lines.length) return;
    const {step, snapshot} = context.state.read();
    const at = momentAt(film, step ?? snapshot), line = film.lines[at];
    scrub.show(film.lines, at, film.steps.length - film.lines.length);
    fill(wrote, writtenThen(film, line));
    fill(sure, sureThen(film, at));
    fill(curved, curve(film, line));
    learnt.show(film, at);
    attention({...film, attention: line.attention, kept: line.kept}, choiceOf(context.run(), context.state.read()), line.step);
  };
  const clear = (message) => {
    scrub.clear();
    [sure, curved].forEach((place) => fill(place));
    learnt.clear();
    attention(null);
    fill(wrote, message);
  };
  const card = (title, ...children) => h("section", {class: "card"}, h("h3", {}, title), children);
  const element = h("div", {class: "view-timelapse view-sides stack"},
    h("p", {class: "lead"}, INTRODUCTION), scrub.element,
    card("What it said then", wrote),
    card("How likely the final output was", sure, h("div", {class: "pair"}, curved, learnt.element)),
    card("Where it looked", choice.element, looked));
  return {element, show, key: scrub.key};
}

/** What stands over each probability, from the film's first line. A prompt was given: it is none of the answers. */
function answersOf(trace, line) {
  if (writes(trace)) return line.target_out.slice(trace.prompt);
  if (trace.tags) return trace.tags.map((tag) => tag.word);
  return trace.hidden.length ? trace.hidden.map((at) => `token ${at}`) : ["the answer"];
}

/** Which line is shown: the one of this step, else the newest that has come. */
function momentAt(film, step) {
  const at = film.lines.findIndex((line) => (line.step ?? KEPT) === step);
  return at < 0 ? film.lines.length - 1 : at;
}

// ---- one moment ----

function writtenThen(film, line) {
  const final = film.lines.at(-1).step === null ? film.lines.at(-1) : line;
  const {before, after, same} = diffed(line.output, final.output);
  const side = (title, text, mark) => h("div", {class: `card side${film.task === "language_model" ? " code" : ""}`},
    h("h4", {}, title, mark && h("span", {class: "right"}, " ✓ as in the end")), text);
  return h("div", {class: "sides"}, side(momentOf(line.step), before, same && line !== final),
    !same && side("in the end", after));
}

function sureThen({lines, answers: tokens}, at) {
  const line = lines[at], before = lines[at - 1];
  const change = before ? ` · ${signedNats(line.log_p - before.log_p)} since the moment before` : "";
  const chance = line.log_p === null ? "–" : percent(Math.exp(line.log_p));
  return [tokens.length > 1 && tokenRow(tokens, {p: line.p, label: "The final output, by how likely each token was"}),
    h("p", {class: "small dim"}, `log p ${nats(line.log_p)} · probability ${chance}${change}`)];
}

/** log p over the steps; the trained weights stand at the right end, as far off as steps are apart. */
function curve({lines}, line) {
  if (lines.length < 2) return null;
  const last = lines.at(-2).step, apart = last - (lines.at(-3)?.step ?? 0);
  const points = lines.map((each) => [each.step ?? last + apart, each.log_p]);
  const x = points[lines.indexOf(line)][0], least = Math.min(...points.map(([, y]) => y));
  const told = (each) => `${nats(each.log_p)} at ${momentOf(each.step)}`;
  const shown = {name: "shown", points: [[x, least], [x, line.log_p]], style: "second dashed"};
  const drawing = lineChart({height: 250, width: 440, x: "step", y: {label: "log p", max: 0},
    lines: [{name: "log p", points, style: "first"}, shown],
    label: `log p of the final output: ${told(lines[0])}, ${told(lines.at(-1))}. Shown: ${told(line)}.`});
  const caption = "log p of the final output over the training. Dashed: the moment shown. Last dot: after training.";
  return h("figure", {class: "drawn"}, h("figcaption", {class: "small dim"}, caption), drawing);
}

/** When was each token learnt? Moments down, tokens across, as dark as it was likely. Picking a row goes there. */
function learntMap(choose) {
  let map = null, ofFilm = null, column = 0;
  const caption = "When it learnt each token: a row a moment, as dark as the token was likely. Pick a row to go there.";
  const element = h("figure", {class: "drawn", hidden: true}, h("figcaption", {class: "small dim"}, caption));
  const clear = () => { element.hidden = true; };
  const show = (film, at) => {
    element.hidden = film.answers.length < 2;
    if (element.hidden) return;
    const onpick = (q, k) => {
      column = k;
      choose(film.lines[q]);
    };
    const options = {...learning(film), selected: [at, column], onpick};
    if (ofFilm === film) map.update(options);
    else {
      map?.element.remove();
      [map, ofFilm] = [heatmap({...options, label: "How likely each token was at each moment"}), film];
      element.append(map.element);
    }
  };
  return {element, show, clear};
}

function learning({lines, answers: columns}) {
  const at = (q, k) => lines[q].p[k] ?? NaN;
  return {rows: lines.map((line) => String(line.step ?? "trained")), columns, at,
          describe: (q, k) => `${momentOf(lines[q].step)}, \u2068${readable(columns[k])}\u2069: ${percent(at(q, k))}`};
}

/** One heatmap that is drawn anew, so that its axes stand still while the weights move. */
function standingMap(place) {
  let map = null;
  return (trace, choice, step) => {
    const weights = trace && weightsOf(trace, choice);
    if (!weights) {
      map = null;
      fill(place, trace && h("p", {class: "dim"}, "This moment has no such attention."));
      return;
    }
    const options = {...weights, label: `${choiceTitle(choice)}, ${momentOf(step)}`, describe: cellOf(weights)};
    if (map) map.update(options);
    else fill(place, keptSentence(trace.kept), (map = heatmap(options)).element);
  };
}
