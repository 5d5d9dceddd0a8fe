// Build a model from the table `model` of a run's config.json and from its weights. No other file reads the table.
//
// One table for each setting: its value -> a function that makes the part.

import {MultiHeadAttention} from "./attention.js";
import {InputEmbedding, LanguageHead, TokenEmbedding} from "./embedding.js";
import {ConfigError} from "./errors.js";
import {Experts} from "./experts.js";
import {FeedForward, GatedFeedForward, gelu, geluTanh, relu, reluSquared, silu} from "./feedforward.js";
import {AttentionPool, FirstPool, FirstTanhPool, MaxPool, MeanPool} from "./heads.js";
import {ClassHead, MaskedLanguageHead, TagHead, VectorHead} from "./heads.js";
import {Layer, ParallelLayer, Stack} from "./layers.js";
import {LinearAttention} from "./linear_attention.js";
import {SlidingWindow, Strided} from "./masks.js";
import {DecoderOnly, EncoderDecoder, EncoderOnly, VisionTransformer} from "./models.js";
import {Identity, loadWeights} from "./modules.js";
import {LayerNorm, RMSNorm} from "./norms.js";
import {PatchEmbedding} from "./patches.js";
import {LearnedPosition, Position, RotaryPosition, SinusoidalPosition} from "./positions.js";
import {linearScaling, llama3Scaling} from "./positions.js";
import {AlibiPosition, RelativeBiasPosition, RelativePosition} from "./relative_positions.js";
import {PostNorm, PreNorm, SandwichNorm} from "./residual.js";
import {readSettings} from "./settings.js";

// the module, and the mask rules for self-attention
const ATTENTIONS = {
  full: [MultiHeadAttention, () => []],
  window: [MultiHeadAttention, (c) => [new SlidingWindow(c.attentionWindow)]],
  sparse: [MultiHeadAttention, (c) => [new Strided(c.attentionWindow)]],
  linear: [LinearAttention, () => []],
};

const ROPE_SCALINGS = {
  none: () => null,
  linear: (c) => linearScaling(c.ropeFactor),
  llama3: (c) => llama3Scaling(c.ropeFactor, c.ropeLowFreqFactor, c.ropeHighFreqFactor, c.ropeOriginalLength),
};

// the second argument: whether it is for a causal decoder
const POSITIONS = {
  sinusoidal: (c) => new SinusoidalPosition(c.dModel, c.nPositions),
  learned: (c) => new LearnedPosition(c.dModel, c.nPositions),
  rope: (c) => new RotaryPosition(c.headWidth, c.nPositions, c.ropeBase, choose(ROPE_SCALINGS, "rope_scaling", c)(c)),
  alibi: (c) => new AlibiPosition(c.nHeads, c.nPositions),
  relative_bias: (c, isCausal) =>
    new RelativeBiasPosition(c.nHeads, c.nPositions, c.relativeBuckets, c.relativeDistance, isCausal),
  relative: (c) => new RelativePosition(c.headWidth, c.nPositions, c.relativeClip),
  none: (c) => new Position(c.nPositions),
};

const NORMS = {layer: LayerNorm, rms: RMSNorm};

const NORM_PLACEMENTS = {post: PostNorm, pre: PreNorm, sandwich: SandwichNorm};

const FEED_FORWARDS = {
  relu: (c) => new FeedForward(c.dModel, c.dFf, relu, c.bias),
  gelu: (c) => new FeedForward(c.dModel, c.dFf, gelu, c.bias),
  gelu_tanh: (c) => new FeedForward(c.dModel, c.dFf, geluTanh, c.bias),
  silu: (c) => new FeedForward(c.dModel, c.dFf, silu, c.bias),
  relu2: (c) => new FeedForward(c.dModel, c.dFf, reluSquared, c.bias),
  swiglu: (c) => new GatedFeedForward(c.dModel, c.dFf, silu, c.bias),
  geglu: (c) => new GatedFeedForward(c.dModel, c.dFf, gelu, c.bias),
  geglu_tanh: (c) => new GatedFeedForward(c.dModel, c.dFf, geluTanh, c.bias),
};

const POOLINGS = {
  cls: () => new FirstPool(),
  cls_tanh: (c) => new FirstTanhPool(c.dModel),
  mean: () => new MeanPool(),
  max: () => new MaxPool(),
  attention: (c) => new AttentionPool(c.dModel),
};

const FAMILIES = {encoder_decoder: encoderDecoder, encoder: encoderOnly, decoder: decoderOnly, vision};

// the heads of an encoder-only model
const HEADS = {
  language: (c, tokens) => new MaskedLanguageHead(c.vocabSize, c.dModel, norm(c), sharedMatrix(c, tokens)),
  tags: (c) => new TagHead(c.nClasses, c.dModel),
  classes: (c) => classHead(c),
  vectors: (c) => new VectorHead(choose(POOLINGS, "pooling", c)(c)),
};

const BLOCKS = {sequential: sequentialLayer, parallel: parallelLayer};

/**
 * @param {Object} table the table `model` of config.json
 * @param {Map<string, import("./tensor.js").Tensor>} weights by name (weights.js)
 * @param {string} where the name of the weights file, for errors
 */
export function buildModel(table, weights, where = "the weights file") {
  const config = readSettings(table), model = choose(FAMILIES, "family", config)(config);
  loadWeights(model, weights, where);
  return model;
}

