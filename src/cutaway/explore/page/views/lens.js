// The logit lens: what the model would say if it stopped after each layer.

import {h, fill, percent} from "../dom.js";
import {lineChart} from "../controls.js";
import {readable} from "../tokens.js";
import {isAsked} from "./outcome.js";

const ROUNDING = 1e-4; // of the probabilities that the server gives

export const view = {id: "lens", title: "Lens", applies: (run) => isAsked(run.task), create};

/** What is finally said at each position: the tokens of the steps if there is one for each, else the last layer's. */
export function finallySaid(trace) {
  const {lens, steps} = trace;
  if (steps?.length === lens.axis.length) return steps.map((step) => step.token);
  return lens.tokens.at(-1);
}

/** Whether the favourite after a row is what is finally said. Tokens may read alike: then their probabilities tell. */
function agrees(lens, said, row, k) {
  return lens.tokens[row][k] === said[k] && Math.abs(lens.p[row][k] - lens.final[row][k]) <= ROUNDING;
}

/** For each position the first row from which on the favourite is what is finally said; the number of rows if none. */
export function settledFrom(lens, said) {
  return said.map((_, k) => {
    let row = lens.tokens.length;
    while (row > 0 && agrees(lens, said, row - 1, k)) row -= 1;
    return row;
  });
}

/** The earliest row by which at least half of the positions are settled, in a sentence. Given tokens do not count. */
export function summary(lens, said, given = 0) {
  const settled = settledFrom(lens, said).slice(given);
  const count = (row) => settled.filter((from) => from <= row).length;
  const rows = lens.rows.map((_, row) => row);
  const all = settled.length;
  const where = (each) => (each === 0 ? "Already from the embedding on" : `From ${lens.rows[each]} on`);
  if (!all) return "All of this text was given: the model itself has said nothing yet.";
  if (all === 1) {
    return settled[0] < rows.length ? `${where(settled[0])} it says what it finally says.`
      : "Not even its last layer prefers what is said here.";
  }
  const row = rows.find((each) => 2 * count(each) >= all) ?? rows.length - 1;
  const whole = rows.find((each) => count(each) === all);
  const half = `${where(row)} it says what it finally says at ${count(row)} of ${all} positions`;
  if (whole === row) return `${half}.`;
  return whole === undefined
    ? `${half}; at ${all - count(rows.length - 1)} its last layer prefers another token than the one said.`
    : `${half}, from ${lens.rows[whole]} on at all of them.`;
}

