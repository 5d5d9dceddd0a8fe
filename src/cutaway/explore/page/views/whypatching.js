// Change a word: which value of the other text brings its margin back, at which place and in which part?
import {fill, h, percent} from "../dom.js";
import {bar, select} from "../controls.js";
import {heatmap} from "../heatmap.js";
import {nounsOf} from "../nouns.js";
import {readable} from "../tokens.js";
import {wordChoice} from "./changeword.js";
import {probabilityOf, signedNats} from "./outputs.js";
import {errorLine, latest, waitingLine} from "./requests.js";
import {signedBars} from "./signedbars.js";

const MOST_PARTS = 10; // heads and sub-layers that are listed
const SMALL = 0.5; // nats; shares of a smaller difference say little
const hint = (input, how) => `Another ${input} gives another margin. ${how} Then the values of the other ${input} are put `
  + `into the run of this ${input}, one at a time. The share says how much of the difference comes back: 100 % means that `
  + "this value alone carries it.";

/** {element, show(question, answer, trace)} */
export function patchingSection(context) {
  const place = h("div", {class: "stack"}), form = h("div"), send = latest();
  let now = null, texts = null;
  const words = wordChoice({button: "Patch", run: (other) => run(other)});
  const title = h("h3"), about = h("p", {class: "dim small"});
  const element = h("section", {class: "card"}, title, about, form, place);
  const show = (question, answer, trace) => {
    const wanted = JSON.stringify([question, trace.text, context.request()]);
    if (now?.wanted === wanted) return;
    now = {wanted, question, answer, trace};
    send(async () => null);
    fill(place);
    if (texts !== context.run()) drawForm(trace);
    if (!trace.image) words.show(trace.text);
  };
  const drawForm = ({task, image}) => {
    const {input} = nounsOf(task);
    texts = context.run();
    fill(title, `Where is the difference to another ${input}?`);
    fill(about, hint(input, image ? "Choose one." : "Click a word, and replace it with one that has as many tokens."));
    fill(form, image ? imageChoice(context, run) : words.element);
  };
  const run = async (other) => {
    const {question, trace} = now;
    fill(place, waitingLine("Patching every value, one after the other …"));
    try {
      const found = await send((signal) => context.source.patching(context.request({...question, other}), signal));
      if (!found) return;
      fill(place, grids(found, now, context.run()));
      context.announce(found.sentence);
    } catch (error) {
      fill(place, errorLine(error));
    }
  };
  return {element, show};
}

/** Another image instead of another word. */
function imageChoice(context, run) {
  const options = context.run().examples.map(({number, label}) =>
    ({value: String(number), label: `image ${number}: ${label}`}));
  let chosen = options[1]?.value ?? options[0]?.value;
  const box = select({label: "other image", options, value: chosen, onchange: (value) => { chosen = value; }});
  return h("div", {class: "row"}, box.element,
    h("button", {type: "button", class: "button", onclick: () => run(chosen)}, "Patch"));
}

function grids(found, {answer, trace, question}, run) {
  const kept = h("div", {aria: {live: "polite"}}), difference = Math.abs(found.other_margin - found.margin);
  const maps = found.grids.map((grid, i) => ({grid, map: positionMap(grid, (q, k) => {
    maps.forEach(({map}, j) => j !== i && map.update({selected: null}));
    fill(kept, keptPatch({grid, q, k}, {found, answer, step: trace.steps[question.step], question}));
  })}));
  return [
    h("p", {class: "finding"}, found.sentence),
    difference < SMALL && h("p", {class: "note"}, `The two margins differ by ${difference.toFixed(2)} nats only, so shares `
      + "are large and say little. One that changes the prediction says more."),
    maps.map(({grid, map}) => h("div", {}, h("h4", {}, titleOf(grid, found.grids.length)), map.element)),
    kept,
    partShares(found, run),
  ];
}

const titleOf = ({stack}, count) => (count > 1 ? `The ${stack}'s residual stream` : "The residual stream");
const nameOf = (row) => (row === "embedding" ? "the embedding" : row);

function positionMap({stack, rows, tokens, others, shares}, onpick) {
  const columns = tokens.map((token, i) => (token === others[i] ? token : `${token}→${others[i]}`));
  const describe = (q, k) =>
    `${readable(columns[k])}, after ${nameOf(rows[q])}: ${percentage(shares[q][k])} of the difference`;
  return heatmap({rows, columns, at: (q, k) => shares[q][k], signed: true, max: 1, numbers: true, describe, onpick,
    label: `Share that each patch of the ${stack} brings back`, hint: "Click a cell to keep its patch."});
}

/** The probabilities of token and rival with the patch of one cell. */
function keptPatch({grid, q, k}, {found, answer, step, question}) {
  const margin = found.margin + grid.shares[q][k] * (found.other_margin - found.margin), row = grid.rows[q];
  const place = row === "embedding" ? nameOf(row) : `${grid.stack} ${row}`;
  const line = (name, id, p) => {
    const both = `${percent(p)}, before ${percent(probabilityOf(step, id))}`;
    return [h("bdi", {class: "chosen"}, readable(name)), bar(p), h("span", {}, both)];
  };
  return h("div", {class: "kept"},
    h("p", {}, "With the vector of “", h("bdi", {}, readable(grid.others[k])), `” after ${place}, the margin is `
      + `${signedNats(margin)} instead of ${signedNats(found.margin)} nats.`),
    h("div", {class: "classes"}, line(answer.token, question.token, grid.token_p[q][k]),
      line(answer.rival, question.rival, grid.rival_p[q][k])));
}

function partShares({parts, titles}) {
  const strongest = Object.entries(parts).sort(([, a], [, b]) => Math.abs(b) - Math.abs(a)).slice(0, MOST_PARTS);
  return h("div", {}, h("h4", {}, "Heads and sub-layers with the largest shares"),
    signedBars({label: "Share that each part brings back",
      rows: strongest.map(([id, share]) => ({label: titles[id], to: share, text: percentage(share)}))}));
}

const percentage = (share) => `${(100 * share).toFixed(0)} %`.replace("-", "−").replace("−0 %", "0 %");
