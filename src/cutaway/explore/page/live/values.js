// Summary of a tensor: named axes, mean, standard deviation, range, and warnings (explore/values.py).

const SATURATED = 0.999; // a softmax row with a larger maximum has almost no gradient
const TOO_MANY = 0.5; // share of saturated rows that raises a flag
const HUGE = 1e4;
const ROWS = 64, COLUMNS = 64; // size of the matrix that is drawn

/** Rounded to some decimals. */
export function round(value, decimals = 4) {
  const factor = 10 ** decimals, rounded = Math.round(value * factor) / factor;
  return Number.isNaN(rounded) ? value : rounded; // infinity stays infinity
}

const inWords = (number) => number.toLocaleString("en");

/** null for NaN and infinity, as in JSON. */
const finite = (value) => (Number.isFinite(value) ? value : null);

/**
 * @param {import("../engine/tensor.js").Tensor} value
 * @param {string[]} names the names of its axes
 */
export function summarizeValue({shape, data}, names, isSoftmax = false) {
  const axes = names.length === shape.length ? names : shape.map(() => "·");
  let count = 0, sum = 0, min = Infinity, max = -Infinity;
  for (const x of data) {
    if (!Number.isFinite(x)) continue;
    count += 1;
    sum += x;
    min = Math.min(min, x);
    max = Math.max(max, x);
  }
  const mean = sum / count;
  let squares = 0;
  for (const x of data) if (Number.isFinite(x)) squares += (x - mean) ** 2;
  return {
    axes: axes.map((name, i) => [name, shape[i]]),
    mean: finite(mean),
    std: finite(Math.sqrt(squares / count)),
    min: finite(min),
    max: finite(max),
    flags: flagsOf(shape, data, isSoftmax),
  };
}

function flagsOf(shape, data, isSoftmax) {
  let nan = 0, infinite = 0, largest = 0;
  for (const x of data) {
    if (Number.isNaN(x)) nan += 1;
    else if (!Number.isFinite(x)) infinite += 1;
    else largest = Math.max(largest, Math.abs(x));
  }
  const flags = [["NaN", nan], ["infinite", infinite]].filter(([, count]) => count)
    .map(([what, count]) => `${what} in ${inWords(count)} of ${inWords(data.length)} values`);
  if (!flags.length && largest > HUGE) flags.push(`values beyond ${inWords(HUGE)}`);
  return isSoftmax && !flags.length ? saturation(shape.at(-1), data) : flags;
}

/** Flag a saturated softmax. Rows with a single allowed key do not count. */
function saturation(width, data) {
  let rows = 0, full = 0;
  for (let start = 0; start < data.length; start += width) {
    const row = data.subarray(start, start + width);
    if (row.filter((p) => p > 0).length < 2) continue;
    rows += 1;
    if (row.some((p) => p > SATURATED)) full += 1;
  }
  return rows && full / rows > TOO_MANY ? [`softmax saturated in ${inWords(full)} of ${inWords(rows)} rows`] : [];
}

/** The first example of the batch as matrices, one for each head, at most 64 × 64. */
export function slices(value) {
  const {shape} = value;
  if (shape.length === 4) {
    return Object.fromEntries(Array.from({length: shape[1]}, (_, h) =>
      [`head ${h}`, clipMatrix(value.matrix(h), shape[2], shape[3])]));
  }
  const [rows, columns] = shape.length > 1 ? shape.slice(-2) : [1, value.data.length];
  return {"": clipMatrix(value.data, rows, columns)};
}

/** The upper left corner as lists; null for values that are not finite. */
function clipMatrix(data, rows, columns) {
  return Array.from({length: Math.min(rows, ROWS)}, (_, i) =>
    Array.from({length: Math.min(columns, COLUMNS)}, (_, j) => finite(round(data[i * columns + j]))));
}

/** Which part of the value is drawn; null if all of it is. */
export function truncationNote({shape, data}) {
  const [rows, columns] = shape.length > 1 ? shape.slice(-2) : [1, data.length];
  const parts = [["rows", rows, ROWS], ["columns", columns, COLUMNS]].filter(([, count, most]) => count > most)
    .map(([what, count, most]) => `the first ${most} of ${inWords(count)} ${what}`);
  return parts.join(" and ") || null;
}
