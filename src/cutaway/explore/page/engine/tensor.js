// Tensors, and the operations that a Transformer needs. No operation changes its arguments.
//
// Dimension letters, used as suffixes of names (scores_BHQK) and in comments:
//
//     B batch   S source length   T target length   Q, K query and key length
//     D width   H heads   G key-value heads   E head width   F hidden width   V vocabulary   C classes
//
// Tensors store numbers of 32 bits. Sums are computed in JavaScript's own numbers, which have 64 bits.

export class Tensor {
  /**
   * @param {number[]} shape for example [B,H,T,E]
   * @param {Float32Array} data the numbers, row by row
   * @param {number} matrixStride from the start of one matrix to the next, if `data` has unused room between them
   */
  constructor(shape, data = new Float32Array(size(shape)), matrixStride = shape.at(-2) * shape.at(-1)) {
    this.shape = shape;
    this.data = data;
    this.matrixStride = matrixStride;
  }

  /** The last two dimensions at index i of the others: of [B,H,T,E], the matrix [T,E] of head i mod H. A view. */
  matrix(i) {
    const start = i * this.matrixStride;
    return this.data.subarray(start, start + this.shape.at(-2) * this.shape.at(-1));
  }

  /** Row i of the last dimension: of [B,T,D], the vector [D] of token i mod T. A view. */
  row(i) {
    const width = this.shape.at(-1);
    return this.data.subarray(i * width, (i + 1) * width);
  }

  /** The same numbers in another shape. */
  view(...shape) {
    return new Tensor(shape, this.data);
  }
}

/** The number of elements. */
export function size(shape) {
  return shape.reduce((product, n) => product * n, 1);
}

/** A new tensor: f of each number. */
export function map(x, f) {
  const y = new Tensor(x.shape);
  for (let i = 0; i < y.data.length; i++) y.data[i] = f(x.data[i]);
  return y;
}

/** A new tensor: f of each pair of numbers. The shape of y may be the end of the shape of x; then y is repeated. */
export function combine(x, y, f) {
  const z = new Tensor(x.shape);
  const n = y.data.length;
  for (let start = 0; start < z.data.length; start += n) {
    for (let i = 0; i < n; i++) z.data[start + i] = f(x.data[start + i], y.data[i]);
  }
  return z;
}

/** x + y */
export function add(x, y) {
  return combine(x, y, (a, b) => a + b);
}

/** y = x Wᵀ + b    x [...,I], weight [O,I], bias [O] or null -> [...,O] */
export function linear(x, weight, bias = null) {
  const [O, I] = weight.shape;
  const y = new Tensor([...x.shape.slice(0, -1), O]);
  multiplyTransposed(y.data, x.data, weight.data, x.data.length / I, O, I);
  return bias ? add(y, bias) : y;
}

/**
 * out [M,N] = factor · a [M,I] · b [N,I]ᵀ, in arrays. Each number is the dot product of a row of a and a row of b.
 * Two rows of a and four rows of b at a time, so that six numbers are read for eight products.
 */
export function multiplyTransposed(out, a, b, M, N, I, factor = 1) {
  const end = N - N % 4;
  let m = 0;
  for (; m + 1 < M; m += 2) multiplyTwoRows(out, a, b, m, end, N, I, factor);
  if (m < M) multiplyOneRow(out, a, b, m, end, N, I, factor);
  for (m = 0; m < M; m++) {
    for (let n = end; n < N; n++) {
      let sum = 0;
      for (let i = 0; i < I; i++) sum += a[m * I + i] * b[n * I + i];
      out[m * N + n] = factor * sum;
    }
  }
}

/** The dot products of the rows m and m + 1 of a with the rows of b before `end`. */
function multiplyTwoRows(out, a, b, m, end, N, I, factor) {
  const a0 = m * I, a1 = a0 + I;
  for (let n = 0; n < end; n += 4) {
    const b0 = n * I, b1 = b0 + I, b2 = b1 + I, b3 = b2 + I;
    let s0 = 0, s1 = 0, s2 = 0, s3 = 0, t0 = 0, t1 = 0, t2 = 0, t3 = 0;
    for (let i = 0; i < I; i++) {
      const x = a[a0 + i], y = a[a1 + i], p = b[b0 + i], q = b[b1 + i], r = b[b2 + i], s = b[b3 + i];
      s0 += x * p;
      s1 += x * q;
      s2 += x * r;
      s3 += x * s;
      t0 += y * p;
      t1 += y * q;
      t2 += y * r;
      t3 += y * s;
    }
    storeFour(out, m * N + n, factor, s0, s1, s2, s3);
    storeFour(out, (m + 1) * N + n, factor, t0, t1, t2, t3);
  }
}

/** The dot products of row m of a with the rows of b before `end`. */
function multiplyOneRow(out, a, b, m, end, N, I, factor) {
  for (let n = 0; n < end; n += 4) {
    const b0 = n * I, b1 = b0 + I, b2 = b1 + I, b3 = b2 + I;
    let s0 = 0, s1 = 0, s2 = 0, s3 = 0;
    for (let i = 0; i < I; i++) {
      const x = a[m * I + i];
      s0 += x * b[b0 + i];
      s1 += x * b[b1 + i];
      s2 += x * b[b2 + i];
      s3 += x * b[b3 + i];
    }
    storeFour(out, m * N + n, factor, s0, s1, s2, s3);
  }
}

function storeFour(out, at, factor, s0, s1, s2, s3) {
  out[at] = factor * s0;
  out[at + 1] = factor * s1;
  out[at + 2] = factor * s2;
  out[at + 3] = factor * s3;
}

/** out [M,N] = a [M,K] · b [K,N], in arrays. Each row is a weighted sum of the rows of b. Four columns at a time. */
export function multiply(out, a, b, M, N, K) {
  for (let m = 0; m < M; m++) {
    let n = 0;
    for (; n + 3 < N; n += 4) {
      let s0 = 0, s1 = 0, s2 = 0, s3 = 0;
      for (let k = 0, at = n; k < K; k++, at += N) {
        const x = a[m * K + k];
        s0 += x * b[at];
        s1 += x * b[at + 1];
        s2 += x * b[at + 2];
        s3 += x * b[at + 3];
      }
      const at = m * N + n;
      out[at] = s0;
      out[at + 1] = s1;
      out[at + 2] = s2;
      out[at + 3] = s3;
    }
    for (; n < N; n++) {
      let sum = 0;
      for (let k = 0; k < K; k++) sum += a[m * K + k] * b[k * N + n];
      out[m * N + n] = sum;
    }
  }
}

/**
 * softmax(x)_i = exp(x_i) / Σ exp(x_j), in each row of the last dimension.
 * A number -Infinity becomes 0. A row with nothing else becomes zeros, and never NaN.
 */
export function softmax(x) {
  const y = new Tensor(x.shape);
  for (let i = 0, rows = x.data.length / x.shape.at(-1); i < rows; i++) softmaxRow(y.row(i), x.row(i));
  return y;
}

function softmaxRow(out, row) {
  let max = -Infinity, sum = 0;
  for (let i = 0; i < row.length; i++) max = Math.max(max, row[i]);
  if (max === -Infinity) return;
  for (let i = 0; i < row.length; i++) sum += out[i] = Math.exp(row[i] - max); // with the maximum, nothing overflows
  for (let i = 0; i < row.length; i++) out[i] /= sum;
}
