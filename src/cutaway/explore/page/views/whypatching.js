// Change a word: which value of the other text brings its margin back, at which place and in which part?
import {fill, h, percent} from "../dom.js";
import {bar, select} from "../controls.js";
import {heatmap} from "../heatmap.js";
import {nounsOf} from "../nouns.js";
import {readable} from "../tokens.js";
import {wordChoice} from "./changeword.js";
import {probabilityOf, signedNats} from "./outputs.js";
import {errorLine, latest, waitingLine} from "./requests.js";
import {diffLines} from "./textdiff.js";

const HINT = "Click a cell to keep its patch, and see the output.";
const COLUMNS = {self_attention: "self", cross_attention: "cross", feed_forward: "feed-forward", block: "all"};
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
      fill(place, grids(found, now, context, other));
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

function grids(found, now, context, other) {
  const kept = h("div", {aria: {live: "polite"}}), send = latest(), about = {found, ...now};
  const difference = Math.abs(found.other_margin - found.margin);
  const keep = async (map, patch, lines) => {
    for (const each of maps) if (each !== map) each.update({selected: null});
    const output = h("div", {}, waitingLine("Writing with this patch …"));
    fill(kept, h("div", {class: "kept"}, lines, output));
    try {
      const request = context.request({...patch, other, step: now.question.step});
      const written = await send((signal) => context.source.patched(request, signal));
      if (written) fill(output, outputWith(written.output, now.trace));
    } catch (error) {
      fill(output, errorLine(error));
    }
  };
  const streams = found.grids.map((grid, i) => positionMap(grid, (q, k) =>
    keep(maps[i], {place: `${grid.stack} ${grid.rows[q]}`, position: k}, patchOfToken({grid, q, k}, about))));
  const stacks = found.grids.map(({stack}) => stack), ofStack = (stack) => (stacks.length > 1 ? `The ${stack}'s` : "The");
  const parts = stacks.map((stack, i) => partMap(stack, found.parts, (part) =>
    keep(parts[i], {place: part.id}, patchOfPart(part, found))));
  const maps = [...streams, ...parts];
  const titles = ["residual stream", "heads and sub-layers"].flatMap((what) =>
    stacks.map((stack) => `${ofStack(stack)} ${what}`));
  return [
    h("p", {class: "finding"}, found.sentence),
    difference < SMALL && h("p", {class: "note"}, `The two margins differ by ${difference.toFixed(2)} nats only, so shares `
      + "are large and say little. One that changes the prediction says more."),
    maps.map(({element}, i) => h("div", {}, h("h4", {}, titles[i]), element)),
    kept,
  ];
}

const nameOf = (row) => (row === "embedding" ? "the embedding" : row);

function positionMap({stack, rows, tokens, others, shares}, onpick) {
  const columns = tokens.map((token, i) => (token === others[i] ? token : `${token}→${others[i]}`));
  const describe = (q, k) =>
    `${readable(columns[k])}, after ${nameOf(rows[q])}: ${percentage(shares[q][k])} of the difference`;
  return heatmap({rows, columns, at: (q, k) => shares[q][k], signed: true, max: 1, numbers: true, describe, onpick,
    label: `Share that each patch of the ${stack} brings back`, hint: HINT});
}

/** A row for each layer of a stack, a column for each sub-layer and head. */
function partMap(stack, all, onpick) {
  const parts = all.filter((part) => part.stack === stack);
  const rowOf = ({layer}) => `layer ${layer}`, rows = [...new Set(parts.map(rowOf))];
  const columnOf = ({part, head}) => COLUMNS[part] + (head === null ? "" : ` ${head}`);
  const order = ({part, head}) => 1000 * Object.keys(COLUMNS).indexOf(part) + (head ?? -1);
  const columns = [...new Set([...parts].sort((a, b) => order(a) - order(b)).map(columnOf))];
  const byCell = new Map(parts.map((part) => [`${rowOf(part)} ${columnOf(part)}`, part]));
  const partAt = (q, k) => byCell.get(`${rows[q]} ${columns[k]}`);
  const describe = (q, k) => {
    const part = partAt(q, k);
    return part ? `${part.title}: ${percentage(part.share)} of the difference` : "This layer has no such part.";
  };
  return heatmap({rows, columns, at: (q, k) => partAt(q, k)?.share ?? NaN, signed: true, max: 1, numbers: true,
    describe, onpick: (q, k) => partAt(q, k) && onpick(partAt(q, k)), hint: HINT,
    label: `Share that each head and sub-layer of the ${stack} brings back`});
}

/** The margin with the patch of one cell, and the probabilities of token and rival. */
function patchOfToken({grid, q, k}, {found, answer, trace, question}) {
  const row = grid.rows[q], step = trace.steps[question.step];
  const place = row === "embedding" ? nameOf(row) : `${grid.stack} ${row}`;
  const line = (name, id, p) => {
    const both = `${percent(p)}, before ${percent(probabilityOf(step, id))}`;
    return [h("bdi", {class: "chosen"}, readable(name)), bar(p), h("span", {}, both)];
  };
  return [
    h("p", {}, "With the vector of “", h("bdi", {}, readable(grid.others[k])), `” after ${place}, `
      + marginWith(grid.shares[q][k], found)),
    h("div", {class: "classes"}, line(answer.token, question.token, grid.token_p[q][k]),
      line(answer.rival, question.rival, grid.rival_p[q][k])),
  ];
}

const patchOfPart = ({title, share}, found) =>
  h("p", {}, `With the output of ${title} for the other input, ${marginWith(share, found)}`);

function marginWith(share, {margin, other_margin: otherMargin}) {
  return `the margin is ${signedNats(margin + share * (otherMargin - margin))} instead of ${signedNats(margin)} nats.`;
}

/** What the model itself answers with the patch, and the output that it had before. */
function outputWith(output, trace) {
  const {before, after, same} = diffLines(trace.output, output);
  const card = (title, text) => h("div", {class: "card side"}, h("h4", {}, title), text);
  return same ? h("p", {}, "The output stays “", h("bdi", {}, output), "”.")
    : h("div", {class: "sides"}, card("Output before", before), card("Output with this patch", after));
}

const percentage = (share) => `${(100 * share).toFixed(0)} %`.replace("-", "−").replace("−0 %", "0 %");
