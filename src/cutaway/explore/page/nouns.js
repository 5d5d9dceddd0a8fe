// The nouns of a task: a view of an image speaks of patches and classes, not of tokens.

const TEXT = {input: "text", inputs: "sentences", unit: "token", units: "tokens"};
const IMAGE = {input: "image", inputs: "images", unit: "patch", units: "patches"};
const ANSWERS = {classification: "class", image_classification: "class", tagging: "tag"};

/** {input, inputs, unit, units, answer}: what the model reads, one, many, and in pieces; and what it predicts */
export function nounsOf(task) {
  return {...(task === "image_classification" ? IMAGE : TEXT), answer: ANSWERS[task] ?? "token"};
}

/** A text about tokens; about patches if the model reads an image, perhaps with a class token in front of them. */
export function inNounsOf({task, config}, text) {
  if (task !== "image_classification") return text;
  const first = config?.pooling?.startsWith("cls") ? "class token" : "first patch";
  return text.replaceAll("first token", first).replace(/\btokens\b/g, "patches").replace(/(?<!class )\btoken\b/g, "patch");
}

/** The roles of heads in these nouns: rows of the statistics of heads. */
export function headsInNounsOf(run, rows) {
  const change = (text) => inNounsOf(run, text ?? "");
  return rows.map((row) => ({...row, role: change(row.role), explanation: change(row.explanation)}));
}
