// The attention weights of a trace, dense or sparse, behind one interface. Rows are queries, columns are keys.

const KINDS = {encoder: "encoder.layers.N.self_attention", decoder: "decoder.layers.N.self_attention",
               cross: "decoder.layers.N.cross_attention"};

const matrices = new WeakMap(); // weights in the trace -> matrix
const means = new WeakMap(); // matrix -> mean over its heads

/** {heads, rows, columns, at(head, q, k), row(head, q) -> Float32Array} of one attention layer; null if the trace does
    not have it. */
export function matrixOf(trace, name) {
  const raw = trace.attention?.[name] ?? trace.attention?.[`${name}.weights`];
  if (!raw) return null;
  if (!matrices.has(raw)) matrices.set(raw, Array.isArray(raw) ? denseMatrix(raw) : sparseMatrix(raw));
  return matrices.get(raw);
}

/** The mean over all heads, as a matrix with one head. */
export function meanOf(matrix) {
  if (!means.has(matrix)) means.set(matrix, meanMatrix(matrix));
  return means.get(matrix);
}

/** [tokens of the rows, tokens of the columns] */
export function axesOf(trace, kind) {
  if (kind === "cross") return [trace.target_out, trace.source];
  return kind === "encoder" ? [trace.source, trace.source] : [trace.target_in, trace.target_in];
}

/** "decoder.layers.1.cross_attention.weights" -> "cross" */
export function kindOf(name) {
  return name.includes("cross_attention") ? "cross" : name.startsWith("encoder") ? "encoder" : "decoder";
}

/** ("cross", 1) -> "decoder.layers.1.cross_attention.weights" */
export function nameOf(kind, layer) {
  return `${KINDS[kind].replace("N", layer)}.weights`;
}

/** The layers of a trace that have this kind of attention, in order. */
export function layersOf(trace, kind) {
  const names = Object.keys(trace.attention ?? {}).filter((name) => kindOf(name) === kind);
  return names.map((name) => Number(name.split(".")[2])).sort((a, b) => a - b);
}

/** Whether a head is switched off, alone or with its sub-layer. off: ids of parts (explore/ablation.py) */
export function isHeadOff(off, kind, layer, head) {
  const part = nameOf(kind, layer).replace(/\.weights$/, "");
  return [part, `${part}.heads.${head}`, part.replace(/\w+$/, "block")].some((id) => off.includes(id));
}

function denseMatrix(raw) {
  const [heads, rows, columns] = [raw.length, raw[0]?.length ?? 0, raw[0]?.[0]?.length ?? 0];
  return {heads, rows, columns, at: (head, q, k) => raw[head][q][k],
    row: cacheRows(rows, (head, q) => new Float32Array(raw[head][q]))};
}

function sparseMatrix({shape: [heads, rows, columns], columns: places, values}) {
  const at = (head, q, k) => {
    const index = places[head][q].indexOf(k);
    return index < 0 ? 0 : values[head][q][index];
  };
  const row = (head, q) => {
    const full = new Float32Array(columns);
    places[head][q].forEach((k, i) => { full[k] = values[head][q][i]; });
    return full;
  };
  return {heads, rows, columns, at, row: cacheRows(rows, row)};
}

function meanMatrix({heads, rows, columns, row}) {
  const mean = cacheRows(rows, (_, q) => {
    const sum = new Float32Array(columns);
    for (let head = 0; head < heads; head++) row(head, q).forEach((weight, k) => { sum[k] += weight / heads; });
    return sum;
  });
  return {heads: 1, rows, columns, at: (_, q, k) => mean(0, q)[k], row: mean};
}

function cacheRows(rows, makeRow) {
  const cache = [];
  return (head, q) => (cache[head * rows + q] ??= makeRow(head, q));
}
