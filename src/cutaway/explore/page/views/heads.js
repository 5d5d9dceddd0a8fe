// What each attention head seems to do, from watching it over many sentences.
import {fill, h, percent} from "../dom.js";
import {bar} from "../controls.js";
import {latest, trouble, waiting} from "./asking.js";

const NOTE = "A role is what a head's weight falls on more than chance would have it. It says where a head looks, "
  + "not what it is for: switch it off under “What if?” to see that.";

export const view = {id: "heads", title: "Heads", applies: (run) => run.attention.length > 0, create};

const MEANINGS = {
  entropy: "how spread out the weight is: 0 means that all of it is on one token",
  distance: "how many tokens away it looks, on average",
  previous: "weight on the token before", next: "weight on the token after", itself: "weight on the token itself",
  first: "weight on the first token", last: "weight on the last token", punctuation: "weight on punctuation",
  rare: "weight on rare tokens", same: "weight on the same token elsewhere",
  continuation: "weight on what came after the same token elsewhere", syntax: "weight on the word that it depends on",
  alignment: "weight on the word that it translates",
};

function create(context) {
  const place = h("div", {class: "stack"});
  const lead = "What each head seems to do, with the trained weights and nothing off. Pick one to see it at work.";
  const element = h("div", {class: "view-heads stack"}, h("p", {class: "lead"}, lead), place);
  const asked = latest();
  let shown = null;
  const show = async (trace, state) => {
    if (shown === state.run) return;
    shown = state.run;
    fill(place, waiting("Reads some hundred sentences first, to see where each head looks …"));
    try {
      const answer = await asked((signal) => context.source.heads(state.run, signal));
      if (!answer) return;
      fill(place, described(answer, context));
      context.announce("The heads are described.");
    } catch (error) {
      shown = null;
      fill(place, trouble(error));
    }
  };
  return {element, show};
}

function described({sentences, rows}, context) {
  const kinds = context.run().attention.filter((each) => rows.some((row) => row.kind === each.kind));
  const open = (row) => context.state.set({view: "attention", kind: row.kind, layer: row.layer, head: row.head});
  return [h("p", {class: "dim small"}, `Watched over ${sentences} sentences. ${NOTE}`),
    kinds.map(({kind, title}) => h("section", {}, h("h3", {}, title),
      layersOf(rows.filter((row) => row.kind === kind), open))),
    h("section", {class: "card"}, h("h3", {}, "All heads in numbers"), statistics(rows, kinds, open))];
}

function layersOf(rows, open) {
  const layers = [...new Set(rows.map((row) => row.layer))];
  return layers.map((layer) => h("div", {class: "layer"}, h("h4", {}, `layer ${layer}`),
    h("div", {class: "head-cards"}, rows.filter((row) => row.layer === layer).map((row) => cardOf(row, open)))));
}

function cardOf(row, open) {
  return h("button", {type: "button", class: "card head-card", onclick: () => open(row)},
    h("span", {class: "small dim"}, `head ${row.head}`), h("span", {class: "role"}, row.role),
    h("span", {class: "share"}, bar(row.share), h("span", {class: "small"}, percent(row.share))),
    h("span", {class: "small dim"}, row.explanation));
}

// ---- the table ----

const COLUMNS = {head: (row) => row.order, role: (row) => row.role, share: (row) => row.share};

/** All heads with all figures; the buttons in its head sort by a column, first the greatest. */
function statistics(given, kinds, open) {
  const place = (row) => kinds.findIndex((each) => each.kind === row.kind) * 1e6 + row.layer * 1e3 + row.head;
  const rows = given.map((row) => ({...row, order: place(row)}));
  const names = [...new Set(rows.flatMap((row) => Object.keys(row.statistics)))];
  const figures = Object.fromEntries(names.map((name) => [name, (row) => row.statistics[name] ?? null]));
  const columns = {...COLUMNS, ...figures};
  const body = h("tbody"), heads = new Map();
  let by = "head", down = false;
  const draw = () => {
    fill(body, [...rows].sort(order(columns[by], down)).map((row) => lineOf(row, names, open)));
    for (const [name, cell] of heads) {
      cell.setAttribute("aria-sort", name !== by ? "none" : down ? "descending" : "ascending");
    }
  };
  const sortBy = (name) => {
    [by, down] = [name, by === name ? !down : !["head", "role"].includes(name)];
    draw();
  };
  for (const name of Object.keys(columns)) heads.set(name, headingOf(name, () => sortBy(name)));
  draw();
  return h("div", {class: "box", tabindex: 0, role: "region", aria: {label: "All heads in numbers"}},
    h("table", {}, h("thead", {}, h("tr", {}, [...heads.values()])), body));
}

function headingOf(name, onclick) {
  return h("th", {scope: "col"}, h("button", {type: "button", class: "sort", title: MEANINGS[name], onclick}, name));
}

/** What is missing stands last, whichever way the rest is sorted. */
function order(value, down) {
  return (a, b) => {
    const [left, right] = [value(a), value(b)];
    if (left === null || right === null) return (left === null) - (right === null);
    const ascending = typeof left === "string" ? left.localeCompare(right) : left - right;
    return down ? -ascending : ascending;
  };
}

/** A share over few queries is dimmed: most had no such choice, so it says little about the head. */
function figure(row, name) {
  const counted = row.counted?.[name] ?? 1;
  const chance = row.chance?.[name];
  const told = [chance === undefined ? null : `by chance ${chance.toFixed(2)}`,
    counted < 0.995 ? `over the ${percent(counted)} of the queries that have a choice` : null].filter(Boolean).join(", ");
  return h("td", {class: counted < 0.5 ? "dim" : null, title: told || null}, row.statistics[name]?.toFixed(2) ?? "–");
}

function lineOf(row, names, open) {
  const name = `${row.kind} ${row.layer}.${row.head}`;
  const link = h("button", {type: "button", class: "link", onclick: () => open(row)}, name);
  return h("tr", {}, h("th", {scope: "row"}, link), h("td", {class: "role"}, row.role), h("td", {}, percent(row.share)),
    names.map((each) => figure(row, each)));
}
