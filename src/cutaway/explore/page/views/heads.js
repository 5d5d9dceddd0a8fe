// The role and the statistics of each attention head, measured over many sentences.
import {fill, h, percent} from "../dom.js";
import {bar} from "../controls.js";
import {headsInNounsOf, inNounsOf, nounsOf} from "../nouns.js";
import {errorLine, latest, waitingLine} from "./requests.js";

const NOTE = "A head gets a role if its attention follows a pattern much more than random attention would. "
  + "The role says where a head attends, not whether the model needs it. "
  + "To test that, switch the head off under “Experiments”.";

export const view = {id: "heads", title: "Heads", applies: (run) => run.attention.length > 0, create,
  about: ({task}) => `Where each head attends, measured over many ${nounsOf(task).inputs}. Click a head to see its `
    + "weights."};

const MEANINGS = {
  entropy: "entropy of the weights in nats; 0 means that all weight is on one token",
  distance: "average distance of the attended tokens",
  previous: "weight on the token before", next: "weight on the token after", itself: "weight on the token itself",
  first: "weight on the first token", last: "weight on the last token", punctuation: "weight on punctuation",
  rare: "weight on rare tokens", same: "weight on the same token at another position",
  continuation: "weight on the token after an earlier occurrence of the same token (induction)",
  syntax: "weight on the word that this word depends on in the syntax tree",
  alignment: "weight on the source word that is translated",
  agreement: "1 minus the alignment error rate",
};

// Headings that differ from the names in the data.
const LABELS = {rare: "rare tokens", same: "same token elsewhere", continuation: "induction",
  syntax: "syntactic parent", alignment: "aligned words", agreement: "alignment accuracy", share: "weight on its pattern"};

function create(context) {
  const place = h("div", {class: "stack"});
  const lead = h("p", {class: "lead"});
  const element = h("div", {class: "view-heads stack"}, lead, place);
  const send = latest();
  let shown = null;
  const show = async (trace, state) => {
    if (shown === state.run) return;
    shown = state.run;
    const {input, inputs} = nounsOf(trace.task);
    fill(lead, `Measured with the final weights and nothing switched off. A head opens with your own ${input}.`);
    fill(place, waitingLine(`Measuring the heads over many ${inputs} …`));
    try {
      const answer = await send((signal) => context.source.heads(state.run, signal));
      if (!answer) return;
      fill(place, content(answer, context));
      context.announce("The statistics of the heads are loaded.");
    } catch (error) {
      shown = null;
      fill(place, errorLine(error));
    }
  };
  return {element, show};
}

function content({sentences, rows: found}, context) {
  const rows = headsInNounsOf(context.run(), found);
  const kinds = context.run().attention.filter((each) => rows.some((row) => row.kind === each.kind));
  const {inputs, units} = nounsOf(context.run().task);
  const open = (row) => context.state.set({view: "attention", kind: row.kind, layer: row.layer, head: row.head});
  return [h("p", {class: "dim small"}, `Measured over ${sentences} ${inputs}. ${NOTE}`),
    kinds.map(({kind, title}) => h("section", {}, h("h3", {}, title),
      layerCards(rows.filter((row) => row.kind === kind), open))),
    h("section", {class: "card"}, h("h3", {}, "All statistics"),
      h("p", {class: "dim small"}, `Grey numbers apply to less than half of the ${units}.`), statistics(rows, context.run(), kinds, open))];
}

function layerCards(rows, open) {
  const layers = [...new Set(rows.map((row) => row.layer))];
  return layers.map((layer) => h("div", {class: "layer"}, h("h4", {}, `layer ${layer}`),
    h("div", {class: "head-cards"}, rows.filter((row) => row.layer === layer).map((row) => headCard(row, open)))));
}

function headCard(row, open) {
  return h("button", {type: "button", class: "card head-card", onclick: () => open(row)},
    h("span", {class: "small dim"}, `head ${row.head}`), h("span", {class: "role"}, row.role),
    h("span", {class: "share"}, bar(row.share), h("span", {class: "small"}, percent(row.share))),
    h("span", {class: "small dim"}, row.explanation));
}

// ---- the table ----

const COLUMNS = {head: (row) => row.order, role: (row) => row.role, share: (row) => row.share};

/** A table of all heads. The column headings are buttons that sort it, largest value first. */
function statistics(heads, run, kinds, open) {
  const position = (row) => kinds.findIndex((each) => each.kind === row.kind) * 1e6 + row.layer * 1e3 + row.head;
  const rows = heads.map((row) => ({...row, order: position(row)}));
  const names = [...new Set(rows.flatMap((row) => Object.keys(row.statistics)))];
  const values = Object.fromEntries(names.map((name) => [name, (row) => row.statistics[name] ?? null]));
  const columns = {...COLUMNS, ...values};
  const body = h("tbody"), headings = new Map();
  let by = "head", down = false;
  const draw = () => {
    fill(body, [...rows].sort(comparison(columns[by], down)).map((row) => tableRow(row, names, open)));
    for (const [name, cell] of headings) {
      cell.setAttribute("aria-sort", name !== by ? "none" : down ? "descending" : "ascending");
    }
  };
  const sortBy = (name) => {
    [by, down] = [name, by === name ? !down : !["head", "role"].includes(name)];
    draw();
  };
  for (const name of Object.keys(columns)) headings.set(name, columnHeading(name, run, () => sortBy(name)));
  draw();
  return h("div", {class: "box", tabindex: 0, role: "region", aria: {label: "All statistics"}},
    h("table", {}, h("thead", {}, h("tr", {}, [...headings.values()])), body));
}

function columnHeading(name, run, onclick) {
  const label = LABELS[name] ?? name;
  const title = MEANINGS[name] ? inNounsOf(run, MEANINGS[name]) : null;
  return h("th", {scope: "col"}, h("button", {type: "button", class: "sort", title, onclick}, label));
}

/** Missing values are last in both directions. */
function comparison(value, down) {
  return (a, b) => {
    const [left, right] = [value(a), value(b)];
    if (left === null || right === null) return (left === null) - (right === null);
    const ascending = typeof left === "string" ? left.localeCompare(right) : left - right;
    return down ? -ascending : ascending;
  };
}

/** A value that counts less than half of the queries is dimmed. */
function valueCell(row, name) {
  const counted = row.counted?.[name] ?? 1;
  const chance = row.chance?.[name];
  const title = [chance === undefined ? null : `by chance ${chance.toFixed(2)}`,
    counted < 0.995 ? `counts ${percent(counted)} of the queries` : null].filter(Boolean).join(", ");
  return h("td", {class: counted < 0.5 ? "dim" : null, title: title || null}, row.statistics[name]?.toFixed(2) ?? "–");
}

function tableRow(row, names, open) {
  const name = `${row.kind} ${row.layer}.${row.head}`;
  const link = h("button", {type: "button", class: "link", onclick: () => open(row)}, name);
  return h("tr", {}, h("th", {scope: "row"}, link), h("td", {class: "role"}, row.role), h("td", {}, percent(row.share)),
    names.map((each) => valueCell(row, each)));
}
