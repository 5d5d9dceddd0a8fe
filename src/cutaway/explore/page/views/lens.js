// The logit lens: the prediction from the residual stream after each layer.

import {h, fill, percent, scrollInside} from "../dom.js";
import {lineChart} from "../controls.js";
import {nounsOf} from "../nouns.js";
import {readable} from "../tokens.js";
import {hasPredictions} from "./outputs.js";

const ROUNDING = 1e-4; // of the probabilities from the server

export const view = {id: "lens", title: "Logit lens", applies: (run) => hasPredictions(run.task), create,
  about: "What the model would answer after each layer. Click a cell to see the probabilities there."};

/** The output token at each position: the tokens of the steps, or of the last layer if the numbers differ. */
export function outputTokens(trace) {
  const {lens, steps} = trace;
  if (steps?.length === lens.axis.length) return steps.map((step) => step.token);
  return lens.tokens.at(-1);
}

/** Whether the prediction of a row is the output token. Different tokens can look the same, so compare p too. */
function agrees(lens, output, row, k) {
  return lens.tokens[row][k] === output[k] && Math.abs(lens.p[row][k] - lens.final[row][k]) <= ROUNDING;
}

/** For each position, the first row from which all predictions are the output token; the number of rows if none. */
export function settledFrom(lens, output) {
  return output.map((_, k) => {
    let row = lens.tokens.length;
    while (row > 0 && agrees(lens, output, row - 1, k)) row -= 1;
    return row;
  });
}

/** A sentence about the depth at which the output is predicted. Tokens of the prompt do not count. */
export function summary(lens, output, prompt = 0) {
  const settled = settledFrom(lens, output).slice(prompt);
  const count = (row) => settled.filter((from) => from <= row).length;
  const rows = lens.rows.map((_, row) => row);
  const all = settled.length;
  const after = (row) => `After ${nameOf(lens.rows[row])}`;
  if (!all) return "All tokens belong to the prompt. The model has generated nothing yet.";
  if (all === 1) {
    return settled[0] < rows.length ? `${after(settled[0])}, the prediction is the output.`
      : "The output is not the most probable choice of the last layer.";
  }
  const row = rows.find((each) => 2 * count(each) >= all) ?? rows.length - 1;
  const whole = rows.find((each) => count(each) === all);
  const half = `${after(row)}, the model predicts ${count(row)} of ${all} output tokens`;
  if (whole === row) return `${half}.`;
  return whole === undefined
    ? `${half}. For ${all - count(rows.length - 1)}, even the last layer prefers another token.`
    : `${half}; after ${nameOf(lens.rows[whole])}, all of them.`;
}

function create(context) {
  const finding = h("p", {class: "finding", aria: {live: "polite"}});
  const place = h("div", {class: "box lens-box"});
  const detail = h("div", {class: "card detail"});
  const intro = h("p", {class: "intro"}), legend = h("p", {class: "small dim legend"});
  const element = h("div", {class: "view-lens"},
    h("div", {class: "card"}, h("h2", {}, "Prediction after each layer"), intro, finding, place, legend), detail);
  let drawn = null;
  let answer = null; // what the model predicts: "token", "tag" or "class"
  let cells = [];

  function show(trace, state) {
    const lens = trace.lens;
    detail.hidden = !lens;
    if (!lens) {
      drawn = null;
      finding.textContent = "The logit lens does not work for this model.";
      fill(place);
      return;
    }
    const output = outputTokens(trace);
    if (drawn !== trace) {
      drawn = trace;
      finding.textContent = summary(lens, output, trace.prompt ?? 0);
      answer = nounsOf(trace.task).answer;
      fill(intro, introduction(answer));
      fill(legend, legendText(answer));
      cells = draw(trace, output);
    }
    select(trace, output, selectedCell(state, lens, trace.prompt ?? 0));
  }

  function draw(trace, output) {
    const {lens} = trace;
    const prompt = trace.prompt ?? 0;
    const settled = settledFrom(lens, output).slice(prompt);
    const created = [];
    const row = (r) => h("tr", {},
      h("th", {scope: "row"}, h("span", {}, lens.rows[r]),
        output.length > 1 && h("span", {class: "settled"},
          `${settled.filter((from) => from <= r).length} of ${settled.length} match`)),
      output.map((_, k) => {
        const cell = createCell({lens, output, answer}, r, k, pick, (event) => moveFocus(event, r, k));
        (created[r] ??= [])[k] = cell;
        return h("td", {}, cell);
      }));
    const order = lens.rows.map((_, r) => r).reverse();
    fill(place, h("table", {class: "lens", aria: {label: `Most probable ${answer} after each layer`}},
      h("thead", {}, h("tr", {}, h("th", {scope: "col", class: "corner"}, "output"),
        output.map((token, k) => h("th", {scope: "col", class: k < prompt ? "in-prompt" : null,
          title: k < prompt ? "part of the prompt" : null}, h("bdi", {}, readable(token, 16)),
          axisDiffers(lens, output) && h("span", {class: "at"}, h("bdi", {}, readable(lens.axis[k], 16))))))),
      h("tbody", {}, order.map(row))));
    return created;
  }

  function pick(r, k) {
    context.state.set({lens_row: r, lens_column: k}, {replace: true});
  }

  function moveFocus(event, r, k) {
    const to = {ArrowUp: [r + 1, k], ArrowDown: [r - 1, k], ArrowLeft: [r, k - 1], ArrowRight: [r, k + 1],
      Home: [r, 0], End: [r, cells[r].length - 1]}[event.key];
    if (!to) return;
    event.preventDefault();
    event.stopPropagation();
    const next = cells[to[0]]?.[to[1]];
    if (!next) return;
    pick(...to);
    next.focus();
  }

  function select(trace, output, [r, k]) {
    for (const cell of cells.flat()) {
      cell.tabIndex = -1;
      cell.classList.remove("chosen");
      cell.removeAttribute("aria-current");
    }
    const cell = cells[r][k];
    cell.tabIndex = 0;
    cell.classList.add("chosen");
    cell.setAttribute("aria-current", "true");
    scrollInside(place, cell);
    fill(detail, details({...trace, output, answer}, r, k));
  }

  return {element, show};
}

