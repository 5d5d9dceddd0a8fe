// A beam search as a tree from left to right: one column per step, the winner at the top.
//
//   <s> ── Le ──── petit ── chat ── ●      solid: kept in the beam     ●: finished with </s>
//     │     └┄ ✕ gros                      dotted: pruned              bold: the winner
//     └── Un ──── petit ┄ ✕ chat
//
// The nodes of a column are in depth-first order, so branches do not cross.

import {h, s, fill, number, percent} from "../dom.js";
import {readable} from "../tokens.js";

const ROW = 28;
const GAP = 38; // between two columns, for the branches
const EDGE = 10;
const MAX_LABEL = 14; // characters
const RANK = {alive: 1, root: 1, found: 1, cut: 1, pruned: 0};
const SIGNS = {found: "●", cut: "■", pruned: "✕"};
const STATES = {root: "the start", alive: "kept in the beam", pruned: "pruned", found: "finished",
  cut: "stopped at the maximum length"};

/** ((5 + length) / 6)^α. The score is the log-probability divided by it. */
export function lengthPenalty(length, alpha) {
  return ((5 + length) / 6) ** alpha;
}

/** The nodes of a search as a tree: {root, byId, path(id): nodes from the root}. The best child is the first. */
export function treeOf(search) {
  const byId = new Map(search.nodes.map((node) => [node.id, {...node, children: []}]));
  const scores = new Map(search.found.map((text) => [text.node, text.score]));
  let root = null;
  for (const node of byId.values()) {
    const parent = node.parent === null ? null : byId.get(node.parent);
    node.up = parent ?? null;
    if (parent) parent.children.push(node);
    else root ??= node;
  }
  const sortChildren = (node) => {
    node.children.forEach(sortChildren);
    node.best = Math.max(scores.get(node.id) ?? -Infinity, ...node.children.map((child) => child.best));
    node.children.sort((a, b) => b.best - a.best || RANK[b.state] - RANK[a.state] || b.log_p - a.log_p);
  };
  if (root) sortChildren(root);
  const path = (id) => {
    const nodes = [];
    for (let node = byId.get(id); node; node = node.up) nodes.unshift(node);
    return nodes;
  };
  return {root, byId, path};
}

/** Set x, y and width of each node. -> {width, height} of the tree */
export function layOut(tree) {
  const columns = [];
  const collect = (node) => {
    (columns[node.depth] ??= []).push(node);
    node.children.forEach(collect);
  };
  collect(tree.root);
  let x = EDGE;
  for (const column of columns) {
    const width = Math.max(...column.map((node) => 26 + textWidth(labelOf(node)) + (SIGNS[node.state] ? 14 : 0)));
    for (const node of column) Object.assign(node, {x, width});
    x += width + GAP;
  }
  const free = columns.map(() => EDGE);
  const place = (node, y) => {
    node.y = Math.max(y, free[node.depth]);
    free[node.depth] = node.y + ROW;
    for (const child of node.children) place(child, node.y);
  };
  place(tree.root, EDGE);
  columns.forEach(placeTurns);
  return {width: x - GAP + EDGE, height: Math.max(...free) + EDGE};
}

// The x offset at which the branches of a node turn. Lower nodes turn earlier, so that branches do not overlap.
function placeTurns(column) {
  const parents = column.filter((node) => node.children.length > 0).sort((a, b) => a.y - b.y);
  const distance = Math.min(6, 24 / Math.max(1, parents.length - 1));
  parents.forEach((node, rank) => { node.turn = 7 + (parents.length - 1 - rank) * distance; });
}

function textWidth(text) {
  return [...text].reduce((sum, character) => sum + (character.codePointAt(0) > 0x2e7f ? 14 : 7.6), 0);
}

function labelOf(node) {
  return readable(node.token, MAX_LABEL);
}

