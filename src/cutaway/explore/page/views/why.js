// Why: which tokens of the input and which parts of the model made it prefer one token to another.
import {fill, h, percent} from "../dom.js";
import {select} from "../controls.js";
import {inNounsOf, nounsOf} from "../nouns.js";
import {answerKey} from "../source.js";
import {readable, tokenRow} from "../tokens.js";
import {hasPredictions, generatesText, signedNats} from "./outputs.js";
import {errorLine, latest, waitingLine} from "./requests.js";
import {topCandidates} from "./sampling.js";
import {signedBars} from "./signedbars.js";
import {switchboard} from "./switchboard.js";
import {inputSection, quickMethods} from "./whymethods.js";
import {patchingSection} from "./whypatching.js";

const RIVALS = 8; // candidates that are buttons
const LONG = 200; // tokens; for a longer text, the page asks before it measures
const ANSWERS = 20; // kept
const SHOWN_PARTS = 14; // of a sum; the others are one row
const BOARD = {spoken: (change) => `adds ${change} to the margin`,
               title: (change) => `It adds ${change} nats: the margin minus the margin without it.`};

export const view = {id: "why", title: "Why", create,
  about: (run) => inNounsOf(run, `Why this ${nounsOf(run.task).answer} and not another? The tokens of the `
    + `${nounsOf(run.task).input} and the parts of the model that decide it.`),
  applies: (run, info) => hasPredictions(run.task) && run.switches.length > 0 && !info.recorded};

/** {step, token, rival}: what is explained, ids; null if there is nothing. By default the least certain answer. */
export function questionOf(trace, state) {
  const first = trace.prompt ?? 0, isChosen = Number.isInteger(state.why_step) && state.why_step >= first
    && state.why_step < trace.steps.length;
  const step = isChosen ? state.why_step : leastCertain(trace, first), at = trace.steps[step];
  if (!at) return null;
  const {why_token: chosenToken, why_rival: chosenRival} = state;
  const isId = (id) => isChosen && Number.isInteger(id) && id >= 0;
  const token = isId(chosenToken) ? chosenToken : at.id;
  const rival = isId(chosenRival) && chosenRival !== token ? chosenRival : at.ids.find((id) => id !== token);
  return rival === undefined ? null : {step, token, rival};
}

/** The number of the least certain step; not the end of a text, if there is another. */
function leastCertain({steps, task, finished}, first) {
  const isEnd = generatesText(task) && finished && steps.length - first > 1;
  const p = steps.slice(first, isEnd ? -1 : undefined).map((step) => step.p);
  return first + p.indexOf(Math.min(...p));
}

function create(context) {
  const send = latest(), answers = new Map();
  const question = questionSection(context), status = h("div", {class: "status"});
  const fetchAnswer = async (wanted, methods, signal) => {
    const request = {...context.request(wanted), methods}, key = answerKey("why", request);
    if (!answers.has(key)) answers.set(key, await context.source.why(request, signal));
    if (answers.size > ANSWERS) answers.delete(answers.keys().next().value);
    return answers.get(key);
  };
  let wanted = null;
  const more = (names) => fetchAnswer(wanted, names);
  const sections = [inputSection(context, more), boardSection(context), sumSection(), lensSection()];
  const patching = patchingSection(context);
  const body = h("div", {class: "stack", hidden: true}, sections[0].element, sections[1].element,
    h("div", {class: "pair"}, sections[2].element, sections[3].element), patching.element);
  const element = h("div", {class: "view-why view-experiments view-sides stack"}, question.element, status, body);
  let shown = null, agreed = null;

  const show = async (trace, state) => {
    wanted = questionOf(trace, state);
    question.show(trace, wanted);
    const key = JSON.stringify([wanted, context.request()]);
    if (!wanted) {
      [shown, body.hidden] = [null, true];
      return fill(status, h("p", {class: "note"}, nothingToExplain(trace)));
    }
    if (shown?.key === key) return shown.answer && draw(trace);
    shown = {key, answer: null};
    const tokens = trace.source.length + trace.target_in.length;
    if (tokens > LONG && agreed !== trace.text) {
      body.hidden = true;
      question.answer(null);
      return fill(status, askFirst(tokens, () => {
        [agreed, shown] = [trace.text, null];
        show(trace, context.state.read());
      }));
    }
    await ask(trace, shown);
  };
  const ask = async (trace, mine) => {
    fill(status, waitingLine("Measuring what the margin depends on …"));
    body.classList.add("stale");
    try {
      const answer = await send((signal) => fetchAnswer(wanted, quickMethods(context.source), signal));
      if (!answer || shown !== mine) return;
      mine.answer = answer;
      fill(status);
      body.hidden = false;
      draw(trace);
      context.announce(answer.sentence);
    } catch (error) {
      body.hidden = true;
      fill(status, errorLine(error));
    } finally {
      if (shown === mine) body.classList.remove("stale");
    }
  };
  const draw = (trace) => {
    question.answer(shown.answer);
    for (const section of sections) section.show(shown.answer, trace, wanted);
    patching.show(wanted, shown.answer, trace);
  };
  return {element, show};
}

