// Python source code with line numbers and simple syntax highlighting.

import {h} from "../dom.js";

const KEYWORDS = new Set(("False None True and as assert async await break class continue def del elif else except "
  + "finally for from global if import in is lambda match nonlocal not or pass raise return try while with yield")
  .split(" "));
const KINDS = [
  ["comment", /#[^\n]*/y],
  ["string", /[rbfuRBFU]{0,2}(?:"""[\s\S]*?(?:"""|$)|'''[\s\S]*?(?:'''|$))/y],
  ["string", /[rbfuRBFU]{0,2}(?:"(?:\\.|[^"\\\n])*"?|'(?:\\.|[^'\\\n])*'?)/y],
  ["number", /(?:0[xX][\da-fA-F_]+|\d[\d_]*(?:\.[\d_]*)?(?:[eE][+-]?\d+)?)/y],
  ["decorator", /@[\w.]+/y],
  ["word", /[A-Za-z_\u0080-\uffff][\w\u0080-\uffff]*/y],
  ["space", /\s+/y],
];

/** Code -> [[kind, text], ...]. The texts joined are the code. */
export function tokenize(code) {
  const found = [];
  let at = 0;
  let before = "";
  while (at < code.length) {
    const [kind, text] = next(code, at);
    found.push([kind === "word" ? wordKind(text, before) : kind, text]);
    if (kind !== "space") before = text;
    at += text.length;
  }
  return found;
}

function wordKind(text, before) {
  if (KEYWORDS.has(text)) return "keyword";
  if (before === "def" || before === "class") return "name";
  return text === "self" ? "self" : "plain";
}

function next(code, at) {
  for (const [kind, pattern] of KINDS) {
    pattern.lastIndex = at;
    const match = pattern.exec(code);
    if (match?.[0]) return [kind, match[0]];
  }
  return ["plain", code[at]];
}

/** {file, line, code} as an element with numbered lines. */
export function listing({file, line, code}) {
  const lines = [[]];
  for (const [kind, text] of tokenize(code.replace(/\s+$/, ""))) {
    text.split("\n").forEach((piece, i) => {
      if (i) lines.push([]);
      if (piece) lines.at(-1).push(kind === "plain" || kind === "space" ? piece : h("span", {class: `py-${kind}`},
        piece));
    });
  }
  const elements = lines.map((pieces, i) => h("span", {class: "line", data: {line: line + i}}, pieces, "\n"));
  return h("pre", {class: "box listing", tabindex: 0, aria: {label: `Source code, ${file}, from line ${line}`}},
    h("code", {}, elements));
}
