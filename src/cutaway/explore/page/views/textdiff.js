// Two texts side by side: which words went, which came. <del> and <ins> mark them, so colour is never the only sign.
import {h} from "../dom.js";

const PIECES = /\s+|[\p{L}\p{N}\p{M}_]+|[^\s\p{L}\p{N}\p{M}_]+/gu;
const MOST_CELLS = 4e6; // a longer pair of texts counts as wholly changed rather than keep the browser busy

/** "Le chat." -> ["Le", " ", "chat", "."] */
export function pieces(text) {
  return text.match(PIECES) ?? [];
}

/** Runs of pieces: {same: true, before: "Le ", after: "Le "}, {same: false, before: "chat", after: "chien"}, ... */
export function differences(before, after) {
  const a = pieces(before), b = pieces(after);
  let start = 0, end = 0;
  while (start < Math.min(a.length, b.length) && a[start] === b[start]) start++;
  while (end < Math.min(a.length, b.length) - start && a.at(-1 - end) === b.at(-1 - end)) end++;
  const middle = aligned(a.slice(start, a.length - end), b.slice(start, b.length - end));
  const head = a.slice(0, start).map((word) => [word, word]);
  const tail = a.slice(a.length - end).map((word) => [word, word]);
  return runs([...head, ...middle, ...tail]);
}

/** Pairs [piece, piece] where both texts agree, [piece, null] where it went, [null, piece] where it came. */
function aligned(a, b) {
  if (a.length * b.length > MOST_CELLS) return [...a.map((word) => [word, null]), ...b.map((word) => [null, word])];
  const common = commonLengths(a, b), width = b.length + 1, pairs = [];
  let i = 0, j = 0;
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) pairs.push([a[i++], b[j++]]);
    else if (j >= b.length || (i < a.length && common[(i + 1) * width + j] >= common[i * width + j + 1])) {
      pairs.push([a[i++], null]);
    } else pairs.push([null, b[j++]]);
  }
  return pairs;
}

/** common[i, j]: how much a[i:] and b[j:] have in common, in order; words count for more than the space between. */
function commonLengths(a, b) {
  const width = b.length + 1, common = new Uint32Array((a.length + 1) * width);
  for (let i = a.length - 1; i >= 0; i--) {
    const worth = a[i].trim() ? 4 : 1;
    for (let j = b.length - 1; j >= 0; j--) {
      common[i * width + j] = a[i] === b[j] ? common[(i + 1) * width + j + 1] + worth
        : Math.max(common[(i + 1) * width + j], common[i * width + j + 1]);
    }
  }
  return common;
}

/** A lone space between two changed words belongs to the change: one mark instead of two. */
function runs(pairs) {
  const found = [];
  pairs.forEach(([before, after], i) => {
    const bridge = before === after && !before.trim() && changed(pairs[i - 1]) && changed(pairs[i + 1]);
    const same = before === after && !bridge;
    if (found.at(-1)?.same !== same) found.push({same, before: "", after: ""});
    found.at(-1).before += before ?? "";
    found.at(-1).after += after ?? "";
  });
  return found;
}

const changed = (pair) => pair !== undefined && pair[0] !== pair[1];

/** A mark a line: ends of lines and indents between them stay bare. */
function marked(text, tag) {
  if (!text.trim()) return text && h(tag, {}, text);
  return text.split(/(\s*\n\s*)/).map((part) => (part.trim() ? h(tag, {}, part) : part));
}

/** Both texts as lines with what differs marked: {before, after, same}. */
export function diffed(before, after) {
  const found = differences(before, after);
  const line = (side, tag) => h("p", {class: "text", dir: "auto"},
    found.some((run) => run[side]) ? null : h("span", {class: "dim"}, "(nothing)"),
    found.map((run) => (run.same ? run[side] : marked(run[side], tag))));
  return {before: line("before", "del"), after: line("after", "ins"), same: before === after};
}