function nothingToExplain({task, steps, prompt}) {
  if (steps.length <= (prompt ?? 0)) return "The model has generated nothing, so there is no token to explain.";
  return `The model has only one ${nounsOf(task).answer} to choose from, so there is nothing to explain.`;
}

function askFirst(tokens, go) {
  return h("div", {class: "card"},
    h("p", {}, `Input and output have ${tokens} tokens. The model runs once without each of them, which can take long.`),
    h("button", {type: "button", class: "button", onclick: go}, "Measure"));
}

// ---- the question ----

function questionSection(context) {
  const title = h("h2"), finding = h("p", {class: "finding"}), place = h("div", {class: "stack"});
  const element = h("section", {class: "card"}, title, finding, place);
  let drawn = null;
  const show = (trace, question) => {
    const wanted = JSON.stringify([question, context.request()]);
    if (drawn?.trace === trace && drawn.wanted === wanted) return;
    drawn = {trace, wanted};
    place.hidden = title.hidden = !question;
    if (!question) return fill(finding);
    fill(title, "Why this ", nounsOf(trace.task).answer, "?");
    const group = groupOf(document.activeElement, place);
    fill(place, stepRow(trace, question, context), rivalRow(trace, question, context), key(trace, question),
      otherOutput(trace, question, context));
    if (group) place.querySelector(group)?.focus();
  };
  const answer = (found) => {
    finding.hidden = !found;
    if (!found) return;
    fill(title, "Why “", h("bdi", {class: "for-text"}, readable(found.token)), "” and not “",
      h("bdi", {class: "against-text"}, readable(found.rival)), "”?");
    fill(finding, found.sentence);
  };
  return {element, show, answer};
}

/** A selector of the control that gets the focus after a choice; null if none of this place had it. */
function groupOf(element, place) {
  if (!place.contains(element)) return null;
  if (element.matches("select")) return "select";
  return `[aria-label="${element.parentElement.getAttribute("aria-label")}"] .selected`;
}

/** The predictions as buttons. */
function stepRow(trace, {step}, context) {
  const first = trace.prompt ?? 0, steps = trace.steps.slice(first);
  if (steps.length < 2) return null;
  const names = trace.tags ? trace.tags.map(({word, tag}) => `${word} → ${tag}`) : steps.map(({token}) => token);
  const pick = (i) => context.state.set({why_step: first + i, why_token: null, why_rival: null});
  const row = tokenRow(names, {p: steps.map(({p}) => p), selected: step - first, onpick: pick, label: "Predictions",
    title: (i) => `probability ${percent(steps[i].p)}`});
  return labelled(`Explain this ${nounsOf(trace.task).answer}`, row);
}

/** The other candidates at this step: the most probable ones as buttons, all that have a name in a list. */
function rivalRow(trace, {step, token, rival}, context) {
  const candidates = topCandidates(trace.steps[step]).filter(({id}) => id !== token);
  const pick = (id) => context.state.set({why_step: step, why_token: token, why_rival: id});
  const shown = candidates.slice(0, RIVALS);
  const row = tokenRow(shown.map((each) => each.token), {onpick: (i) => pick(shown[i].id),
    selected: shown.findIndex(({id}) => id === rival), label: "Rivals",
    title: (i) => `probability ${percent(shown[i].p)}`});
  const options = candidates.map(({id, token: name, p}) => ({value: id, label: `${readable(name)}  ${percent(p)}`}));
  const more = candidates.length > RIVALS
    && select({label: "or another", options, value: rival, onchange: (id) => pick(id)}).element;
  return labelled("and not", h("div", {class: "row rivals"}, row, more));
}

