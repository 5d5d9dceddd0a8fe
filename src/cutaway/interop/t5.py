"""T5 (Raffel et al. 2020): the first version, and 1.1, whose output has a matrix of its own (Flan-T5 is one)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from cutaway.config import ModelConfig
from cutaway.errors import ConfigError
from cutaway.interop.architecture import ANY, NO_GROUPS, Architecture, ForeignConfig, demands, their_name, unless
from cutaway.interop.names import AS_IS, NameRule, NameTable, divided_by, in_layers, linear, norm, one, times
from cutaway.interop.tensors import Array

# "gated-gelu" is the approximation by tanh, for the sake of the files that were published first
FEED_FORWARDS = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "silu": "silu",
    "swish": "silu",
    "gated-gelu": "geglu_tanh",
    "gated-gelu_new": "geglu_tanh",
    "gated-gelu_python": "geglu",
    "gated-silu": "swiglu",
    "gated-swish": "swiglu",
}

DEMANDS = demands(
    family=("encoder_decoder",),
    head=("language",),
    pooling=("cls",),
    bias=(False,),
    position=("relative_bias",),
    norm=("rms",),
    norm_placement=("pre",),
    feed_forward=tuple(dict.fromkeys(FEED_FORWARDS.values())),
    embeddings=("shared", "inputs"),
    embedding_scale=("sqrt_d", "one"),
    embedding_norm=(False,),
    output_bias=(False,),
    segments=(0,),
    d_head=ANY,
    n_kv_heads=NO_GROUPS,
)

SHARED, OUTPUT = "shared.weight", "lm_head.weight"
DOUBLES = ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight")


def config_from(s: ForeignConfig, weights: Mapping[str, Array]) -> ModelConfig:
    """T5 scales its output by 1/sqrt(D) before the shared matrix, where we scale the embeddings by sqrt(D).

    1.1 does neither. Newer files say so in `scale_decoder_outputs`, older ones by tie_word_embeddings = false.
    """
    scaled = s.get("scale_decoder_outputs", s.values.get("tie_word_embeddings") is not False)
    tied = is_tied(s, weights)
    if scaled and not tied:
        raise ConfigError(
            f"{s.title} has an output matrix of its own ({OUTPUT}) and still scales what it reads, by config.json "
            "(tie_word_embeddings or scale_decoder_outputs is true). T5 1.1 does not scale it: if this is one, say "
            '"tie_word_embeddings": false there.'
        )
    width, n_heads = s.get("d_model", 512), s.get("num_heads", 8)
    layers, dropout = s.get("num_layers", 6), s.get("dropout_rate", 0.1)
    return ModelConfig(
        vocab_size=s.get("vocab_size", 32_128),
        d_model=width,
        d_ff=s.get("d_ff", 2048),
        n_heads=n_heads,
        d_head=unless(s.get("d_kv", 64), width // n_heads),
        encoder_layers=layers,
        decoder_layers=s.get("num_decoder_layers", layers),
        max_length=s.get("n_positions", 512),  # it has no limit; this is what it was trained with
        dropout=dropout,
        attention_dropout=dropout,
        bias=False,
        position="relative_bias",
        relative_buckets=s.get("relative_attention_num_buckets", 32),
        relative_distance=s.get("relative_attention_max_distance", 128),
        norm="rms",
        norm_placement="pre",
        norm_epsilon=s.get("layer_norm_epsilon", 1e-6),
        feed_forward=s.choice("feed_forward_proj", FEED_FORWARDS, "relu"),  # type: ignore[arg-type]
        embeddings="shared" if tied else "inputs",
        embedding_scale="sqrt_d" if scaled else "one",
    )


def is_tied(s: ForeignConfig, weights: Mapping[str, Array]) -> bool:
    """Whether the output is the shared matrix. Since their version 5 every config.json claims so: the file decides."""
    input_matrix = next((name for name in (SHARED, *DOUBLES) if name in weights), OUTPUT)
    if OUTPUT not in weights or np.array_equal(weights[OUTPUT], weights[input_matrix]):
        return True
    claims_so = s.get("tie_word_embeddings", True) and "scale_decoder_outputs" not in s.values
    return bool(claims_so)  # which is a contradiction, and refused when the tensors are read


def config_to(c: ModelConfig) -> dict[str, Any]:
    feed_forward = their_name(FEED_FORWARDS, c.feed_forward)
    return {
        "architectures": ["T5ForConditionalGeneration"],
        "vocab_size": c.vocab_size,
        "d_model": c.d_model,
        "d_kv": c.head_width,
        "d_ff": c.d_ff,
        "num_heads": c.n_heads,
        "num_layers": c.encoder_layers,
        "num_decoder_layers": c.decoder_layers,
        "n_positions": c.max_length,
        "dropout_rate": c.dropout,
        "relative_attention_num_buckets": c.relative_buckets,
        "relative_attention_max_distance": c.relative_distance,
        "layer_norm_epsilon": c.norm_epsilon,
        "feed_forward_proj": feed_forward,
        "tie_word_embeddings": is_scaled(c),
        "is_encoder_decoder": True,
    }


def is_scaled(c: ModelConfig) -> bool:
    """Whether they must scale the output: the factor is ours on the embeddings, in the same matrix."""
    return c.embeddings == "shared" and c.embedding_scale == "sqrt_d"


def table(c: ModelConfig) -> NameTable:
    shape = (c.vocab_size, c.d_model)
    scale = divided_by(math.sqrt(c.d_model)) if c.embedding_scale == "sqrt_d" else AS_IS
    bias = "block.0.layer.0.SelfAttention.relative_attention_bias.weight"  # in the first layer, but all use it
    buckets = (c.relative_buckets, c.n_heads)
    own_output = [] if c.embeddings == "shared" else [one("head.weight", OUTPUT, shape)]
    return NameTable(
        [
            one("source_embedding.tokens.weight", SHARED, shape, scale),
            *own_output,
            one("source_embedding.position.table", f"encoder.{bias}", buckets),
            one("target_embedding.position.table", f"decoder.{bias}", buckets),
            *stack(c, "encoder", c.encoder_layers, ("self_attention", "feed_forward")),
            *stack(c, "decoder", c.decoder_layers, ("self_attention", "cross_attention", "feed_forward")),
        ],
        duplicates=dict.fromkeys(DOUBLES if own_output else (*DOUBLES, OUTPUT), SHARED),
        # their way of saying "not scaled" is a matrix of its own, even if it is the same
        copies=[OUTPUT] if not own_output and not is_scaled(c) else [],
        unused={
            r"decoder\.block\.0\.layer\.1\.EncDecAttention\.relative_attention_bias\.weight": "never used, by T5 either"
        },
    )


# They number the sub-layers of a layer, where we name them.
MODULES = {
    "self_attention": "SelfAttention",
    "cross_attention": "EncDecAttention",
    "feed_forward": "DenseReluDense",
}


def stack(c: ModelConfig, name: str, n_layers: int, sublayers: tuple[str, ...]) -> Iterable[NameRule]:
    def layer(ours: str, theirs: str) -> Iterable[NameRule]:
        for i, sublayer in enumerate(sublayers):
            parts = feed_forward if sublayer == "feed_forward" else attention
            yield from parts(c, f"{ours}.{sublayer}", f"{theirs}.layer.{i}.{MODULES[sublayer]}")
            yield from norm(f"{ours}.{sublayer}_residual.norm", f"{theirs}.layer.{i}.layer_norm", c.d_model, bias=False)

    yield from in_layers(n_layers, f"{name}.layers", f"{name}.block", layer)
    yield from norm(f"{name}.norm", f"{name}.final_layer_norm", c.d_model, bias=False)


def attention(c: ModelConfig, ours: str, theirs: str) -> Iterable[NameRule]:
    """T5 does not divide its scores by sqrt(E), so our queries must be so much larger."""
    D, inner = c.d_model, c.n_heads * c.head_width
    yield from linear(f"{ours}.query", f"{theirs}.q", inner, D, False, times(math.sqrt(c.head_width)))
    yield from linear(f"{ours}.key", f"{theirs}.k", inner, D, False)
    yield from linear(f"{ours}.value", f"{theirs}.v", inner, D, False)
    yield from linear(f"{ours}.output", f"{theirs}.o", D, inner, False)


def feed_forward(c: ModelConfig, ours: str, theirs: str) -> Iterable[NameRule]:
    gated = their_name(FEED_FORWARDS, c.feed_forward).startswith("gated-")
    if gated:
        yield from linear(f"{ours}.gate", f"{theirs}.wi_0", c.d_ff, c.d_model, False)
    yield from linear(f"{ours}.expand", f"{theirs}.wi_1" if gated else f"{theirs}.wi", c.d_ff, c.d_model, False)
    yield from linear(f"{ours}.contract", f"{theirs}.wo", c.d_model, c.d_ff, False)


T5 = Architecture("t5", "T5", ("T5ForConditionalGeneration",), DEMANDS, config_from, config_to, table)
