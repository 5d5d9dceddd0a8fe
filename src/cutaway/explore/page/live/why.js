// Why a model wrote one token and not another (explore/causes/why.py; its fields have the same names here).

import {CutawayError} from "../engine/errors.js";
import {streamProbes} from "../engine/lens.js";
import {Tensor} from "../engine/tensor.js";
import {ablate, measureEach} from "./ablation.js";
import {attribute, METHODS} from "./attribution.js";
import {directContributions} from "./direct.js";
import {prepareExample} from "./example.js";
import {marginOf} from "./margin.js";
import {recordValues} from "./variants.js";

const MATTERS = 0.05; // a change of the margin by less than this share of it is not named as a cause
const ENDS = ["<s>", "</s>"]; // they are in every text

/**
 * All causes of a margin. Methods that need gradients are left out.
 * @param {object[]} targets the heads and sub-layers of the model (see live/ablation.js)
 * @param {import("../engine/slices.js").Slices} slices
 */
export async function explain(run, whole, margin, {methods = Object.keys(METHODS), targets, slices}) {
  const {model} = run, [token, rival] = whole.names([margin.token, margin.rival]), example = whole.until(margin.step);
  const attributions = [], chosen = new Set(["occlusion", ...methods].filter((method) => METHODS[method]));
  for (const method of chosen) attributions.push(await attribute(model, example, margin, method, slices));
  const lens = marginLens(model, example, margin), direct = directOrReason(model, example, margin);
  const found = {
    text: whole.text, output: whole.output, task: whole.task, terms: [margin], step: margin.step, token, rival,
    margin: lens.at(-1)[1], source: example.source, target: example.target_in, attributions,
    parts: await measureParts(model, example, margin, {targets, slices, value: lens.at(-1)[1], ...direct}),
    ...direct, lens, without: null,
  };
  found.without = await outputWithout(run, whole, mainHead(found), targets, slices.signal);
  return {...found, sentence: sentence(found)};
}

function directOrReason(model, example, margin) {
  try {
    return {direct: directContributions(model, example, margin), no_direct: null};
  } catch (error) {
    if (!(error instanceof CutawayError)) throw error;
    return {direct: null, no_direct: error.message}; // the head is not linear
  }
}

async function measureParts(model, example, margin, {targets, slices, value, direct}) {
  const without = await measureEach(model, targets, slices, () => marginOf(margin, example.logits(model)));
  return targets.map(({id, title, kind, stack, layer, part, head}, i) => ({
    id, title, kind, stack, layer, part, head, effect: without[i] - value, mean_effect: null,
    direct: direct?.[id] ?? null,
  }));
}

/** The margin read from the residual stream after each sub-layer; the last row is the margin itself. */
function marginLens(model, example, margin) {
  const {norm} = model.decoder ?? model.encoder, streams = streamProbes(model, {withSublayers: true});
  const values = recordValues(model, example, ...streams.values()), logits = example.logits(model);
  const rows = [...streams].map(([depth, name]) =>
    [depth, readMargin(model, example, margin, norm.forward(values.get(name)))]);
  return [...rows, ["output", marginOf(margin, logits)]];
}

/** The margin of a stream [1,T,D]. A head that does not pool reads only one position. */
function readMargin({head}, {places}, {step, token, rival}, x) {
  const at = places ? places[step] : step;
  const logits = head.forward(head.pool ? x : new Tensor([1, 1, x.shape[2]], x.row(at).slice())).row(0);
  return logits[token] - logits[rival];
}

/** The head without which the margin falls most. */
function mainHead({parts}) {
  const heads = parts.filter(({kind}) => kind === "head"), least = Math.min(...heads.map(({effect}) => effect));
  return heads.find(({effect}) => effect === least) ?? null;
}

/** The token of one side without which the margin falls most: {name, effect}. */
function strongestToken(names, effects) {
  const found = names.map((name, i) => ({name, effect: effects[i]})).filter(({name}) => !ENDS.includes(name));
  return found.reduce((best, each) => (best && best.effect >= each.effect ? best : each), null);
}

/** The model's own output without this head. null for an image, whose text is empty. */
async function outputWithout(run, {text, hidden}, head, targets, signal) {
  if (!head || !text) return null;
  const edit = ablate(run.model, targets, [head.id]);
  try {
    return (await prepareExample(run, text, {hidden}, signal)).output;
  } finally {
    edit.stop();
  }
}

/** The most important token and head, by what the margin is without them. */
function sentence(found) {
  const {margin, token, rival} = found, prefers = margin > 0 ? "prefers" : "does not prefer";
  return `The model ${prefers} “${token}” to “${rival}”: the margin is ${formatSigned(margin)} nats. `
    + `${sentenceAboutTokens(found)} ${sentenceAboutHeads(found)}`;
}

/** Of a model with a source, the cause is a source token. A stronger token of the output is named too. */
function sentenceAboutTokens({task, margin, source, target, attributions: [occlusion]}) {
  const matters = (each) => each?.effect >= MATTERS * Math.abs(margin);
  const without = ({effect}) => `without it, the margin is ${formatSigned(margin - effect)}`;
  const ofTarget = strongestToken(target, occlusion.target);
  const cause = source.length ? strongestToken(source, occlusion.source) : ofTarget;
  const place = task === "image_classification" ? "image is patch" : "text is";
  const first = matters(cause) ? `The cause in the ${place} “${cause.name}”: ${without(cause)}.`
    : "No single token of the input matters for it.";
  const isNamed = source.length && matters(ofTarget) && ofTarget.effect > (cause?.effect ?? 0);
  return isNamed ? `${first} In the output so far, “${ofTarget.name}” matters more: ${without(ofTarget)}.` : first;
}

function sentenceAboutHeads(found) {
  const {margin, output, without} = found, head = mainHead(found);
  if (!head || -head.effect < MATTERS * Math.abs(margin)) return "No single head matters for it.";
  const changed = without === null || without === output ? "" : `, and the output is “${without}”`;
  return `The most important head is ${head.title}: without it, the margin is ${formatSigned(margin + head.effect)}`
    + `${changed}.`;
}

/** 0.5 -> "+0.50" */
export function formatSigned(value) {
  return `${value < 0 ? "" : "+"}${value.toFixed(2)}`;
}