function create(context) {
  const sentence = h("p", {class: "finding", aria: {live: "polite"}});
  const place = h("div", {class: "box lens-box"});
  const detail = h("div", {class: "card detail"});
  const element = h("div", {class: "view-lens"},
    h("div", {class: "card"}, h("h2", {}, "What would it say if it stopped here?"),
      h("p", {class: "intro"},
        "After each layer the model's head reads the stream as if it were the end: its favourite ",
        "token, and how sure of it it is. The last layer is on top, as in the map; choose a cell to see how sure it ",
        "becomes of what it finally says."),
      sentence, place, legend()),
    detail);
  let drawn = null;
  let cells = [];

  function show(trace, state) {
    const lens = trace.lens;
    detail.hidden = !lens;
    if (!lens) {
      drawn = null;
      sentence.textContent = "There is no lens for this model: its layers cannot be read by its head.";
      fill(place);
      return;
    }
    const said = finallySaid(trace);
    if (drawn !== trace) {
      drawn = trace;
      sentence.textContent = summary(lens, said, trace.prompt ?? 0);
      cells = draw(trace, said);
    }
    choose(trace, said, clamped(state, lens, trace.prompt ?? 0));
  }

  function draw(trace, said) {
    const {lens} = trace;
    const given = trace.prompt ?? 0;
    const settled = settledFrom(lens, said).slice(given);
    const single = said.length === 1;
    const made = [];
    const row = (r) => h("tr", {},
      h("th", {scope: "row"}, h("span", {}, lens.rows[r]),
        !single && h("span", {class: "settled"},
          `${settled.filter((from) => from <= r).length} of ${settled.length} settled`)),
      said.map((_, k) => {
        const cell = cellOf(lens, said, r, k, pick, (event) => walk(event, r, k));
        (made[r] ??= [])[k] = cell;
        return h("td", {}, cell);
      }));
    const order = lens.rows.map((_, r) => r).reverse();
    fill(place, h("table", {class: "lens", aria: {label: "Favourite token after each layer"}},
      h("thead", {}, h("tr", {}, h("th", {scope: "col", class: "corner"}, "finally"),
        said.map((token, k) => h("th", {scope: "col", class: k < given ? "given" : null, title: k < given
          ? "given, not said by the model" : null}, h("bdi", {}, readable(token, 16)),
          axisDiffers(lens, said) && h("span", {class: "at"}, h("bdi", {}, readable(lens.axis[k], 16))))))),
      h("tbody", {}, order.map(row))));
    return made;
  }

  function pick(r, k) {
    context.state.set({lens_row: r, lens_column: k}, {replace: true});
  }

  function walk(event, r, k) {
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

  function choose(trace, said, [r, k]) {
    for (const cell of cells.flat()) {
      cell.tabIndex = -1;
      cell.classList.remove("chosen");
      cell.removeAttribute("aria-current");
    }
    const cell = cells[r][k];
    cell.tabIndex = 0;
    cell.classList.add("chosen");
    cell.setAttribute("aria-current", "true");
    fill(detail, detailOf(trace.lens, said, r, k, k < (trace.prompt ?? 0)));
  }

  return {element, show};
}

function axisDiffers(lens, said) {
  return lens.axis.some((token, k) => token !== "" && token !== said[k]);
}

function clamped(state, lens, first) {
  const inside = (value, count) => Math.max(0, Math.min(count - 1, Number.isInteger(value) ? value : count - 1));
  return [inside(state.lens_row, lens.rows.length), inside(state.lens_column ?? first, lens.axis.length)];
}

function cellOf(lens, said, r, k, pick, press) {
  const [token, p] = [lens.tokens[r][k], lens.p[r][k]];
  const settled = agrees(lens, said, r, k);
  const meaning = settled ? "what it finally says" : "not what it finally says";
  const label = `${lens.rows[r]}, position ${k + 1}: ${readable(token)}, ${percent(p)}, ${meaning}`;
  return h("button", {type: "button", class: `cell${settled ? " agrees" : ""}`, tabindex: -1, title: label,
    style: {"--p": p.toFixed(3)},
    aria: {label}, onclick: () => pick(r, k), onkeydown: press},
    h("bdi", {}, readable(token, 12)), h("span", {class: "p"}, percent(p)));
}

function detailOf(lens, said, r, k, given) {
  const wanted = given ? "what was given here" : "what it finally says";
  const token = h("bdi", {class: "word"}, readable(said[k]));
  const line = lens.final.map((row, at) => [at, row[k]]);
  const shortly = (row) => (row === 0 ? "emb." : lens.rows[row]?.replace("layer ", "L") ?? "");
  const favourite = lens.tokens[r][k];
  return [
    h("h3", {}, "How sure it becomes of ", token, lens.axis.length > 1 && h("span", {class: "dim"},
      `, position ${k + 1} of ${lens.axis.length}`)),
    h("p", {}, `After ${nameOf(lens.rows[r])} its favourite is `, h("bdi", {class: "word"}, readable(favourite)),
      ` with ${percent(lens.p[r][k])}`,
      agrees(lens, said, r, k) ? `, which is ${wanted}.` : [`, while ${wanted}, `, token.cloneNode(true),
        `, has ${percent(lens.final[r][k])}.`]),
    lineChart({lines: [{name: "p", points: line}], x: {label: "after", min: 0, max: Math.max(1, lens.rows.length - 1),
      format: (at) => (Number.isInteger(at) ? shortly(at) : "")},
      y: {label: `p of ${wanted}`, min: 0, max: 1, format: percent}, label: described(lens, said[k], k), width: 560,
        height: 210}),
  ];
}

function nameOf(row) {
  return row === "embedding" ? "the embedding" : row;
}

function described(lens, token, k) {
  const told = lens.rows.map((row, r) => `${row} ${percent(lens.final[r][k])}`);
  return `Probability of ${readable(token)} after each layer: ${told.join(", ")}`;
}

function legend() {
  return h("p", {class: "small dim legend"}, h("span", {class: "sample agrees"}, "bold, underlined"),
    " is what it finally says; ",
    h("span", {class: "sample"}, "plain"), " is something else. The darker a cell, the surer it is of its favourite.");
}
