// Attention weights of a trace, dense or sparse, read alike. Rows (queries) look at columns (keys).

const KINDS = {encoder: "encoder.layers.N.self_attention", decoder: "decoder.layers.N.self_attention",
               cross: "decoder.layers.N.cross_attention"};

const read = new WeakMap();
const means = new WeakMap();

/** {heads, rows, columns, at(head, q, k), row(head, q) -> Float32Array} of one attention; null if the trace
    lacks it. */
export function matrixOf(trace, name) {
  const raw = trace.attention?.[name] ?? trace.attention?.[`${name}.weights`];
  if (!raw) return null;
  if (!read.has(raw)) read.set(raw, Array.isArray(raw) ? dense(raw) : sparse(raw));
  return read.get(raw);
}

/** The mean over all heads, as a matrix with one head. */
export function meanOf(matrix) {
  if (!means.has(matrix)) means.set(matrix, averaged(matrix));
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

function dense(raw) {
  const [heads, rows, columns] = [raw.length, raw[0]?.length ?? 0, raw[0]?.[0]?.length ?? 0];
  return {heads, rows, columns, at: (head, q, k) => raw[head][q][k],
    row: kept(rows, (head, q) => new Float32Array(raw[head][q]))};
}

function sparse({shape: [heads, rows, columns], columns: places, values}) {
  const at = (head, q, k) => {
    const index = places[head][q].indexOf(k);
    return index < 0 ? 0 : values[head][q][index];
  };
  const row = (head, q) => {
    const full = new Float32Array(columns);
    places[head][q].forEach((k, i) => { full[k] = values[head][q][i]; });
    return full;
  };
  return {heads, rows, columns, at, row: kept(rows, row)};
}

function averaged({heads, rows, columns, row}) {
  const mean = kept(rows, (_, q) => {
    const sum = new Float32Array(columns);
    for (let head = 0; head < heads; head++) row(head, q).forEach((weight, k) => { sum[k] += weight / heads; });
    return sum;
  });
  return {heads: 1, rows, columns, at: (_, q, k) => mean(0, q)[k], row: mean};
}

function kept(rows, make) {
  const made = [];
  return (head, q) => (made[head * rows + q] ??= make(head, q));
}
