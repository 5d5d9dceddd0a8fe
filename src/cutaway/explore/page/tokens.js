// Tokens in a readable form, and rows of tokens.

import {h, percent} from "./dom.js";

const INVISIBLE = /[\u0000-\u001f\u007f-\u009f\u00ad\u200b\u200c\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;

/** A token with visible signs for spaces, line ends, zero-width characters and direction marks. */
export function readable(token, maxLength = Infinity) {
  const text = String(token).replace(/\n/g, "⏎").replace(/\t/g, "⇥")
    .replace(/^ +| +$/g, (spaces) => "␣".repeat(spaces.length))
    .replace(INVISIBLE, (character) => `‹${character.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}›`);
  const characters = [...(text || "∅")];
  return characters.length > maxLength ? `${characters.slice(0, maxLength - 1).join("")}…` : characters.join("");
}

/** A row of tokens; buttons if there is `onpick`. A bar under each token shows its probability `p`. */
export function tokenRow(tokens, {p = null, selected = null, onpick = null, label = "Tokens", title = null} = {}) {
  const row = h("div", {class: "tokens", role: onpick ? "group" : "list", aria: {label}});
  tokens.forEach((token, i) => row.append(tokenChip(token, i,
    {p: p?.[i] ?? null, selected: selected === i, onpick, title})));
  if (onpick) row.addEventListener("keydown", (event) => moveFocus(event, row));
  return row;
}

function tokenChip(token, i, {p, selected, onpick, title}) {
  const classes = ["token", p !== null && "tinted", p !== null && p < 0.5 && "unsure", selected && "selected"];
  const attributes = {class: classes.filter(Boolean).join(" "), title: title?.(i) ?? (p === null ? null : percent(p)),
                      data: {index: i}, style: p === null ? null : {"--p": p.toFixed(3)}};
  const text = h("bdi", {}, readable(token));
  if (!onpick) return h("span", {...attributes, role: "listitem"}, text);
  return h("button", {...attributes, type: "button", aria: {pressed: selected}, onclick: () => onpick(i)}, text);
}

function moveFocus(event, row) {
  const step = {ArrowLeft: -1, ArrowRight: 1}[event.key];
  const at = [...row.children].indexOf(document.activeElement);
  const next = step && at >= 0 ? row.children[at + step] : null;
  if (!next) return;
  next.focus();
  event.preventDefault();
}
