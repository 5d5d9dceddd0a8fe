// The logit lens: the prediction read from the residual stream after each layer (nostalgebraist 2020).
//
//     x after layer i ──▶ final norm of the stack ──▶ head ──▶ a distribution
//
// All layers add to one residual stream, so the head can be applied after any of them.

import {probes} from "./probe.js";
import {softmax} from "./tensor.js";

/**
 * The probe of the residual stream at each depth: "embedding", "layer 0", ... -> probe name.
 * @param {object} options stack: by default the one that the head reads; withSublayers: also after each attention
 */
export function streamProbes(model, {stack = model.decoder ? "decoder" : "encoder", withSublayers = false} = {}) {
  const names = [...probes(model).keys()], embedded = names.filter((name) => name.endsWith("embedding.embedded"));
  const streams = new Map([["embedding", embedded.at(stack === "encoder" ? 0 : -1)]]);
  model[stack].layers.forEach((_, i) => {
    const isOfLayer = (name) => name.startsWith(`${stack}.layers.${i}.`) && name.endsWith(".stream");
    const ofLayer = names.filter(isOfLayer);
    for (const name of withSublayers ? ofLayer.slice(0, -1) : []) streams.set(`layer ${i}, ${sublayerOf(name)}`, name);
    streams.set(`layer ${i}`, ofLayer.at(-1)); // the input of the next layer
  });
  return streams;
}

/** decoder.layers.0.cross_attention_residual.stream -> cross-attention */
function sublayerOf(probe) {
  return probe.split(".").at(-2).replace(/_residual$/, "").replace("_", "-");
}

/**
 * At each depth, for each prediction: the most probable token, its probability, and that of the final answer.
 *
 * @param {Map<string, import("./tensor.js").Tensor>} recorded the streams of one text, from a recording that has ended
 * @param {number[]} answers the token or class that each prediction is compared with
 * @param {number[] | null} places the tokens at which the predictions are read; null: all
 * @returns {{rows: string[], tokens: number[][], p: number[][], final: number[][]}}
 */
export function lens(model, recorded, answers, places = null) {
  const {norm} = model.decoder ?? model.encoder;
  const prediction = {rows: [], tokens: [], p: [], final: []};
  for (const [depth, name] of streamProbes(model)) {
    const p_NV = softmax(model.head.forward(norm.forward(recorded.get(name))));
    const rows = answers.map((_, n) => p_NV.row(places ? places[n] : n));
    const best = rows.map((p_V) => p_V.reduce((best, p, token) => p > p_V[best] ? token : best, 0));
    prediction.rows.push(depth);
    prediction.tokens.push(best);
    prediction.p.push(rows.map((p_V, n) => p_V[best[n]]));
    prediction.final.push(rows.map((p_V, n) => p_V[answers[n]]));
  }
  return prediction;
}
