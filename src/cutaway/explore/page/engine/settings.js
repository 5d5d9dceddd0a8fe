// The table `model` of a run's config.json, and the defaults of settings that it lacks.

import {ConfigError} from "./errors.js";
import {toCamelCase} from "./names.js";

// The same as in config/model.py; a test compares them.
export const DEFAULTS = {
  family: "encoder_decoder", head: "language", vocab_size: 0, n_classes: 0, pooling: "cls",
  d_model: 512, d_ff: 2048, encoder_layers: 6, decoder_layers: 6, dropout: 0.1, bias: true, max_length: 1024,
  n_heads: 8, n_kv_heads: 0, d_head: 0, attention: "full", attention_window: 128, attention_kernel: "fused",
  attention_dropout: 0, attention_softcap: 0, qk_norm: false, cross_attention: false,
  position: "sinusoidal", rope_base: 10_000, rope_scaling: "none", rope_factor: 1, rope_low_freq_factor: 1,
  rope_high_freq_factor: 4, rope_original_length: 8_192, relative_buckets: 32, relative_distance: 128,
  relative_clip: 16,
  norm: "layer", norm_placement: "post", norm_epsilon: 1e-5, block: "sequential",
  feed_forward: "relu", experts: 0, experts_per_token: 2, expert_capacity: 0,
  embeddings: "shared", output_bias: false, embedding_scale: "sqrt_d", embedding_norm: false, init: "xavier",
  segments: 0,
  image_size: 0, patch_size: 0, channels: 1, pixels: "unit", resize: "bilinear",
};

// Settings with names for values, but without a table of modules in build.js.
const CHOICES = {
  attention_kernel: ["fused", "exact"], // both compute the same; here there is only the exact one
  embeddings: ["shared", "tied", "inputs", "separate"],
  embedding_scale: ["sqrt_d", "one"],
  pixels: ["unit"],
};

/** The settings of a model, in camelCase, with the values that follow from others; `table` has the original names. */
export function readSettings(given) {
  const table = {...DEFAULTS, ...given};
  for (const [name, value] of Object.entries(table)) check(name, value);
  const c = {table};
  for (const [name, value] of Object.entries(table)) c[toCamelCase(name)] = value;
  c.headWidth = c.dHead || c.dModel / c.nHeads;
  c.kvHeads = c.nKvHeads || c.nHeads;
  const nPatches = (c.imageSize / c.patchSize) ** 2;
  c.nPositions = c.family === "vision" ? nPatches + (c.pooling === "cls" ? 1 : 0) : c.maxLength;
  for (const [name, width] of [["head width", c.headWidth], ["group of heads", c.nHeads / c.kvHeads],
                               ["number of positions", c.nPositions]]) {
    if (!Number.isInteger(width)) throw new ConfigError(`the model's ${name} is ${width}, not a whole number.`);
  }
  return c;
}

function check(name, value) {
  if (!Object.hasOwn(DEFAULTS, name)) {
    throw new ConfigError(`the JavaScript engine does not know the setting model.${name} = ${JSON.stringify(value)}.`);
  }
  if (typeof value !== typeof DEFAULTS[name]) {
    throw new ConfigError(`model.${name} = ${JSON.stringify(value)} must be a ${typeof DEFAULTS[name]}.`);
  }
  if (CHOICES[name] && !CHOICES[name].includes(value)) {
    throw new ConfigError(`the JavaScript engine does not support model.${name} = '${value}'; it supports `
      + `${CHOICES[name].join(", ")}.`);
  }
}
