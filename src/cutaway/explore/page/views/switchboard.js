// The board of switches: a row a layer, a button for each head and sub-layer, tinted by what each one is worth.
//
//     Decoder   layer 0   [self-attention] [0] [1] [2] [3]   [cross-attention] [0] [1] [2] [3]   [feed-forward]
import {fill, h} from "../dom.js";
import {signedNats, times} from "./outcome.js";

const PARTS = {self_attention: "self-attention", cross_attention: "cross-attention", feed_forward: "feed-forward",
               block: "whole block"};

const LEAST = 0.1; // nats that get the full tint, if nothing is worth more

/** {element, update(off, worth)}: `worth` maps a switch's id to nats, or is null. onchange(off): all that are off. */
export function switchboard(switches, onchange) {
  const board = {switches, buttons: new Map(), presets: [], off: new Set()};
  board.change = (ids, switchedOff) => {
    const next = new Set(board.off);
    ids.forEach((id) => (switchedOff ? next.add(id) : next.delete(id)));
    onchange(switches.map((each) => each.id).filter((id) => next.has(id)));
  };
  const allOn = h("button", {type: "button", class: "button quiet", onclick: () => onchange([])}, "switch all on");
  const element = h("div", {class: "board", onkeydown: walk},
    h("div", {class: "row presets", role: "group", aria: {label: "Several at once"}},
      presetsOf(switches).map((preset) => presetButton(board, preset)), allOn),
    [...new Set(switches.map((each) => each.stack))].map((stack) => stackOf(board, stack)));
  const update = (ids, worth) => {
    board.off = new Set(ids);
    const most = Math.max(LEAST, ...[...worth?.values() ?? []].map(Math.abs));
    for (const each of switches) {
      dress(board.buttons.get(each.id), each, board.off.has(each.id), worth?.get(each.id) ?? null, most);
    }
    board.presets.forEach((show) => show());
    allOn.disabled = !ids.length;
  };
  return {element, update};
}

/** What can be switched off together: [{label, ids}]. */
function presetsOf(switches) {
  const parts = ["cross_attention", "self_attention", "feed_forward"];
  const presets = parts.map((part) => ({label: `all ${PARTS[part]}`, ids: wholesOf(switches, part)}));
  return presets.filter((preset) => preset.ids.length > 1);
}

/** The sub-layers of a part, or its heads where the sub-layer itself has no switch. */
function wholesOf(switches, part) {
  const found = switches.filter((each) => each.part === part);
  const whole = found.filter((each) => each.kind === "sublayer");
  return (whole.length ? whole : found).map((each) => each.id);
}

function presetButton(board, {label, ids, spoken = label}) {
  const done = () => ids.every((id) => board.off.has(id));
  const button = h("button", {type: "button", class: "button quiet preset", aria: {label: `switch off ${spoken}`},
                              onclick: () => board.change(ids, !done())}, label);
  board.presets.push(() => button.setAttribute("aria-pressed", String(done())));
  return button;
}

function stackOf(board, stack) {
  const layers = new Set(board.switches.filter((each) => each.stack === stack).map((each) => each.layer));
  return h("section", {class: "board-stack"}, h("h4", {}, stack[0].toUpperCase() + stack.slice(1)),
    [...layers].map((layer) => layerOf(board, stack, layer)));
}

function layerOf(board, stack, layer) {
  const here = board.switches.filter((each) => each.stack === stack && each.layer === layer);
  const parts = [...new Set(here.map((each) => each.part))];
  const heads = here.filter((each) => each.kind === "head").map((each) => each.id);
  const preset = {label: "all heads", spoken: `all heads of ${stack} layer ${layer}`, ids: heads};
  const row = h("div", {class: "board-layer", role: "toolbar", aria: {label: `${stack}, layer ${layer}`}},
    h("span", {class: "layer-name"}, `layer ${layer}`),
    parts.map((part) => partOf(board, here.filter((each) => each.part === part))),
    heads.length > 1 && presetButton(board, preset));
  row.querySelectorAll("button").forEach((button, i) => { button.tabIndex = i ? -1 : 0; });
  return row;
}

/** The whole first, then its heads. */
function partOf(board, switches) {
  const sorted = [...switches].sort((a, b) => (a.head ?? -1) - (b.head ?? -1));
  return h("div", {class: "part"}, sorted.map((each) => {
    const name = each.kind === "head" ? each.head : PARTS[each.part] ?? each.part;
    const button = h("button", {type: "button", class: `switch ${each.kind}`, data: {id: each.id},
                                onclick: () => board.change([each.id], !board.off.has(each.id))},
      h("span", {class: "switch-name"}, name), h("span", {class: "worth"}));
    board.buttons.set(each.id, button);
    return button;
  }));
}

/** How one switch looks now: off or on, and how much the output loses without it. */
function dress(button, {title}, isOff, value, most) {
  const told = value === null ? "" : signedNats(value);
  button.setAttribute("aria-pressed", String(isOff));
  button.setAttribute("aria-label", `switch off ${title}${told && `, log p ${told}`}`);
  button.title = told ? `${title}: alone switched off, log p ${told} nats` : title;
  button.classList.toggle("gains", value > 0);
  const share = Math.sqrt(Math.abs(value ?? 0) / most); // the root: beside one giant the others still differ
  button.style.setProperty("--strength", value === null ? "0%" : `${Math.round(4 + 66 * share)}%`);
  fill(button.querySelector(".worth"), told);
}

/** Arrow keys go along a layer, and up and down to the nearest button of the next one. */
function walk(event) {
  const button = event.target.closest?.(".board-layer button");
  const next = button && neighbour(button, event.key);
  if (!next) return;
  event.preventDefault();
  for (const each of next.closest(".board-layer").querySelectorAll("button")) each.tabIndex = each === next ? 0 : -1;
  next.focus();
}

function neighbour(button, pressed) {
  const row = button.closest(".board-layer");
  const along = {ArrowLeft: -1, ArrowRight: 1}[pressed], down = {ArrowUp: -1, ArrowDown: 1}[pressed];
  const buttons = [...row.querySelectorAll("button")];
  const rows = [...row.closest(".board").querySelectorAll(".board-layer")];
  if (along) return buttons[buttons.indexOf(button) + along];
  const other = down && rows[rows.indexOf(row) + down];
  const away = (each) => Math.abs(each.offsetLeft + each.offsetWidth / 2 - button.offsetLeft - button.offsetWidth / 2);
  return other && [...other.querySelectorAll("button")].sort((a, b) => away(a) - away(b))[0];
}

/** What the tints mean, and which switch matters most. */
export function legendOf(worth, switches) {
  const least = Math.min(0, ...worth.values()), most = Math.max(0, ...worth.values());
  if (least > -0.005 && most < 0.005) return h("p", {class: "small"}, "None of them alone matters for this output.");
  const worst = switches.find((each) => worth.get(each.id) === least)?.title;
  const scale = (name, value, meaning) => h("span", {class: "scale-of"},
    h("span", {class: `scale ${name}`, aria: {hidden: "true"}}), `${signedNats(value)} nats: ${meaning}`);
  const lost = `without it alone, it becomes ${times(least)} less likely`;
  return h("div", {class: "legend small"}, least < -0.005 && scale("loses", least, "the output becomes less likely"),
    most > 0.005 && scale("gains", most, "more likely"),
    least < -0.005 && h("p", {}, `The output needs ${worst} most: ${lost}.`));
}
