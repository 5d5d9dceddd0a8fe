// Tokens as people can read them, and rows of them.

import {h, percent} from "./dom.js";

const UNSEEN = /[\u0000-\u001f\u007f-\u009f\u00ad\u200b\u200c\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;

/** A token with what one cannot see made visible: spaces, line ends, zero-width and direction marks. */
export function readable(token, longest = Infinity) {
  const told = String(token).replace(/\n/g, "⏎").replace(/\t/g, "⇥").replace(/^ +| +$/g,
    (spaces) => "␣".repeat(spaces.length))
    .replace(UNSEEN, (sign) => `‹${sign.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}›`);
  const signs = [...(told || "∅")];
  return signs.length > longest ? `${signs.slice(0, longest - 1).join("")}…` : signs.join("");
}

/** Tokens as a row of chips; buttons if `onpick`; tinted by `p`, how sure the model was of each. */
export function tokenRow(tokens, {p = null, selected = null, onpick = null, label = "Tokens", title = null} = {}) {
  const row = h("div", {class: "tokens", role: onpick ? "group" : "list", aria: {label}});
  tokens.forEach((token, i) => row.append(chip(token, i,
    {p: p?.[i] ?? null, selected: selected === i, onpick, title})));
  if (onpick) row.addEventListener("keydown", (event) => walk(event, row));
  return row;
}

function chip(token, i, {p, selected, onpick, title}) {
  const told = title?.(i) ?? (p === null ? null : percent(p));
  const classes = ["token", p !== null && "tinted", p !== null && p < 0.5 && "unsure", selected && "selected"];
  const dress = {class: classes.filter(Boolean).join(" "),
                 title: told, data: {index: i}, style: p === null ? null : {"--p": p.toFixed(3)}};
  const face = h("bdi", {}, readable(token));
  if (!onpick) return h("span", {...dress, role: "listitem"}, face);
  return h("button", {...dress, type: "button", aria: {pressed: selected}, onclick: () => onpick(i)}, face);
}

function walk(event, row) {
  const step = {ArrowLeft: -1, ArrowRight: 1}[event.key];
  const at = [...row.children].indexOf(document.activeElement);
  const next = step && at >= 0 ? row.children[at + step] : null;
  if (!next) return;
  next.focus();
  event.preventDefault();
}
