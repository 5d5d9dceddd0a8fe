"""Marian (Junczys-Dowmunt et al. 2018), the translators of OPUS-MT: the paper's model, norms after each sub-layer.

And Pegasus (Zhang et al. 2020), which is the same with its norms before them: what a run with norm_placement = "pre"
is to Hugging Face.

Their table of sinusoids has all sines first and all cosines behind them, ours alternate. The order of the D numbers in
the residual stream is arbitrary as long as everything agrees on it, so it is changed everywhere: in the columns of what
reads the stream, in the rows of what writes to it, in the norms along it. The model is exactly the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

import numpy as np

from cutaway.config import ModelConfig
from cutaway.interop.architecture import (
    ACTIVATIONS,
    NO_GROUPS,
    ONE_HEAD_WIDTH,
    Architecture,
    ForeignConfig,
    Requirement,
    demands,
    their_name,
)
from cutaway.interop.names import (
    NameRule,
    NameTable,
    TensorTransform,
    columns,
    given,
    in_layers,
    linear,
    norm,
    one,
    rows,
    shaped,
)
from cutaway.interop.tensors import Array

SHARED, BIAS = "model.shared.weight", "final_logits_bias"
EPSILON = 1e-5  # of their norms, always


def demands_of(placement: str) -> dict[str, Requirement]:
    return demands(
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
        d_head=ONE_HEAD_WIDTH,
        n_kv_heads=NO_GROUPS,
    )


def config_from(s: ForeignConfig, weights: Mapping[str, Array], placement: str) -> ModelConfig:
    vocabulary = s.get("vocab_size", 58_101 if placement == "post" else 50_265)
    s.only("decoder_vocab_size", vocabulary)
    s.only("share_encoder_decoder_embeddings", True)
    s.only("tie_word_embeddings", True)
    s.only("static_position_embeddings", True)
    s.only("normalize_embedding", False)
    s.only("normalize_before", placement == "pre")
    s.only("add_final_layer_norm", placement == "pre")
    heads, width = s.get("encoder_attention_heads", 16), s.get("encoder_ffn_dim", 4096)
    s.only("decoder_attention_heads", heads, default=16)
    s.only("decoder_ffn_dim", width, default=4096)
    for name in ("activation_dropout", "encoder_layerdrop", "decoder_layerdrop"):
        s.note_unless(name, 0.0)
    return ModelConfig(
        vocab_size=vocabulary,
        d_model=s.get("d_model", 1024),
        d_ff=width,
        n_heads=heads,
        encoder_layers=s.get("encoder_layers", 12),
        decoder_layers=s.get("decoder_layers", 12),
        max_length=s.get("max_position_embeddings", 1024),
        dropout=s.get("dropout", 0.1),
        attention_dropout=s.get("attention_dropout", 0.0),
        norm_placement=placement,  # type: ignore[arg-type]
        norm_epsilon=EPSILON,
        feed_forward=s.choice("activation_function", ACTIVATIONS, "gelu"),  # type: ignore[arg-type]
        embedding_scale="sqrt_d" if s.get("scale_embedding", False) else "one",
        output_bias=BIAS in weights,
    )


def config_to(c: ModelConfig, cls: str) -> dict[str, Any]:
    of_both = {
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
        **of_both,
        "max_position_embeddings": c.max_length,
        "dropout": c.dropout,
        "attention_dropout": c.attention_dropout,
        "activation_dropout": 0.0,
        "activation_function": their_name(ACTIVATIONS, c.feed_forward),
        "scale_embedding": c.embedding_scale == "sqrt_d",
        "static_position_embeddings": True,
        "share_encoder_decoder_embeddings": True,
        "decoder_vocab_size": c.vocab_size,
        "tie_word_embeddings": True,
        "is_encoder_decoder": True,
        "forced_eos_token_id": None,  # otherwise their library would take the id of another vocabulary
    }


def table(c: ModelConfig, placement: str) -> NameTable:
    V, D = c.vocab_size, c.d_model
    stacks = {"encoder": c.encoder_layers, "decoder": c.decoder_layers}
    positions = [sinusoids_of(c, name) for name in stacks]
    entries = [one("source_embedding.tokens.weight", SHARED, (V, D), columns(stream(c)))]
    for name, n_layers in stacks.items():
        entries += stack(c, name, n_layers)
        if placement == "pre":
            entries += norm(f"{name}.norm", f"model.{name}.layer_norm", D, change=rows(stream(c)))
    if c.output_bias:
        entries.append(one("head.bias", BIAS, (1, V), shaped((V,), (1, V))))
    no_bias = [] if c.output_bias else [given(BIAS, (1, V), lambda: np.zeros((1, V), np.float32))]
    doubles = ("model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight", "lm_head.weight")
    return NameTable(
        entries,
        duplicates=dict.fromkeys(doubles, SHARED),
        known=[*no_bias, *(positions if placement == "pre" else [])],  # Pegasus has its sinusoids in its files,
        checked=positions if placement == "post" else [],  # of Marian's they are left out
    )


def stream(c: ModelConfig) -> list[int]:
    """Which of their D numbers is each of ours: a sine, its cosine, the next sine."""
    half = c.d_model // 2
    return [place for i in range(half) for place in (i, half + i)]


def sinusoids_of(c: ModelConfig, stack: str) -> NameRule:
    shape = (c.max_length, c.d_model)
    # as far as half precision may have rounded them
    return given(f"model.{stack}.embed_positions.weight", shape, partial(sinusoids, *shape), tolerance=5e-3)


def sinusoids(length: int, d_model: int) -> Array:
    """In their order: all sines, all cosines. -> [length, D]"""
    angles = np.arange(length)[:, None] / 10_000.0 ** (np.arange(0, d_model, 2) / d_model)
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=1).astype(np.float32)


def stack(c: ModelConfig, name: str, n_layers: int) -> Iterable[NameRule]:
    order = stream(c)
    reads, writes = columns(order), rows(order)
    attentions = {"self_attention": "self_attn"} | ({"cross_attention": "encoder_attn"} if name == "decoder" else {})

    def layer(ours: str, theirs: str) -> Iterable[NameRule]:
        for attention, their_attention in attentions.items():
            yield from attention_parts(c, f"{ours}.{attention}", f"{theirs}.{their_attention}", reads, writes)
            yield from norm(f"{ours}.{attention}_residual.norm", f"{theirs}.{their_attention}_layer_norm", c.d_model,
                            change=writes)  # fmt: skip
        yield from linear(f"{ours}.feed_forward.expand", f"{theirs}.fc1", c.d_ff, c.d_model, True, reads)
        yield from linear(f"{ours}.feed_forward.contract", f"{theirs}.fc2", c.d_model, c.d_ff, True, writes, writes)
        yield from norm(f"{ours}.feed_forward_residual.norm", f"{theirs}.final_layer_norm", c.d_model, change=writes)

    return in_layers(n_layers, f"{name}.layers", f"model.{name}.layers", layer)


def attention_parts(
    c: ModelConfig, ours: str, theirs: str, reads: TensorTransform, writes: TensorTransform
) -> Iterable[NameRule]:
    """Queries, keys and values read the stream, or the memory, whose order is the same; the output writes to it."""
    for part, name in (("query", "q_proj"), ("key", "k_proj"), ("value", "v_proj")):
        yield from linear(f"{ours}.{part}", f"{theirs}.{name}", c.d_model, c.d_model, True, reads)
    yield from linear(f"{ours}.output", f"{theirs}.out_proj", c.d_model, c.d_model, True, writes, writes)


def architecture(model_type: str, title: str, cls: str, placement: str) -> Architecture:
    return Architecture(
        model_type,
        title,
        (cls,),
        demands_of(placement),
        lambda s, weights: config_from(s, weights, placement),
        lambda c: config_to(c, cls),
        lambda c: table(c, placement),
    )


MARIAN = architecture("marian", "Marian", "MarianMTModel", "post")
PEGASUS = architecture("pegasus", "Pegasus", "PegasusForConditionalGeneration", "pre")
