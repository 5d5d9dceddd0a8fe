// Activation patching: run one text with a value of another text, and see how much of the other's margin comes back
// (explore/causes/patching.py; its fields have the same names here).
//
//     share = (margin with the patch - margin of this text) / (margin of the other text - margin of this text)

import {ConfigError, DataError} from "../engine/errors.js";
import {streamProbes} from "../engine/lens.js";
import {editActivations} from "../engine/probe.js";
import {Tensor} from "../engine/tensor.js";
import {Example, prepareExample} from "./example.js";
import {marginOf, probabilities} from "./margin.js";
import {recordValues, replaceHead, replaceRow, runVariants} from "./variants.js";
import {formatSigned} from "./why.js";

const MIN_DIFFERENCE = 1e-3; // nats

/** Patch every position of every layer, and every head and sub-layer, one at a time. */
export async function patchAll(model, whole, wholeOther, margin, {targets, slices}) {
  checkSameLengths(whole, wholeOther);
  const [example, other] = [whole, wholeOther].map((each) => each.until(margin.step));
  const stacks = ["encoder", "decoder"].filter((stack) => model[stack]);
  const streams = stacks.map((stack) => [stack, streamProbes(model, {stack})]);
  const names = new Set([...streams.flatMap(([, rows]) => [...rows.values()]), ...targets.map(({probe}) => probe)]);
  const values = recordValues(model, other, ...names), that = marginOf(margin, other.logits(model));
  const lengthOf = (name) => values.get(name).shape[1];
  const cells = streams.flatMap(([, rows]) => [...rows.values()].flatMap((name) =>
    Array.from({length: lengthOf(name)}, (_, t) => ({[name]: replaceRow(t, values.get(name).row(t))}))));
  const variants = [{}, ...cells, ...targets.map((target) => patchOf(target, values))];
  const [[start], ...patched] = await runVariants(model, example, variants, slices, (logits) =>
    [marginOf(margin, logits), ...probabilities(margin, logits)]);
  if (Math.abs(that - start) < MIN_DIFFERENCE) {
    throw new DataError(`both texts have the margin ${start.toFixed(3)}, so there is no difference to explain.`);
  }
  const share = ([value]) => (value - start) / (that - start);
  const grids = streams.map(([stack, rows]) => {
    const found = [...rows.values()].map((name) => patched.splice(0, lengthOf(name)));
    return {stack, rows: [...rows.keys()], tokens: tokensOf(example, stack), others: tokensOf(other, stack),
            shares: found.map((row) => row.map(share)), token_p: found.map((row) => row.map(([, p]) => p)),
            rival_p: found.map((row) => row.map(([, , p]) => p))};
  });
  const parts = targets.map(({id, title, kind, stack, layer, part, head}, i) =>
    ({id, title, kind, stack, layer, part, head, share: share(patched[i])}));
  const found = {margin: start, other_margin: that, grids, parts};
  return {...found, sentence: sentence(found)};
}

function patchOf({probe, head}, values) {
  const value = values.get(probe);
  return {[probe]: head === null ? value : replaceHead(head, value.matrix(head))};
}

const tokensOf = (example, stack) => (stack === "decoder" ? example.target_in : example.source);

/** Another text, for which the decoder reads the output of the first one. */
export async function prepareOther(run, example, content) {
  if (!["translation", "language_model"].includes(run.task)) {
    return prepareExample(run, content, {hidden: example.hidden});
  }
  const other = await prepareExample(run, content, {target: ""}), {answers} = example;
  if (other.source.length) {
    return new Example({...other, inputs: [other.inputs[0], example.inputs[1]], target_in: example.target_in, answers});
  }
  const [[prompt]] = other.inputs, [[ids]] = example.inputs;
  const whole = [...prompt, other.answers.at(-1), ...ids.slice(example.prompt + 1)];
  return new Example({...other, inputs: [[whole]], target_in: other.names(whole), answers});
}

/**
 * What the model itself answers to this text with one value of the other one.
 * @param {string} place a part by id; with a position, "encoder layer 0": the row of a grid, for that token's vector
 */
