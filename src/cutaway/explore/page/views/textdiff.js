// The difference of two texts by words. <del> and <ins> mark it, so that it does not depend on colour.
import {h} from "../dom.js";

const PIECES = /\s+|[\p{L}\p{N}\p{M}_]+|[^\s\p{L}\p{N}\p{M}_]+/gu;
const MAX_CELLS = 4e6; // longer texts count as completely different, to limit the time

/** "Le chat." -> ["Le", " ", "chat", "."] */
export function splitWords(text) {
  return text.match(PIECES) ?? [];
}

/** [{same: true, before: "Le ", after: "Le "}, {same: false, before: "chat", after: "chien"}, ...] */
export function diff(before, after) {
  const a = splitWords(before), b = splitWords(after);
  let start = 0, end = 0;
  while (start < Math.min(a.length, b.length) && a[start] === b[start]) start++;
  while (end < Math.min(a.length, b.length) - start && a.at(-1 - end) === b.at(-1 - end)) end++;
  const middle = align(a.slice(start, a.length - end), b.slice(start, b.length - end));
  const head = a.slice(0, start).map((word) => [word, word]);
  const tail = a.slice(a.length - end).map((word) => [word, word]);
  return mergeRuns([...head, ...middle, ...tail]);
}

/** Pairs [word, word] for equal words, [word, null] for a removed word, [null, word] for an added word. */
function align(a, b) {
  if (a.length * b.length > MAX_CELLS) return [...a.map((word) => [word, null]), ...b.map((word) => [null, word])];
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

/** common[i, j]: the weight of the longest common subsequence of a[i:] and b[j:]; a word weighs more than a space. */
function commonLengths(a, b) {
  const width = b.length + 1, common = new Uint32Array((a.length + 1) * width);
  for (let i = a.length - 1; i >= 0; i--) {
    const weight = a[i].trim() ? 4 : 1;
    for (let j = b.length - 1; j >= 0; j--) {
      common[i * width + j] = a[i] === b[j] ? common[(i + 1) * width + j + 1] + weight
        : Math.max(common[(i + 1) * width + j], common[i * width + j + 1]);
    }
  }
  return common;
}

/** Merge neighbouring pairs. A space between two changed words belongs to the change. */
function mergeRuns(pairs) {
  const found = [];
  pairs.forEach(([before, after], i) => {
    const bridge = before === after && !before.trim() && isChanged(pairs[i - 1]) && isChanged(pairs[i + 1]);
    const same = before === after && !bridge;
    if (found.at(-1)?.same !== same) found.push({same, before: "", after: ""});
    found.at(-1).before += before ?? "";
    found.at(-1).after += after ?? "";
  });
  return found;
}

const isChanged = (pair) => pair !== undefined && pair[0] !== pair[1];

/** One mark per line, without line ends and indents. */
function mark(text, tag) {
  if (!text.trim()) return text && h(tag, {}, text);
  return text.split(/(\s*\n\s*)/).map((part) => (part.trim() ? h(tag, {}, part) : part));
}

/** {before, after, same}: both texts as elements with their differences marked. */
export function diffLines(before, after) {
  const found = diff(before, after);
  const line = (side, tag) => h("p", {class: "text", dir: "auto"},
    found.some((run) => run[side]) ? null : h("span", {class: "dim"}, "(empty)"),
    found.map((run) => (run.same ? run[side] : mark(run[side], tag))));
  return {before: line("before", "del"), after: line("after", "ins"), same: before === after};
}