/** {element, show(search), highlight(id), path(id)}; onpick(node) on a click; onhover(node or null) on hover, focus. */
export function beamTree({onpick, onhover}) {
  const branches = s("svg", {class: "branches", aria: {hidden: true}});
  const nodes = h("div", {class: "nodes", role: "tree",
    aria: {label: "Beam search tree. Left key: parent; right: best child; up and down: siblings."}});
  const canvas = h("div", {class: "canvas"}, branches, nodes);
  const element = h("div", {class: "box tree"}, canvas);
  let tree = null;
  const buttons = new Map();

  function show(search) {
    tree = treeOf(search);
    buttons.clear();
    fill(branches);
    fill(nodes);
    if (!tree.root) return;
    const size = layOut(tree);
    for (const side of ["width", "height"]) canvas.style.setProperty(side, `${size[side]}px`);
    for (const [side, value] of Object.entries(size)) branches.setAttribute(side, value);
    const winner = new Set(search.found.length ? tree.path(search.found[0].node) : []);
    draw(tree.root, winner);
    makeFocusable(tree.root);
    element.scrollTo(0, 0);
  }

  function draw(node, winner) {
    const marks = [node.state, winner.has(node) && "winner"].filter(Boolean).join(" ");
    for (const child of [...node.children].reverse()) branches.append(branch(node, child, winner));
    const button = h("button", {type: "button", class: `node ${marks}`, role: "treeitem", tabindex: -1,
      data: {node: node.id},
      style: {left: `${node.x}px`, top: `${node.y}px`, width: `${node.width}px`},
      aria: {level: node.depth + 1, selected: false, label: describe(node, winner)},
      onclick: () => onpick(node), onfocus: () => { makeFocusable(node); onhover(node); },
      onmouseenter: () => onhover(node),
      onmouseleave: () => onhover(null), onkeydown: (event) => moveFocus(event, node)},
      SIGNS[node.state] && h("span", {class: "sign"}, SIGNS[node.state]), h("bdi", {}, labelOf(node)));
    buttons.set(node.id, button);
    nodes.append(button);
    for (const child of node.children) draw(child, winner);
  }

  function makeFocusable(node) {
    for (const button of nodes.querySelectorAll('[tabindex="0"]')) button.tabIndex = -1;
    buttons.get(node.id).tabIndex = 0;
  }

  function moveFocus(event, node) {
    const siblings = node.up?.children ?? [node];
    const at = siblings.indexOf(node);
    const next = {ArrowLeft: node.up, ArrowRight: node.children[0], ArrowUp: siblings[at - 1] ?? neighbour(node, -1),
      ArrowDown: siblings[at + 1] ?? neighbour(node, 1), Home: tree.root}[event.key];
    if (next === undefined) return;
    event.preventDefault();
    event.stopPropagation();
    if (next) buttons.get(next.id).focus();
  }

  // After the last sibling: the next node in the column.
  function neighbour(node, step) {
    const column = [...tree.byId.values()].filter((other) => other.depth === node.depth).sort((a, b) => a.y - b.y);
    return column[column.indexOf(node) + step] ?? null;
  }

  function highlight(id) {
    const chosen = new Set(tree && id !== null ? tree.path(id).map((node) => node.id) : []);
    for (const [each, button] of buttons) {
      button.classList.toggle("chosen", chosen.has(each));
      button.setAttribute("aria-selected", String(each === id));
    }
    for (const path of branches.children) path.classList.toggle("chosen", chosen.has(Number(path.dataset.to)));
  }

  return {element, show, highlight, path: (id) => tree?.path(id) ?? []};
}

function branch(node, child, winner) {
  const [x0, x1] = [node.x + node.width, child.x];
  const [y0, y1] = [node.y + ROW / 2 - 2, child.y + ROW / 2 - 2];
  const middle = x0 + node.turn;
  const bend = Math.min(5, Math.abs(y1 - y0) / 2);
  const d = y1 === y0 ? `M${x0} ${y0}H${x1}`
    : `M${x0} ${y0}H${middle - 5}q5 0 5 ${bend}V${y1 - bend}q0 ${bend} 5 ${bend}H${x1}`;
  const marks = [child.state, winner.has(child) && "winner"].filter(Boolean).join(" ");
  return s("path", {class: `branch ${marks}`, d, data: {to: child.id}});
}

function describe(node, winner) {
  const state = winner.has(node) && (node.state === "found" || node.state === "cut")
    ? `${STATES[node.state]}, the winner` : STATES[node.state];
  if (node.state === "root") return `${readable(node.token)}, ${state}`;
  const numbers = `probability ${percent(node.p)}, log p ${number(node.log_p)}, score ${number(node.score)}`;
  return `${readable(node.token)}, ${state}, ${numbers}`;
}
