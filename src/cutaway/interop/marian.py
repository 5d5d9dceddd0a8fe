"""Marian (Junczys-Dowmunt et al. 2018), the OPUS-MT translators: the paper's model, with post-norm.

Pegasus (Zhang et al. 2020) is the same with pre-norm. A run with norm_placement = "pre" is exported as Pegasus.

Their sinusoids are all sines, then all cosines; ours alternate. The order of the D numbers in the residual stream is
arbitrary if all parts agree on it. So it is permuted everywhere: in the columns of matrices that read the stream, in
the rows of matrices that write to it, and in the norms. The model computes exactly the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

import numpy as np

from cutaway.config import ModelConfig
from cutaway.interop.architecture import (
    ACTIVATIONS,
    DEFAULT_HEAD_WIDTH,
    NO_KV_GROUPS,
    Architecture,
    HuggingFaceConfig,
    SettingRequirement,
    hf_name,
    requirements,
)
from cutaway.interop.names import (
    NameRule,
    NameTable,
    TensorTransform,
    constant_rule,
    layer_rules,
    linear_rules,
    norm_rules,
    permute_columns,
    permute_rows,
    rename_rule,
    reshape,
)
from cutaway.interop.tensors import Array

SHARED, BIAS = "model.shared.weight", "final_logits_bias"
EPSILON = 1e-5  # fixed in their norms


def requirements_for(placement: str) -> dict[str, SettingRequirement]:
    return requirements(
        family=("encoder_decoder",),
        head=("language",),
        pooling=("cls",),
        bias=(True,),
        position=("sinusoidal",),
        norm=("layer",),
        norm_placement=(placement,),
        norm_epsilon=(EPSILON,),
        feed_forward=tuple(dict.fromkeys(ACTIVATIONS.values())),
        embeddings=("shared",),
        embedding_scale=("sqrt_d", "one"),
        embedding_norm=(False,),
        output_bias=(True, False),
        segments=(0,),
        d_head=DEFAULT_HEAD_WIDTH,
        n_kv_heads=NO_KV_GROUPS,
    )


def config_from(hf: HuggingFaceConfig, weights: Mapping[str, Array], placement: str) -> ModelConfig:
    vocabulary = hf.get("vocab_size", 58_101 if placement == "post" else 50_265)
    hf.require("decoder_vocab_size", vocabulary)
    hf.require("share_encoder_decoder_embeddings", True)
    hf.require("tie_word_embeddings", True)
    hf.require("static_position_embeddings", True)
    hf.require("normalize_embedding", False)
    hf.require("normalize_before", placement == "pre")
    hf.require("add_final_layer_norm", placement == "pre")
    heads, width = hf.get("encoder_attention_heads", 16), hf.get("encoder_ffn_dim", 4096)
    hf.require("decoder_attention_heads", heads, default=16)
    hf.require("decoder_ffn_dim", width, default=4096)
    for name in ("activation_dropout", "encoder_layerdrop", "decoder_layerdrop"):
        hf.note_dropped(name, 0.0)
    return ModelConfig(
        vocab_size=vocabulary,
        d_model=hf.get("d_model", 1024),
        d_ff=width,
        n_heads=heads,
        encoder_layers=hf.get("encoder_layers", 12),
        decoder_layers=hf.get("decoder_layers", 12),
        max_length=hf.get("max_position_embeddings", 1024),
        dropout=hf.get("dropout", 0.1),
        attention_dropout=hf.get("attention_dropout", 0.0),
        norm_placement=placement,  # type: ignore[arg-type]
        norm_epsilon=EPSILON,
        feed_forward=hf.choice("activation_function", ACTIVATIONS, "gelu"),  # type: ignore[arg-type]
        embedding_scale="sqrt_d" if hf.get("scale_embedding", False) else "one",
        output_bias=BIAS in weights,
    )


def config_to(c: ModelConfig, cls: str) -> dict[str, Any]:
    both_stacks = {
        f"{stack}_{name}": value
        for stack in ("encoder", "decoder")
        for name, value in (("ffn_dim", c.d_ff), ("attention_heads", c.n_heads), ("layerdrop", 0.0))
    }
    return {
        "architectures": [cls],
        "vocab_size": c.vocab_size,
        "d_model": c.d_model,
        "encoder_layers": c.encoder_layers,
        "decoder_layers": c.decoder_layers,
        **both_stacks,
        "max_position_embeddings": c.max_length,
        "dropout": c.dropout,
        "attention_dropout": c.attention_dropout,
        "activation_dropout": 0.0,
        "activation_function": hf_name(ACTIVATIONS, c.feed_forward),
        "scale_embedding": c.embedding_scale == "sqrt_d",
        "static_position_embeddings": True,
        "share_encoder_decoder_embeddings": True,
        "decoder_vocab_size": c.vocab_size,
        "tie_word_embeddings": True,
        "is_encoder_decoder": True,
        "forced_eos_token_id": None,  # the default of transformers is an id of another vocabulary
    }


def table(c: ModelConfig, placement: str) -> NameTable:
    V, D = c.vocab_size, c.d_model
    stacks = {"encoder": c.encoder_layers, "decoder": c.decoder_layers}
    positions = [sinusoid_rule(c, name) for name in stacks]
    rules = [rename_rule("source_embedding.tokens.weight", SHARED, (V, D), permute_columns(stream_order(c)))]
    for name, n_layers in stacks.items():
        rules += stack(c, name, n_layers)
        if placement == "pre":
            rules += norm_rules(f"{name}.norm", f"model.{name}.layer_norm", D, change=permute_rows(stream_order(c)))
    if c.output_bias:
        rules.append(rename_rule("head.bias", BIAS, (1, V), reshape((V,), (1, V))))
    no_bias = [] if c.output_bias else [constant_rule(BIAS, (1, V), lambda: np.zeros((1, V), np.float32))]
    duplicates = ("model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight", "lm_head.weight")
    return NameTable(
        rules,
        duplicates=dict.fromkeys(duplicates, SHARED),
        constants=[*no_bias, *(positions if placement == "pre" else [])],  # Pegasus files contain the sinusoids,
        unwritten_constants=positions if placement == "post" else [],  # Marian files do not
    )


def stream_order(c: ModelConfig) -> list[int]:
    """For each of our D numbers the index of theirs: a sine, its cosine, the next sine, ..."""
    half = c.d_model // 2
    return [index for i in range(half) for index in (i, half + i)]


def sinusoid_rule(c: ModelConfig, stack: str) -> NameRule:
    shape = (c.max_length, c.d_model)
    # the tolerance allows for half precision
    return constant_rule(f"model.{stack}.embed_positions.weight", shape, partial(sinusoids, *shape), tolerance=5e-3)


def sinusoids(length: int, d_model: int) -> Array:
    """The sinusoids in their order: all sines, then all cosines. [length, D]"""
    angles = np.arange(length)[:, None] / 10_000.0 ** (np.arange(0, d_model, 2) / d_model)
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=1).astype(np.float32)


def stack(c: ModelConfig, name: str, n_layers: int) -> Iterable[NameRule]:
    order = stream_order(c)
    reads, writes = permute_columns(order), permute_rows(order)
    attentions = {"self_attention": "self_attn"} | ({"cross_attention": "encoder_attn"} if name == "decoder" else {})

    def layer(ours: str, theirs: str) -> Iterable[NameRule]:
        for attention, their_attention in attentions.items():
            yield from attention_parts(c, f"{ours}.{attention}", f"{theirs}.{their_attention}", reads, writes)
            norms = f"{ours}.{attention}_residual.norm", f"{theirs}.{their_attention}_layer_norm"
            yield from norm_rules(*norms, c.d_model, change=writes)
        yield from linear_rules(f"{ours}.feed_forward.expand", f"{theirs}.fc1", c.d_ff, c.d_model, True, reads)
        yield from linear_rules(
            f"{ours}.feed_forward.contract", f"{theirs}.fc2", c.d_model, c.d_ff, True, writes, writes
        )
        yield from norm_rules(
            f"{ours}.feed_forward_residual.norm", f"{theirs}.final_layer_norm", c.d_model, change=writes
        )

    return layer_rules(n_layers, f"{name}.layers", f"model.{name}.layers", layer)


def attention_parts(
    c: ModelConfig, ours: str, theirs: str, reads: TensorTransform, writes: TensorTransform
) -> Iterable[NameRule]:
    """Query, key and value read the stream or the memory, which has the same order. The output writes to the stream."""
    for part, name in (("query", "q_proj"), ("key", "k_proj"), ("value", "v_proj")):
        yield from linear_rules(f"{ours}.{part}", f"{theirs}.{name}", c.d_model, c.d_model, True, reads)
    yield from linear_rules(f"{ours}.output", f"{theirs}.out_proj", c.d_model, c.d_model, True, writes, writes)


def architecture(model_type: str, title: str, cls: str, placement: str) -> Architecture:
    return Architecture(
        model_type,
        title,
        (cls,),
        requirements_for(placement),
        lambda hf, weights: config_from(hf, weights, placement),
        lambda c: config_to(c, cls),
        lambda c: table(c, placement),
    )


MARIAN = architecture("marian", "Marian", "MarianMTModel", "post")
PEGASUS = architecture("pegasus", "Pegasus", "PegasusForConditionalGeneration", "pre")