/** After a part was switched off, the output may have another token here than the one that is explained. */
function otherOutput(trace, {step, token}, context) {
  const answer = trace.steps[step];
  if (answer.id === token) return null;
  const explain = () => context.state.set({why_step: step, why_token: null, why_rival: null});
  return h("p", {class: "small"}, "The output has “", h("bdi", {}, readable(answer.token)), "” here. ",
    h("button", {type: "button", class: "button link", onclick: explain}, "Explain it"));
}

function labelled(text, element) {
  return h("div", {class: "labelled"}, h("span", {class: "control-label"}, text), element);
}

/** The meaning of the two colours in this view. */
function key(trace, {step, token, rival}) {
  const {ids, tokens, id: answer, token: given} = trace.steps[step];
  const name = (id) => h("bdi", {}, readable(id === answer ? given : tokens[ids.indexOf(id)] ?? `token ${id}`));
  return h("p", {class: "small dim colour-key"}, h("span", {class: "swatch for"}), " + speaks for “", name(token),
    "”   ", h("span", {class: "swatch against"}), " − speaks for “", name(rival),
    "”. The margin is the difference of their logits.");
}

// ---- heads and sub-layers ----

function boardSection(context) {
  const place = h("div");
  const element = h("section", {class: "card"}, h("h3", {}, "Which heads and sub-layers?"),
    h("p", {class: "dim small"}, "How much each part adds to the margin: the margin minus the margin without it. "
      + "Click a part to switch it off, and see the output change."), place);
  let board = null, drawn = null, now = null;
  const change = (off) => context.state.set({off, why_step: now.step, why_token: now.token, why_rival: now.rival});
  const show = ({parts}, trace, question) => {
    now = question;
    if (drawn !== context.run()) {
      drawn = context.run();
      board = switchboard(drawn.switches, change, () => true, BOARD);
      fill(place, board.element);
    }
    board.update(context.state.read().off, new Map(parts.map(({id, effect}) => [id, -effect])));
  };
  return {element, show};
}

// ---- the sum of direct contributions ----

function sumSection() {
  const place = h("div");
  const element = h("section", {class: "card"}, h("h3", {}, "The margin as a sum"), place);
  const show = (answer) => fill(place, answer.direct ? waterfall(answer) : noSum(answer));
  return {element, show};
}

function noSum({no_direct: reason}) {
  return h("p", {class: "note"}, `There is no such sum: ${reason}`);
}

/** From 0 to the margin. Small contributions are one row. */
function waterfall({direct, parts, margin}) {
  const titles = new Map(parts.map(({id, title}) => [id, title]));
  const all = Object.entries(direct).filter(([id]) => id !== "biases");
  const least = all.map(([, value]) => Math.abs(value)).sort((a, b) => b - a)[SHOWN_PARTS - 1] ?? 0;
  const large = all.filter(([id, value]) => id === "embedding" || Math.abs(value) >= least);
  const small = all.filter((each) => !large.includes(each)), total = small.reduce((sum, [, value]) => sum + value, 0);
  const terms = [...large.map(([id, value]) => [titles.get(id) ?? id, value]),
    ...(small.length ? [[`${small.length} others`, total]] : []), ["biases", direct.biases]];
  let reached = 0;
  const rows = terms.map(([label, value]) => ({label, from: reached, to: reached += value, text: signedNats(value)}));
  return [h("p", {class: "dim small"}, "What each part adds to the two logits directly, from the first layer to the "
    + "last. What later parts make of it counts as theirs."),
    signedBars({label: "Direct contributions in nats",
      rows: [...rows, {label: "margin", to: margin, text: signedNats(margin), isTotal: true}]})];
}

// ---- the margin after each sub-layer ----

function lensSection() {
  const place = h("div");
  const element = h("section", {class: "card"}, h("h3", {}, "The margin after each sub-layer"),
    h("p", {class: "dim small"}, "The output head reads the residual stream early, as in the logit lens."), place);
  const row = ([label, to]) => ({label, to, text: signedNats(to), isTotal: label === "output"});
  const show = ({lens}) =>
    fill(place, signedBars({label: "Margin after each sub-layer in nats", rows: lens.map(row)}));
  return {element, show};
}
