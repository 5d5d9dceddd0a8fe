"""Llama (Touvron et al. 2023), and models of the same architecture: SmolLM, TinyLlama."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from cutaway.config import ModelConfig
from cutaway.errors import ConfigError
from cutaway.interop.architecture import (
    ANY,
    Architecture,
    HuggingFaceConfig,
    SettingRequirement,
    decoder_tokens,
    hf_name,
    is_tied,
    requirements,
    zero_if_default,
)
from cutaway.interop.names import NameRule, NameTable, layer_rules, linear_rules, norm_rules, permute_rows
from cutaway.interop.tensors import Array

GATES = {
    "silu": "swiglu",
    "swish": "swiglu",
    "gelu": "geglu",
    "gelu_pytorch_tanh": "geglu_tanh",
    "gelu_new": "geglu_tanh",
    "gelu_fast": "geglu_tanh",
}

# their rope type -> our rope_scaling, and the names of its settings: ours -> theirs
ROPE: dict[str, tuple[str, dict[str, str]]] = {
    "default": ("none", {}),
    "linear": ("linear", {"rope_factor": "factor"}),
    "llama3": (
        "llama3",
        {
            "rope_factor": "factor",
            "rope_low_freq_factor": "low_freq_factor",
            "rope_high_freq_factor": "high_freq_factor",
            "rope_original_length": "original_max_position_embeddings",
        },
    ),
}

REQUIREMENTS = requirements(
    family=("decoder",),
    head=("language",),
    pooling=("cls",),
    bias=(False, True),
    position=("rope",),
    norm=("rms",),
    norm_placement=("pre",),
    feed_forward=tuple(dict.fromkeys(GATES.values())),
    embeddings=("shared", "tied", "separate"),
    embedding_scale=("one", "sqrt_d"),
    embedding_norm=(False,),
    output_bias=(False,),
    segments=(0,),
    n_heads=SettingRequirement(lambda c: c.d_model % c.n_heads == 0, "a divisor of d_model, even if d_head is set"),
    d_head=ANY,
    n_kv_heads=ANY,
)


def config_from(hf: HuggingFaceConfig, weights: Mapping[str, Array]) -> ModelConfig:
    bias = hf.get("attention_bias", False)
    if bias != (mlp_bias := hf.get("mlp_bias", False)):
        raise ConfigError(
            f"{hf.title} has attention_bias = {bias} and mlp_bias = {mlp_bias} in its config.json. Cutaway supports "
            "biases in both or in neither. Choose another model."
        )
    width, n_heads = hf.get("hidden_size", 4096), hf.get("num_attention_heads", 32)
    return ModelConfig(
        family="decoder",
        vocab_size=hf.get("vocab_size", 32_000),
        d_model=width,
        d_ff=hf.get("intermediate_size", 11_008),
        n_heads=n_heads,
        n_kv_heads=zero_if_default(hf.get("num_key_value_heads", n_heads), n_heads),
        d_head=zero_if_default(hf.get("head_dim", width // n_heads), width // n_heads),
        decoder_layers=hf.get("num_hidden_layers", 32),
        max_length=hf.get("max_position_embeddings", 2048),
        dropout=0.0,
        attention_dropout=hf.get("attention_dropout", 0.0),
        bias=bias,
        position="rope",
        **rope_from(hf),
        norm="rms",
        norm_placement="pre",
        norm_epsilon=hf.get("rms_norm_eps", 1e-6),
        feed_forward=hf.choice("hidden_act", GATES, "silu"),  # type: ignore[arg-type]
        embeddings="shared" if hf.get("tie_word_embeddings", False) else "separate",
        embedding_scale="one",
    )


def rope_from(hf: HuggingFaceConfig) -> dict[str, Any]:
    """Read "rope_parameters", or in older files "rope_theta" and "rope_scaling"."""
    rope = hf.get("rope_parameters", hf.get("rope_scaling", {}))
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind not in ROPE:
        raise ConfigError(hf.unsupported("rope type", kind, ", ".join(map(repr, ROPE))))
    rotated = rope.get("partial_rotary_factor", hf.get("partial_rotary_factor", 1.0))
    if rotated not in (None, 1.0):
        raise ConfigError(hf.unsupported("partial_rotary_factor", rotated, "1.0"))
    scaling, names = ROPE[kind]
    missing = [theirs for theirs in names.values() if theirs not in rope]
    if missing:
        raise ConfigError(f"{hf.title} has rope type {kind!r}, but its config.json has no {missing[0]}. Add it.")
    base = float(rope.get("rope_theta", hf.get("rope_theta", 10_000.0)))
    return {"rope_base": base, "rope_scaling": scaling, **{ours: rope[theirs] for ours, theirs in names.items()}}


def rope_to(c: ModelConfig) -> dict[str, Any]:
    kind, names = next((kind, names) for kind, (ours, names) in ROPE.items() if ours == c.rope_scaling)
    return {"rope_type": kind, **{theirs: getattr(c, ours) for ours, theirs in names.items()}}


def config_to(c: ModelConfig) -> dict[str, Any]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "vocab_size": c.vocab_size,
        "hidden_size": c.d_model,
        "intermediate_size": c.d_ff,
        "num_attention_heads": c.n_heads,
        "num_key_value_heads": c.kv_heads,
        "head_dim": c.head_width,
        "num_hidden_layers": c.decoder_layers,
        "max_position_embeddings": c.max_length,
        "attention_dropout": c.attention_dropout,
        "attention_bias": c.bias,
        "mlp_bias": c.bias,
        "rope_parameters": {**rope_to(c), "rope_theta": c.rope_base},
        "rope_theta": c.rope_base,  # this and the next for older versions of transformers
        "rope_scaling": rope_to(c) if c.rope_scaling != "none" else None,
        "rms_norm_eps": c.norm_epsilon,
        "hidden_act": hf_name(GATES, c.feed_forward),
        "tie_word_embeddings": is_tied(c),
    }


def table(c: ModelConfig) -> NameTable:
    tokens, duplicates = decoder_tokens(c, "model.embed_tokens.weight", "lm_head.weight")
    return NameTable(
        [
            *tokens,
            *layer_rules(c.decoder_layers, "decoder.layers", "model.layers", lambda o, t: layer(c, o, t)),
            *norm_rules("decoder.norm", "model.norm", c.d_model, bias=False),
        ],
        duplicates=duplicates,
        unused={r"model\.(layers\.\d+\.self_attn\.)?rotary_emb\.inv_freq": "RoPE frequencies, which Cutaway computes"},
    )


def layer(c: ModelConfig, ours: str, theirs: str) -> Iterable[NameRule]:
    D, F, bias = c.d_model, c.d_ff, c.bias
    query_width, key_width = c.n_heads * c.head_width, c.kv_heads * c.head_width
    for part, name, width in (("query", "q_proj", query_width), ("key", "k_proj", key_width)):
        order = permute_rows(interleave_halves(width, c.head_width))
        yield from linear_rules(
            f"{ours}.self_attention.{part}", f"{theirs}.self_attn.{name}", width, D, bias, order, order
        )
    yield from linear_rules(f"{ours}.self_attention.value", f"{theirs}.self_attn.v_proj", key_width, D, bias)
    yield from linear_rules(f"{ours}.self_attention.output", f"{theirs}.self_attn.o_proj", D, query_width, bias)
    yield from norm_rules(f"{ours}.self_attention_residual.norm", f"{theirs}.input_layernorm", D, bias=False)
    yield from linear_rules(f"{ours}.feed_forward.gate", f"{theirs}.mlp.gate_proj", F, D, bias)
    yield from linear_rules(f"{ours}.feed_forward.expand", f"{theirs}.mlp.up_proj", F, D, bias)
    yield from linear_rules(f"{ours}.feed_forward.contract", f"{theirs}.mlp.down_proj", D, F, bias)
    yield from norm_rules(f"{ours}.feed_forward_residual.norm", f"{theirs}.post_attention_layernorm", D, bias=False)


def interleave_halves(width: int, d_head: int) -> list[int]:
    """Their RoPE rotates the pairs (i, i + E/2) of a head, ours (2i, 2i+1): interleave the two halves of its rows."""
    half = d_head // 2
    return [head + pair + part * half for head in range(0, width, d_head) for pair in range(half) for part in (0, 1)]


LLAMA = Architecture("llama", "Llama", ("LlamaForCausalLM",), REQUIREMENTS, config_from, config_to, table)
