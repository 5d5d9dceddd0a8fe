// The output of a model and its probabilities, in the same form for every task, so that two outputs can be compared.
import {h, percent} from "../dom.js";
import {nounsOf} from "../nouns.js";
import {diffLines} from "./textdiff.js";
import {topCandidates} from "./sampling.js";

/** Whether the model generates its output token by token, so that an output can be forced. */
export const generatesText = (task) => task === "translation" || task === "language_model";

/** "Probability of each token of OWNER's output.", for a classifier "Probability of OWNER's class." */
export function probabilityTitle(trace, owner) {
  if (trace.tags) return `Probability of ${owner} tag for each word.`;
  const {answer} = nounsOf(trace.task);
  return answer === "class" ? `Probability of ${owner} class.` : `Probability of each token of ${owner} output.`;
}

/** Whether the model makes predictions with probabilities. Embeddings have none. */
export const hasPredictions = (task) => task !== "embedding";

/** The probability of a token at a step; null if it is not among the candidates. */
export function probabilityOf(step, id) {
  if (id === step.id) return step.p;
  return topCandidates(step).find((each) => each.id === id)?.p ?? null;
}

/** {tokens, p}: the tokens of the output without the prompt, and the probability of each. */
export function outputProbabilities(trace) {
  const steps = trace.steps.slice(trace.prompt ?? 0);
  const tokens = trace.tags ? trace.tags.map((tag) => tag.word) : steps.map((step) => step.token);
  return {tokens, p: steps.map((step) => step.p)};
}

/** The fields of a request that force this output: by its tokens, or by its text for a model with other tokens. */
export function forceOutput(trace, byText = false) {
  const exact = trace.finished && !byText; // the tokens end with </s>
  return exact ? {target: null, prefix: trace.target_ids.slice(trace.prompt)} : {target: trace.output, prefix: null};
}

/** The log-probability of the output in nats. */
export function logP(trace) {
  return trace.log_p ?? sumOfLogs(outputProbabilities(trace).p);
}

/** Σ log p; null if a probability is unknown. */
export function sumOfLogs(p) {
  return p.includes(null) ? null : p.reduce((sum, value) => sum + Math.log(Math.max(value, 1e-30)), 0);
}

/** 2.3 -> "10 times": a difference of log-probabilities as a factor. */
export function times(difference) {
  const exponent = Math.abs(difference);
  if (exponent > Math.log(1e6)) return `${powerOfTen(exponent / Math.LN10)} times`;
  const factor = Math.exp(exponent);
  return `${factor < 9.95 ? factor.toFixed(factor < 1.995 ? 2 : 1) : Math.round(factor).toLocaleString("en")} times`;
}

/** 14.5 -> "3·10¹⁴" */
function powerOfTen(digits) {
  const first = Math.round(10 ** (digits % 1));
  const [lead, power] = first === 10 ? [1, Math.floor(digits) + 1] : [first, Math.floor(digits)];
  return `${lead === 1 ? "" : `${lead}·`}10${superscript(power)}`;
}

const superscript = (whole) => [...String(whole)].map((digit) => "⁰¹²³⁴⁵⁶⁷⁸⁹"[digit]).join("");

/** "becomes 12 times less probable (log p −0.50 → −3.00)"; "" if one of the two is unknown. */
export function changeOfProbability(before, after, verb = "becomes", still = "stays") {
  if (before === null || after === null) return "";
  const change = after - before;
  const values = `log p ${nats(before)} → ${nats(after)}`;
  if (Math.abs(change) < 0.015) return `${still} equally probable (${values})`;
  return `${verb} ${times(change)} ${change < 0 ? "less" : "more"} probable (${values})`;
}

/** −0.5234 -> "−0.52" */
export function nats(value) {
  if (value === null || value === undefined) return "–";
  return Math.abs(value) < 0.005 ? "0.00" : value.toFixed(2).replace("-", "−");
}

/** 0.5 -> "+0.50" */
export const signedNats = (value) => (value >= 0.005 ? `+${nats(value)}` : nats(value));

/** "log p −0.52 · probability 59 %" */
function probabilityText(trace) {
  const value = logP(trace);
  const text = value === null ? "" : `log p ${nats(value)} · probability ${percent(Math.exp(value))}`;
  return trace.finished === false ? `${text} · stopped at the maximum length` : text;
}

/** {element, same}: two outputs as cards with the differences marked; `titles` are their headings. */
export function sideBySide(titles, first, second) {
  const diff = first.tags && second.tags ? diffTags(first, second) : diffLines(first.output, second.output);
  const card = (title, trace, body) => h("div", {class: `card side${isCode(trace) ? " code" : ""}`},
    h("h4", {}, title), body, h("p", {class: "small dim"}, probabilityText(trace)));
  const cards = [card(titles[0], first, diff.before), card(titles[1], second, diff.after)];
  return {element: h("div", {class: "sides"}, cards), same: diff.same};
}

/** The output of a language model is shown in a fixed-width font, because line ends and indents matter. */
export const isCode = (trace) => trace.task === "language_model";

/** Words with their tags below; tags that differ are marked. */
function diffTags(first, second) {
  const line = (trace, other, mark) => h("div", {class: "tagged"}, trace.tags.map(({word, tag, p}, i) => {
    const differs = other.tags[i]?.tag !== tag;
    return h("span", {class: "tag", title: percent(p)}, h("bdi", {}, word),
      h(differs ? mark : "span", {class: "small"}, tag));
  }));
  const same = first.tags.map(({tag}) => tag).join(" ") === second.tags.map(({tag}) => tag).join(" ");
  return {before: line(first, second, "del"), after: line(second, first, "ins"), same};
}

/** The numbers of a chart as a table that opens on a click. */
export function numbersTable(head, rows) {
  const line = (cells) => h("tr", {}, cells.map((cell, i) => h("td", {}, i ? cell : h("bdi", {}, cell))));
  const table = h("table", {}, h("thead", {}, h("tr", {}, head.map((title) => h("th", {scope: "col"}, title)))),
    h("tbody", {}, rows.map(line)));
  return h("details", {}, h("summary", {class: "small dim"}, "Numbers"), h("div", {class: "box"}, table));
}
