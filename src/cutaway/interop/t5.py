"""T5 (Raffel et al. 2020): version 1.0, and version 1.1 with a separate output matrix (for example Flan-T5)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from cutaway.config import ModelConfig
from cutaway.errors import ConfigError
from cutaway.interop.architecture import (
    ANY,
    NO_KV_GROUPS,
    Architecture,
    HuggingFaceConfig,
    hf_name,
    requirements,
    zero_if_default,
)
from cutaway.interop.names import (
    UNCHANGED,
    NameRule,
    NameTable,
    divide,
    layer_rules,
    linear_rules,
    multiply,
    norm_rules,
    rename_rule,
)
from cutaway.interop.tensors import Array

# "gated-gelu" means the tanh approximation, because the first published files use it so
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

REQUIREMENTS = requirements(
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
    n_kv_heads=NO_KV_GROUPS,
)

SHARED, OUTPUT = "shared.weight", "lm_head.weight"
DUPLICATES = ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight")


def config_from(hf: HuggingFaceConfig, weights: Mapping[str, Array]) -> ModelConfig:
    """T5 1.0 scales the output by 1/sqrt(D) before the shared matrix; we scale the embeddings by sqrt(D) instead.

    T5 1.1 does neither. Newer files have `scale_decoder_outputs` for it, older ones tie_word_embeddings = false.
    """
    scaled = hf.get("scale_decoder_outputs", hf.values.get("tie_word_embeddings") is not False)
    tied = is_tied(hf, weights)
    if scaled and not tied:
        raise ConfigError(
            f"{hf.title} has a separate output matrix ({OUTPUT}), but its config.json also scales the output "
            "(tie_word_embeddings or scale_decoder_outputs is true). If this is T5 1.1, which does not scale, set "
            '"tie_word_embeddings": false there.'
        )
    width, n_heads = hf.get("d_model", 512), hf.get("num_heads", 8)
    layers, dropout = hf.get("num_layers", 6), hf.get("dropout_rate", 0.1)
    return ModelConfig(
        vocab_size=hf.get("vocab_size", 32_128),
        d_model=width,
        d_ff=hf.get("d_ff", 2048),
        n_heads=n_heads,
        d_head=zero_if_default(hf.get("d_kv", 64), width // n_heads),
        encoder_layers=layers,
        decoder_layers=hf.get("num_decoder_layers", layers),
        max_length=hf.get("n_positions", 512),  # T5 has no limit; this is its training length
        dropout=dropout,
        attention_dropout=dropout,
        bias=False,
        position="relative_bias",
        relative_buckets=hf.get("relative_attention_num_buckets", 32),
        relative_distance=hf.get("relative_attention_max_distance", 128),
        norm="rms",
        norm_placement="pre",
        norm_epsilon=hf.get("layer_norm_epsilon", 1e-6),
        feed_forward=hf.choice("feed_forward_proj", FEED_FORWARDS, "relu"),  # type: ignore[arg-type]
        embeddings="shared" if tied else "inputs",
        embedding_scale="sqrt_d" if scaled else "one",
    )


def is_tied(hf: HuggingFaceConfig, weights: Mapping[str, Array]) -> bool:
    """Whether the output is the shared matrix. transformers 5 always writes tie_word_embeddings: the weights decide."""
    input_matrix = next((name for name in (SHARED, *DUPLICATES) if name in weights), OUTPUT)
    if OUTPUT not in weights or np.array_equal(weights[OUTPUT], weights[input_matrix]):
        return True
    claims_tied = hf.get("tie_word_embeddings", True) and "scale_decoder_outputs" not in hf.values
    return bool(claims_tied)  # a contradiction, which raises when the tensors are read


def config_to(c: ModelConfig) -> dict[str, Any]:
    feed_forward = hf_name(FEED_FORWARDS, c.feed_forward)
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
    """Whether their model must scale its output, because ours scales the embeddings of the same matrix."""
    return c.embeddings == "shared" and c.embedding_scale == "sqrt_d"


def table(c: ModelConfig) -> NameTable:
    shape = (c.vocab_size, c.d_model)
    scale = divide(math.sqrt(c.d_model)) if c.embedding_scale == "sqrt_d" else UNCHANGED
    bias = "block.0.layer.0.SelfAttention.relative_attention_bias.weight"  # stored in the first layer, used by all
    buckets = (c.relative_buckets, c.n_heads)
    own_output = [] if c.embeddings == "shared" else [rename_rule("head.weight", OUTPUT, shape)]
    return NameTable(
        [
            rename_rule("source_embedding.tokens.weight", SHARED, shape, scale),
            *own_output,
            rename_rule("source_embedding.position.table", f"encoder.{bias}", buckets),
            rename_rule("target_embedding.position.table", f"decoder.{bias}", buckets),
            *stack(c, "encoder", c.encoder_layers, ("self_attention", "feed_forward")),
            *stack(c, "decoder", c.decoder_layers, ("self_attention", "cross_attention", "feed_forward")),
        ],
        duplicates=dict.fromkeys(DUPLICATES if own_output else (*DUPLICATES, OUTPUT), SHARED),
        # a separate output matrix means "not scaled", even if it has the same numbers
        written_duplicates=[OUTPUT] if not own_output and not is_scaled(c) else [],
        unused={
            r"decoder\.block\.0\.layer\.1\.EncDecAttention\.relative_attention_bias\.weight": "T5 itself never uses it"
        },
    )


# our name of a sub-layer -> their module; their sub-layers are numbered
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
            yield from norm_rules(
                f"{ours}.{sublayer}_residual.norm", f"{theirs}.layer.{i}.layer_norm", c.d_model, bias=False
            )

    yield from layer_rules(n_layers, f"{name}.layers", f"{name}.block", layer)
    yield from norm_rules(f"{name}.norm", f"{name}.final_layer_norm", c.d_model, bias=False)


def attention(c: ModelConfig, ours: str, theirs: str) -> Iterable[NameRule]:
    """T5 does not divide scores by sqrt(E), so our queries are multiplied by it."""
    D, inner = c.d_model, c.n_heads * c.head_width
    yield from linear_rules(f"{ours}.query", f"{theirs}.q", inner, D, False, multiply(math.sqrt(c.head_width)))
    yield from linear_rules(f"{ours}.key", f"{theirs}.k", inner, D, False)
    yield from linear_rules(f"{ours}.value", f"{theirs}.v", inner, D, False)
    yield from linear_rules(f"{ours}.output", f"{theirs}.o", D, inner, False)


def feed_forward(c: ModelConfig, ours: str, theirs: str) -> Iterable[NameRule]:
    is_gated = hf_name(FEED_FORWARDS, c.feed_forward).startswith("gated-")
    if is_gated:
        yield from linear_rules(f"{ours}.gate", f"{theirs}.wi_0", c.d_ff, c.d_model, False)
    yield from linear_rules(
        f"{ours}.expand", f"{theirs}.wi_1" if is_gated else f"{theirs}.wi", c.d_ff, c.d_model, False
    )
    yield from linear_rules(f"{ours}.contract", f"{theirs}.wo", c.d_model, c.d_ff, False)


T5 = Architecture("t5", "T5", ("T5ForConditionalGeneration",), REQUIREMENTS, config_from, config_to, table)
