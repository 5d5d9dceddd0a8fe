// The switchboard: one row per layer, one button per head and sub-layer, coloured by the effect of switching it off.
//
//     Decoder   layer 0   [self-attention] [0] [1] [2] [3]   [cross-attention] [0] [1] [2] [3]   [feed-forward]
import {fill, h} from "../dom.js";
import {signedNats, times} from "./outputs.js";

const PARTS = {self_attention: "self-attention", cross_attention: "cross-attention", feed_forward: "feed-forward",
               block: "attention and feed-forward"};

const FULL_COLOUR = 0.1; // nats with the full colour, if no effect is larger

/** What an effect means, for the title of a button. */
const LOG_P = {title: (change) => `With only this part off, log p changes by ${change} nats.`};

/** {element, update(off, effects)}; effects: id -> number in nats, or null; `wording` says what the numbers mean.
    onchange(off) gets the ids of all parts that are off; canChange(off): whether there is an answer for them. */
export function switchboard(switches, onchange, canChange, wording = LOG_P) {
  const board = {switches, wording, buttons: new Map(), presets: [], off: new Set()};
  const after = (ids, switchedOff) => {
    const next = new Set(board.off);
    ids.forEach((id) => (switchedOff ? next.add(id) : next.delete(id)));
    return switches.map((each) => each.id).filter((id) => next.has(id));
  };
  board.change = (ids, switchedOff) => onchange(after(ids, switchedOff));
  board.canChange = (ids, switchedOff) => canChange(after(ids, switchedOff));
  const allOn = h("button", {type: "button", class: "button quiet", onclick: () => onchange([])}, "Switch all on");
  const element = h("div", {class: "board", onkeydown: moveFocus},
    h("div", {class: "row presets", role: "group", aria: {label: "Switch several parts"}},
      presetsOf(switches).map((preset) => presetButton(board, preset)), allOn),
    [...new Set(switches.map((each) => each.stack))].map((stack) => stackOf(board, stack)));
  const update = (ids, effects) => {
    board.off = new Set(ids);
    const largest = Math.max(FULL_COLOUR, ...[...effects?.values() ?? []].map(Math.abs));
    for (const each of switches) {
      const isInside = each.kind === "head" && switches.some((other) => contains(other, each) && board.off.has(other.id));
      const isOff = board.off.has(each.id), isRecorded = board.canChange([each.id], !isOff);
      updateSwitch(board.buttons.get(each.id), each, {isOff, isInside, isRecorded, wording},
        effects?.get(each.id) ?? null, largest);
    }
    board.presets.forEach((show) => show());
    allOn.disabled = !ids.length;
  };
  return {element, update};
}

/** Parts that can be switched off together: [{label, ids}]. */
function presetsOf(switches) {
  const parts = ["cross_attention", "self_attention", "feed_forward"];
  const presets = parts.map((part) => ({label: `Switch all ${PARTS[part]} off`, ids: sublayersOf(switches, part)}));
  return presets.filter((preset) => preset.ids.length > 1);
}

/** The ids of all sub-layers of one kind, or of their heads if the sub-layers have no switch. */
function sublayersOf(switches, part) {
  const found = switches.filter((each) => each.part === part);
  const whole = found.filter((each) => each.kind === "sublayer");
  return (whole.length ? whole : found).map((each) => each.id);
}

function presetButton(board, {label, ids, spoken = null}) {
  const done = () => ids.every((id) => board.off.has(id));
  const button = h("button", {type: "button", class: "button quiet preset", aria: spoken ? {label: spoken} : null,
                              onclick: () => board.change(ids, !done())}, label);
  board.presets.push(() => {
    button.setAttribute("aria-pressed", String(done()));
    button.hidden = !board.canChange(ids, !done());
  });
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
  const preset = {label: "all heads of the layer", spoken: `switch off all heads of the layer, ${stack} layer ${layer}`,
    ids: heads};
  const row = h("div", {class: "board-layer", role: "toolbar", aria: {label: `${stack}, layer ${layer}`}},
    h("span", {class: "layer-name"}, `layer ${layer}`),
    parts.map((part) => partOf(board, here.filter((each) => each.part === part))),
    heads.length > 1 && presetButton(board, preset));
  row.querySelectorAll("button").forEach((button, i) => { button.tabIndex = i ? -1 : 0; });
  return row;
}

/** The sub-layer first, then its heads. */
function partOf(board, switches) {
  const sorted = [...switches].sort((a, b) => (a.head ?? -1) - (b.head ?? -1));
  return h("div", {class: "part"}, sorted.map((each) => {
    const name = each.kind === "head" ? each.head : PARTS[each.part] ?? each.part;
    const button = h("button", {type: "button", class: `switch ${each.kind}`, data: {id: each.id},
      onclick: () => button.getAttribute("aria-disabled") !== "true" && board.change([each.id], !board.off.has(each.id))},
      h("span", {class: "switch-name"}, name), " ", h("span", {class: "effect"}));
    board.buttons.set(each.id, button);
    return button;
  }));
}

/** Whether a switch is for the whole sub-layer (or for the whole layer) of a head. */
function contains(whole, head) {
  const isSame = whole.stack === head.stack && whole.layer === head.layer;
  return whole.kind === "sublayer" && isSame && [head.part, "block"].includes(whole.part);
}

/** Show whether a part is off, alone or with its sub-layer (isInside), and the effect of switching it off. */
function updateSwitch(button, {title}, {isOff, isInside, isRecorded, wording}, value, largest) {
  const change = value === null ? "" : signedNats(value);
  button.setAttribute("aria-pressed", String(isOff || isInside));
  button.setAttribute("aria-disabled", String(isInside || !isRecorded));
  const state = isInside ? ", off with its sub-layer" : "";
  button.setAttribute("aria-label", `switch off ${title}${change && ` ${change}`}${state}`);
  button.title = isInside ? `${title}. It is off because its sub-layer is off.`
    : !isRecorded ? `${title}. This file has no answer without it.`
    : change ? `${title}. ${wording.title(change)}` : title;
  button.classList.toggle("gains", value > 0);
  const share = Math.sqrt(Math.abs(value ?? 0) / largest); // the root makes small effects visible
  button.style.setProperty("--strength", value === null ? "0%" : `${Math.round(4 + 41 * share)}%`);
  fill(button.querySelector(".effect"), change);
}

/** Left and right go along a layer; up and down go to the nearest button of the next layer. */
function moveFocus(event) {
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
  const centre = (each) => each.offsetLeft + each.offsetWidth / 2;
  const distance = (each) => Math.abs(centre(each) - centre(button));
  return other && [...other.querySelectorAll("button")].sort((a, b) => distance(a) - distance(b))[0];
}

/** The meaning of the colours, and the part with the largest effect. */
export function effectLegend(effects, switches) {
  const least = Math.min(0, ...effects.values()), most = Math.max(0, ...effects.values());
  if (least > -0.005 && most < 0.005) return h("p", {class: "small"}, "No single part matters for this output.");
  const worst = switches.find((each) => effects.get(each.id) === least)?.title;
  const scale = (name, value, meaning) => h("span", {class: "scale-of"},
    h("span", {class: `scale ${name}`, aria: {hidden: "true"}}), `${signedNats(value)} nats: ${meaning}`);
  const loss = `With only this part off, the output becomes ${times(least)} less probable.`;
  return h("div", {class: "legend small"}, least < -0.005 && scale("loses", least, "output less probable"),
    most > 0.005 && scale("gains", most, "output more probable"),
    least < -0.005 && h("p", {}, `The most important part is ${worst}. ${loss}`));
}
