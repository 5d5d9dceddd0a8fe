// Byte-pair encoding (Sennrich et al. 2016): a word starts as single characters. Of all adjacent pairs, the one whose
// merge was learned first is merged, the leftmost if there are several, until no pair is left.
//
//     l o w e s t  --(l,o)-->  lo w e s t  --(lo,w)-->  low e s t  --(e,s)-->  low es t  --(es,t)-->  low est

import {byteTokens, utf8Length} from "./bytes.js";
import {DataError} from "./errors.js";

const PAIR = 2 ** 26; // a pair of ids as one number: left · 2^26 + right
const RANK = 2 ** 30; // a possible merge as one number: rank · 2^30 + position

export class Bpe {
  constructor(settings) {
    for (const name of ["continuing_subword_prefix", "end_of_word_suffix", "dropout"]) {
      if (settings[name]) throw new DataError(`this tokenizer's BPE has ${name}, which this engine does not support.`);
    }
    this.ids = new Map(Object.entries(settings.vocab));
    this.names = new Map(Object.entries(settings.vocab).map(([name, id]) => [id, name]));
    this.unknown = settings.unk_token ?? null;
    this.fuseUnknown = Boolean(settings.fuse_unk);
    this.byteFallback = Boolean(settings.byte_fallback);
    this.ignoreMerges = Boolean(settings.ignore_merges);
    this.rank = new Map(); // pair of ids -> when it was learned
    this.merged = settings.merges.map((merge, rank) => {
      const [left, right] = typeof merge === "string" ? merge.split(" ") : merge;
      this.rank.set(this.idOf(left) * PAIR + this.idOf(right), rank);
      return this.idOf(left + right);
    });
  }

  idOf(name) {
    if (this.ids.has(name)) return this.ids.get(name);
    throw new DataError(`the tokenizer's merges have ${JSON.stringify(name)}, which is not in its vocabulary.`);
  }

  tokenize(word) {
    if (this.ignoreMerges && this.ids.has(word)) {
      return [{id: this.ids.get(word), value: word, start: 0, end: word.length}];
    }
    const symbols = this.merge(this.symbols(word)), place = placesOfBytes(word);
    let byte = 0;
    return symbols.map(({id, bytes}) => {
      const start = place[byte][0], end = place[(byte += bytes) - 1][1];
      return {id, value: this.names.get(id), start, end};
    });
  }

  /** The characters of a word as {id, bytes}: `bytes` is the length. Without an unknown token, some are left out. */
  symbols(word) {
    const symbols = [];
    let unknown = null; // those that are not in the symbols yet: the next unknown character may join them
    const addUnknown = () => {
      if (unknown) symbols.push(unknown);
      unknown = null;
    };
    for (const character of word) {
      const id = this.ids.get(character), bytes = utf8Length(character);
      const byteIds = id === undefined && this.byteFallback ? this.byteIds(character) : null;
      if (id !== undefined) {
        addUnknown();
        symbols.push({id, bytes});
      } else if (byteIds) {
        symbols.push(...byteIds.map((byteId) => ({id: byteId, bytes: 1})));
      } else if (this.unknown !== null) {
        if (unknown && this.fuseUnknown) {
          unknown.bytes += bytes;
        } else {
          addUnknown();
          unknown = {id: this.idOf(this.unknown), bytes};
        }
      }
    }
    addUnknown();
    return symbols;
  }

  /** The tokens of a character's bytes; null if the vocabulary lacks one. */
  byteIds(character) {
    const ids = byteTokens(character).map((name) => this.ids.get(name));
    return ids.includes(undefined) ? null : ids;
  }

  /** Merge pairs until none is left. A merged pair takes the place of its left symbol. */
  merge(symbols) {
    const next = symbols.map((_, i) => i + 1), previous = symbols.map((_, i) => i - 1), queue = new Queue();
    const rankAt = (i) => this.rank.get(symbols[i].id * PAIR + symbols[next[i]]?.id);
    const add = (i) => {
      const rank = rankAt(i);
      if (rank !== undefined) queue.push(rank * RANK + i);
    };
    symbols.forEach((_, i) => add(i));
    while (queue.size) {
      const top = queue.pop(), rank = Math.floor(top / RANK), i = top % RANK;
      if (symbols[i] === null || rankAt(i) !== rank) continue; // one of the two was merged with another one
      const right = next[i];
      symbols[i] = {id: this.merged[rank], bytes: symbols[i].bytes + symbols[right].bytes};
      symbols[right] = null;
      next[i] = next[right];
      if (next[i] < symbols.length) previous[next[i]] = i;
      if (previous[i] >= 0) add(previous[i]);
      add(i);
    }
    return symbols.filter((symbol) => symbol !== null);
  }
}

/** For each byte of a word's UTF-8 the start and end of its character, in UTF-16 units. */
function placesOfBytes(word) {
  const places = [];
  let start = 0;
  for (const character of word) {
    const end = start + character.length;
    for (let n = utf8Length(character); n > 0; n--) places.push([start, end]);
    start = end;
  }
  return places;
}

/** Numbers, of which the smallest comes first: a binary heap. The children of i are 2 i + 1 and 2 i + 2. */
class Queue {
  #heap = [];

  get size() {
    return this.#heap.length;
  }

  push(value) {
    const heap = this.#heap;
    let i = heap.push(value) - 1;
    for (let parent; i > 0 && heap[parent = (i - 1) >> 1] > value; i = parent) heap[i] = heap[parent];
    heap[i] = value;
  }

  pop() {
    const heap = this.#heap, top = heap[0], value = heap.pop(), n = heap.length;
    if (!n) return top;
    let i = 0;
    for (let child; (child = 2 * i + 1) < n; i = child) {
      if (child + 1 < n && heap[child + 1] < heap[child]) child += 1;
      if (heap[child] >= value) break;
      heap[i] = heap[child];
    }
    heap[i] = value;
    return top;
  }
}
