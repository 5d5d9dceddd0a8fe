// What a model said, told so that two answers can be compared, whatever the task.
import {h, percent} from "../dom.js";
import {diffed} from "./difference.js";
import {likeliest} from "./sampling.js";

/** Does the model write its answer token by token, so that an answer can be forced on it? */
export const writes = (trace) => trace.task === "translation" || trace.task === "language_model";

/** Does it answer at all? A model that makes vectors is asked nothing that could be right or wrong. */
export const isAsked = (task) => task !== "embedding";

/** p of one token of the vocabulary at a step; null if it is not among those listed. */
export function probabilityOf(step, id) {
  if (id === step.id) return step.p;
  return likeliest(step).find((each) => each.id === id)?.p ?? null;
}

/** What a model said itself (a prompt was given), and how likely each token of it was: {tokens, p}. */
export function chances(trace) {
  const steps = trace.steps.slice(trace.prompt ?? 0);
  const tokens = trace.tags ? trace.tags.map((tag) => tag.word) : steps.map((step) => step.token);
  return {tokens, p: steps.map((step) => step.p)};
}

/** What a request must say so that the answer is this one again: exactly its tokens, or (for other models) its text. */
export function forcing(trace, byText = false) {
  const exact = trace.finished && !byText; // </s> is among the tokens, so that nothing comes after them
  return exact ? {target: null, prefix: trace.target_ids.slice(trace.prompt)} : {target: trace.output, prefix: null};
}

/** The log probability of an answer in nats, from its tokens where the trace does not say. */
export function logP(trace) {
  return trace.log_p ?? sumOfLogs(chances(trace).p);
}

/** null if one of them is not known. */
export function sumOfLogs(p) {
  return p.includes(null) ? null : p.reduce((sum, value) => sum + Math.log(Math.max(value, 1e-30)), 0);
}

/** 2.3 -> "10 times": what a difference of log probabilities is as a factor. */
export function times(difference) {
  const exponent = Math.abs(difference);
  if (exponent > Math.log(1e6)) return `${inTens(exponent / Math.LN10)} times`;
  const factor = Math.exp(exponent);
  return `${factor < 9.95 ? factor.toFixed(factor < 1.995 ? 2 : 1) : Math.round(factor).toLocaleString("en")} times`;
}

/** 14.5 -> "3·10¹⁴" */
function inTens(digits) {
  const first = Math.round(10 ** (digits % 1));
  const [lead, power] = first === 10 ? [1, Math.floor(digits) + 1] : [first, Math.floor(digits)];
  return `${lead === 1 ? "" : `${lead}·`}10${superscript(power)}`;
}

const superscript = (whole) => [...String(whole)].map((digit) => "⁰¹²³⁴⁵⁶⁷⁸⁹"[digit]).join("");

/** "becomes 12 times less likely (log p −0.50 → −3.00)"; "" if one of the two is not known. */
export function likelier(before, after, verb = "becomes", still = "stays") {
  if (before === null || after === null) return "";
  const change = after - before;
  const told = `log p ${nats(before)} → ${nats(after)}`;
  if (Math.abs(change) < 0.015) return `${still} as likely (${told})`;
  return `${verb} ${times(change)} ${change < 0 ? "less" : "more"} likely (${told})`;
}

/** −0.5234 -> "−0.52" */
export function nats(value) {
  if (value === null || value === undefined) return "–";
  return Math.abs(value) < 0.005 ? "0.00" : value.toFixed(2).replace("-", "−");
}

/** 0.5 -> "+0.50" */
export const signedNats = (value) => (value >= 0.005 ? `+${nats(value)}` : nats(value));

/** "log p −0.52 · probability 59 %" */
function howLikely(trace) {
  const value = logP(trace);
  const told = value === null ? "" : `log p ${nats(value)} · probability ${percent(Math.exp(value))}`;
  return trace.finished === false ? `${told} · cut off at the greatest length` : told;
}

/** Two answers, a card each, with what differs marked; `titles` are their headings. {element, same} */
export function sideBySide(titles, first, second) {
  const told = first.tags && second.tags ? tagsOf(first, second) : diffed(first.output, second.output);
  const card = (title, trace, body) => h("div", {class: `card side${isCode(trace) ? " code" : ""}`},
    h("h4", {}, title), body, h("p", {class: "small dim"}, howLikely(trace)));
  const cards = [card(titles[0], first, told.before), card(titles[1], second, told.after)];
  return {element: h("div", {class: "sides"}, cards), same: told.same};
}

/** What a language model goes on with is shown in fixed width: line ends and indents count. */
export const isCode = (trace) => trace.task === "language_model";

/** Words with the tag under each; a tag that the other side does not have is marked. */
function tagsOf(first, second) {
  const line = (trace, other, mark) => h("div", {class: "tagged"}, trace.tags.map(({word, tag, p}, i) => {
    const differs = other.tags[i]?.tag !== tag;
    return h("span", {class: "tag", title: percent(p)}, h("bdi", {}, word),
      h(differs ? mark : "span", {class: "small"}, tag));
  }));
  const same = first.tags.map(({tag}) => tag).join(" ") === second.tags.map(({tag}) => tag).join(" ");
  return {before: line(first, second, "del"), after: line(second, first, "ins"), same};
}

/** The numbers of a drawing as a table that opens on request. */
export function asNumbers(head, rows) {
  const line = (cells) => h("tr", {}, cells.map((cell, i) => h("td", {}, i ? cell : h("bdi", {}, cell))));
  const table = h("table", {}, h("thead", {}, h("tr", {}, head.map((title) => h("th", {scope: "col"}, title)))),
    h("tbody", {}, rows.map(line)));
  return h("details", {}, h("summary", {class: "small dim"}, "as numbers"), h("div", {class: "box"}, table));
}