function axisDiffers(lens, output) {
  return lens.axis.some((token, k) => token !== "" && token !== output[k]);
}

function selectedCell(state, lens, first) {
  const inside = (value, count) => Math.max(0, Math.min(count - 1, Number.isInteger(value) ? value : count - 1));
  return [inside(state.lens_row, lens.rows.length), inside(state.lens_column ?? first, lens.axis.length)];
}

function createCell({lens, output, answer}, r, k, pick, onkeydown) {
  const [token, p] = [lens.tokens[r][k], lens.p[r][k]];
  const isOutput = agrees(lens, output, r, k);
  const meaning = `${isOutput ? "" : "not "}the output ${answer}`;
  const label = `${lens.rows[r]}, position ${k + 1}: ${readable(token)}, ${percent(p)}, ${meaning}`;
  return h("button", {type: "button", class: `cell${isOutput ? " agrees" : ""}`, tabindex: -1, title: label,
    style: {"--p": p.toFixed(3)}, onclick: () => pick(r, k), onkeydown},
    h("bdi", {}, readable(token, 12)), h("span", {class: "p"}, percent(p)));
}

function details({lens, output, answer, prompt = 0}, r, k) {
  const wanted = k < prompt ? "prompt token" : `output ${answer}`;
  const token = h("bdi", {class: "word"}, readable(output[k]));
  const line = lens.final.map((row, at) => [at, row[k]]);
  const end = Math.max(1, lens.rows.length - 1);
  const shortName = (row) => (row === 0 ? "embedding" : lens.rows[row] ?? "");
  const prediction = lens.tokens[r][k];
  return [
    h("h3", {}, "Probability of ", token, " after each layer", lens.axis.length > 1 && h("span", {class: "dim"},
      `, position ${k + 1} of ${lens.axis.length}`)),
    h("p", {}, `After ${nameOf(lens.rows[r])}, the most probable ${answer} is `,
      h("bdi", {class: "word"}, readable(prediction)), ` with ${percent(lens.p[r][k])}. `,
      agrees(lens, output, r, k) ? `It is the ${wanted}.` : [`The ${wanted} `, token.cloneNode(true),
        ` has ${percent(lens.final[r][k])}.`]),
    lineChart({lines: [{name: "p", points: line}], x: {label: "after this layer", min: -0.06 * end, max: 1.06 * end,
      format: (at) => (Number.isInteger(at) ? shortName(at) : "")},
      y: {label: "probability", min: 0, max: 1, format: percent}, label: chartText(lens, output[k], k), width: 560,
        height: 210}),
  ];
}

function nameOf(row) {
  return row === "embedding" ? "the embedding" : row;
}

function chartText(lens, token, k) {
  const values = lens.rows.map((row, r) => `${row} ${percent(lens.final[r][k])}`);
  return `Probability of ${readable(token)} after each layer: ${values.join(", ")}`;
}

function introduction(answer) {
  return ["Normally only the last layer is followed by the output head. Here the output head is applied after every ",
    `layer. Each cell shows the most probable ${answer} at that depth, and its probability. The last layer is at the `,
    "top. Click a cell for details."];
}

function legendText(answer) {
  return [h("span", {class: "sample agrees"}, "Bold and underlined"), `: the same ${answer} as the output. `,
    h("span", {class: "sample"}, "Plain"), `: another ${answer}. A stronger colour means a higher probability.`];
}