/** The entry of a table for a setting. `name` is the setting as it is called in config.json. */
function choose(entries, name, config) {
  const value = config.table[name];
  if (Object.hasOwn(entries, value)) return entries[value];
  throw new ConfigError(`the JavaScript engine does not support model.${name} = '${value}'; it supports `
    + `${Object.keys(entries).join(", ")}.`);
}

function encoderDecoder(c) {
  const source = tokenEmbedding(c), target = ["shared", "inputs"].includes(c.embeddings) ? source : tokenEmbedding(c);
  const sourcePosition = position(c), targetPosition = position(c, true);
  return new EncoderDecoder({
    sourceEmbedding: inputEmbedding(c, source, sourcePosition),
    targetEmbedding: inputEmbedding(c, target, targetPosition),
    encoder: stack(c, c.encoderLayers, sourcePosition),
    decoder: stack(c, c.decoderLayers, targetPosition, true, true),
    head: languageHead(c, target),
    rules: rules(c),
  });
}

function decoderOnly(c) {
  const tokens = tokenEmbedding(c), scheme = position(c, true);
  return new DecoderOnly({
    embedding: inputEmbedding(c, tokens, scheme),
    decoder: stack(c, c.decoderLayers, scheme, true, c.crossAttention),
    head: languageHead(c, tokens),
    rules: rules(c),
  });
}

function encoderOnly(c) {
  const tokens = tokenEmbedding(c), scheme = position(c);
  return new EncoderOnly({
    embedding: inputEmbedding(c, tokens, scheme),
    encoder: stack(c, c.encoderLayers, scheme),
    head: choose(HEADS, "head", c)(c, tokens),
    rules: rules(c),
  });
}

function vision(c) {
  const scheme = position(c), {imageSize, patchSize, channels, dModel} = c, hasClassToken = c.pooling === "cls";
  return new VisionTransformer({
    embedding: new PatchEmbedding(
      {imageSize, patchSize, channels, dModel, position: inputPosition(scheme), hasClassToken}),
    encoder: stack(c, c.encoderLayers, scheme),
    head: classHead(c),
    rules: rules(c),
  });
}

function classHead(c) {
  return new ClassHead(choose(POOLINGS, "pooling", c)(c), c.nClasses, c.dModel);
}

function tokenEmbedding(c) {
  return new TokenEmbedding(c.vocabSize, c.dModel, c.embeddingScale === "sqrt_d");
}

function sharedMatrix(c, tokens) {
  return ["shared", "tied"].includes(c.embeddings) ? tokens.weight : null;
}

function languageHead(c, tokens) {
  return new LanguageHead(c.vocabSize, c.dModel, sharedMatrix(c, tokens), c.outputBias);
}

function inputEmbedding(c, tokens, scheme) {
  const segments = c.segments ? new TokenEmbedding(c.segments, c.dModel, false) : null;
  return new InputEmbedding(tokens, inputPosition(scheme), c.embeddingNorm ? norm(c) : null, segments);
}

function position(c, isCausal = false) {
  return choose(POSITIONS, "position", c)(c, isCausal);
}

/** The scheme for the input. A scheme with one instance per layer does nothing there. */
function inputPosition(scheme) {
  return scheme.perLayer ? new Position(scheme.maxLength) : scheme;
}

function rules(c) {
  return choose(ATTENTIONS, "attention", c)[1](c);
}

/** Layers that share one position scheme, or have one each if it is `perLayer`. */
function stack(c, nLayers, scheme, isCausal = false, withCrossAttention = false) {
  const makeLayer = choose(BLOCKS, "block", c), {hasNormedOutput} = choose(NORM_PLACEMENTS, "norm_placement", c);
  const layers = Array.from({length: nLayers}, () =>
    makeLayer(c, scheme.perLayer ? position(c, isCausal) : scheme, withCrossAttention));
  return new Stack(layers, hasNormedOutput ? new Identity() : norm(c));
}

function sequentialLayer(c, scheme, withCrossAttention) {
  return new Layer({
    selfAttention: attention(c, scheme),
    selfAttentionResidual: residual(c),
    crossAttention: withCrossAttention ? attention(c) : null,
    crossAttentionResidual: withCrossAttention ? residual(c) : null,
    feedForward: feedForward(c),
    feedForwardResidual: residual(c),
  });
}

function parallelLayer(c, scheme, withCrossAttention) {
  return new ParallelLayer({
    selfAttention: attention(c, scheme),
    crossAttention: withCrossAttention ? attention(c) : null,
    feedForward: feedForward(c),
    residual: residual(c),
  });
}

/** Self-attention with a position scheme, or cross-attention without one. */
function attention(c, scheme) {
  const Attention = choose(ATTENTIONS, "attention", c)[0], Norm = choose(NORMS, "norm", c);
  return new Attention({
    dModel: c.dModel,
    nHeads: c.nHeads,
    nKvHeads: c.kvHeads,
    dHead: c.headWidth,
    bias: c.bias,
    position: scheme,
    headNorm: c.qkNorm ? () => new Norm(c.headWidth, c.normEpsilon) : null,
    cap: c.attentionSoftcap,
  });
}

function feedForward(c) {
  const make = choose(FEED_FORWARDS, "feed_forward", c);
  if (!c.experts) return make(c);
  return new Experts(Array.from({length: c.experts}, () => make(c)), c.dModel, c.expertsPerToken);
}

function residual(c) {
  return new (choose(NORM_PLACEMENTS, "norm_placement", c))(() => norm(c));
}

function norm(c) {
  return new (choose(NORMS, "norm", c))(c.dModel, c.normEpsilon);
}
