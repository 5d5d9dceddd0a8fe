// The key-value cache: keys and values of earlier tokens, so that decoding does not compute them again.
//
// The caller of a model owns the cache. During a forward, each attention appends its new keys and values. At the end,
// the model advances the cache once. So a forward that fails leaves the cache unchanged.
//
//         before           after append        after advance(1)
//     k:  ■ ■ ■ · · ·      ■ ■ ■ □ · · ·       ■ ■ ■ ■ · · ·
//         length = 3       length = 3          length = 4

import {Tensor} from "./tensor.js";

/**
 * The cache of one attention module: keys and values [B,G,K,E], in buffers that grow by a quarter.
 * Linear attention stores its two sums here instead.
 */
export class AttentionCache {
  constructor(owner) {
    this.owner = owner;
    this.stored = null;
  }

  get length() {
    return this.owner.length;
  }

  /** Append k and v. -> all keys and values so far */
  append(k, v) {
    this.stored = [appendColumns(this.stored?.[0], k, this.length), appendColumns(this.stored?.[1], v, this.length)];
    return this.stored;
  }

  /** Store the keys and values of a memory, which does not grow. */
  store(k, v) {
    this.stored = [k, v];
    return this.stored;
  }

  /** Replace row i by the old row rows[i]. */
  reorder(rows) {
    this.stored = this.stored?.map((x) => selectRows(x, rows)) ?? null;
  }
}

/** The caches of one decoder layer. The self-attention cache grows; the cross-attention cache is constant. */
class LayerCache {
  constructor(owner) {
    this.selfAttention = new AttentionCache(owner);
    this.crossAttention = new AttentionCache(owner);
  }
}

/** The caches of all layers of a decoder. */
export class KVCache {
  constructor(nLayers) {
    this.length = 0; // the number of tokens in each row
    this.layers = Array.from({length: nLayers}, () => new LayerCache(this));
  }

  /** Count n more tokens. The model calls this once, at the end of a forward. */
  advance(n) {
    this.length += n;
  }

  /** Replace row i by the old row rows[i]: repeat, drop or permute hypotheses. */
  reorder(rows) {
    for (const layer of this.layers) {
      layer.selfAttention.reorder(rows);
      layer.crossAttention.reorder(rows);
    }
  }
}

/** The first `length` columns of `buffer` [B,G,K,E], followed by x [B,G,T,E]. */
function appendColumns(buffer, x, length) {
  const [B, G, T, E] = x.shape, end = length + T;
  const {data, matrixStride} = growBuffer(buffer, B * G, length, end, E);
  for (let i = 0; i < B * G; i++) data.set(x.matrix(i), i * matrixStride + length * E);
  return new Tensor([B, G, end, E], data, matrixStride);
}

/** `buffer` if it has room for `needed` columns in each of its matrices, else a larger copy of its first `length`. */
function growBuffer(buffer, matrices, length, needed, E) {
  if (buffer && buffer.matrixStride >= needed * E) return buffer;
  const matrixStride = E * Math.max(16, needed, length + Math.floor(length / 4));
  const data = new Float32Array(matrices * matrixStride);
  for (let i = 0; buffer && i < matrices; i++) data.set(buffer.matrix(i).subarray(0, length * E), i * matrixStride);
  return {data, matrixStride};
}

/** x[rows] */
function selectRows(x, rows) {
  const [, ...rest] = x.shape, n = rest[0] * x.matrixStride;
  const data = new Float32Array(rows.length * n);
  rows.forEach((row, i) => data.set(x.data.subarray(row * n, (row + 1) * n), i * n));
  return new Tensor([rows.length, ...rest], data, x.matrixStride);
}