export async function patchedOutput(run, content, example, other, {place, position, targets}, signal) {
  checkSameLengths(example, other);
  const {model} = run, [probe, head] = placeOf(model, place, position, targets);
  const value = recordValues(model, other, probe).get(probe), length = value.shape.at(-2);
  if (position !== null && !(position >= 0 && position < length)) {
    throw new DataError(`there is no token ${position}. Its numbers go from 0 to ${length - 1}.`);
  }
  const isWhole = /^(encoder|source)/.test(probe);
  const edit = editActivations(model, {[probe]: replaceInTurn(value, {head, position, isWhole})});
  try {
    return (await prepareExample(run, content, {hidden: example.hidden}, signal)).output;
  } finally {
    edit.stop();
  }
}

/** The probe of this place, and the number of the head. */
function placeOf(model, place, position, targets) {
  if (position === null) {
    const target = targets.find(({id}) => id === place);
    if (!target) throw new ConfigError(`this model has no part '${place}'.`);
    return [target.probe, target.head];
  }
  for (const stack of ["encoder", "decoder"].filter((each) => model[each])) {
    for (const [row, probe] of streamProbes(model, {stack})) if (place === `${stack} ${row}`) return [probe, null];
  }
  throw new ConfigError(`this model has no residual stream '${place}'.`);
}

/**
 * An edit that replaces a value, or one position of it, in a model that may read the text in pieces: a search with a
 * cache gives a decoder one position after the other, so each call continues where the last one ended.
 */
function replaceInTurn(value, {head, position, isWhole}) {
  const length = value.shape.at(-2);
  let start = 0;
  return ({shape, data}) => {
    const changed = new Tensor(shape, data.slice()), count = shape.at(-2), first = start;
    const matrices = shape.length === 4 ? shape[1] : 1; // heads
    start = isWhole ? 0 : first + count;
    for (let t = first; t < Math.min(first + count, length); t++) {
      if (position !== null && position !== t) continue;
      for (let b = 0; b < shape[0]; b++) {
        changed.row((b * matrices + (head ?? 0)) * count + t - first).set(value.row((head ?? 0) * length + t));
      }
    }
    return changed;
  };
}

function checkSameLengths(example, other) {
  example.inputs.forEach((input, i) => {
    const [here, there] = [input, other.inputs[i]].map((each) => each[0]?.length);
    if (here === there) return;
    throw new DataError(`the texts have ${here} and ${there} tokens. Patching compares position by position: change a `
      + "word into one with as many tokens.");
  });
  if (String(example.places) !== String(other.places)) {
    throw new DataError("the predictions of both texts are at other positions. Change a word into one with as many "
      + "tokens.");
  }
}

/** {stack, row, t, share} with the largest share after a layer, without the layer that the head reads. */
function best(grids) {
  const rows = grids.flatMap(({stack, rows, shares}) => rows.map((row, i) => ({stack, row, shares: shares[i]})))
    .filter(({row}) => row !== "embedding");
  const counted = rows.length > 1 ? rows.slice(0, -1) : rows;
  return counted.flatMap(({stack, row, shares}) => shares.map((share, t) => ({stack, row, t, share})))
    .reduce((found, cell) => (cell.share > found.share ? cell : found));
}

/** The margins, and the position and head that carry most of their difference. */
function sentence({margin, other_margin: otherMargin, grids, parts}) {
  const {stack, row, t, share} = best(grids), grid = grids.find((each) => each.stack === stack);
  const heads = parts.filter(({kind}) => kind === "head");
  const head = heads.reduce((found, each) => (each.share > found.share ? each : found));
  return `The other input has the margin ${formatSigned(otherMargin)} instead of ${formatSigned(margin)}. One vector `
    + `of the other input restores ${(100 * share).toFixed(0)}% of the difference: that of “${grid.others[t]}” after `
    + `${stack} ${row}. One head restores ${(100 * head.share).toFixed(0)}%: ${head.title}.`;
}
