"""GPT-2 (Radford et al. 2019)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from cutaway.config import ModelConfig
from cutaway.interop.architecture import (
    ACTIVATIONS,
    DEFAULT_HEAD_WIDTH,
    NO_KV_GROUPS,
    Architecture,
    HuggingFaceConfig,
    decoder_tokens,
    hf_name,
    is_tied,
    requirements,
)
from cutaway.interop.names import TRANSPOSED, NameRule, NameTable, layer_rules, norm_rules, rename_rule, split_rule
from cutaway.interop.tensors import Array

REQUIREMENTS = requirements(
    family=("decoder",),
    head=("language",),
    pooling=("cls",),
    bias=(True,),
    position=("learned",),
    norm=("layer",),
    norm_placement=("pre",),
    feed_forward=tuple(dict.fromkeys(ACTIVATIONS.values())),
    embeddings=("shared", "tied", "separate"),
    embedding_scale=("one", "sqrt_d"),
    embedding_norm=(False,),
    output_bias=(False,),
    segments=(0,),
    d_head=DEFAULT_HEAD_WIDTH,
    n_kv_heads=NO_KV_GROUPS,
)


def config_from(hf: HuggingFaceConfig, weights: Mapping[str, Array]) -> ModelConfig:
    hf.require("scale_attn_weights", True)
    hf.require("scale_attn_by_inverse_layer_idx", False)
    hf.require("add_cross_attention", False)
    width, dropout = hf.get("n_embd", 768), hf.get("resid_pdrop", 0.1)
    hf.note_dropped("embd_pdrop", dropout)
    return ModelConfig(
        family="decoder",
        vocab_size=hf.get("vocab_size", 50_257),
        d_model=width,
        d_ff=hf.get("n_inner", 4 * width),
        n_heads=hf.get("n_head", 12),
        decoder_layers=hf.get("n_layer", 12),
        max_length=hf.get("n_positions", 1024),
        dropout=dropout,
        attention_dropout=hf.get("attn_pdrop", 0.1),
        position="learned",
        norm_placement="pre",
        norm_epsilon=hf.get("layer_norm_epsilon", 1e-5),
        feed_forward=hf.choice("activation_function", ACTIVATIONS, "gelu_new"),  # type: ignore[arg-type]
        embeddings="shared" if hf.get("tie_word_embeddings", True) else "separate",
        embedding_scale="one",
    )


def config_to(c: ModelConfig) -> dict[str, Any]:
    return {
        "architectures": ["GPT2LMHeadModel"],
        "vocab_size": c.vocab_size,
        "n_embd": c.d_model,
        "n_inner": c.d_ff,
        "n_head": c.n_heads,
        "n_layer": c.decoder_layers,
        "n_positions": c.max_length,
        "resid_pdrop": c.dropout,
        "embd_pdrop": c.dropout,
        "attn_pdrop": c.attention_dropout,
        "layer_norm_epsilon": c.norm_epsilon,
        "activation_function": hf_name(ACTIVATIONS, c.feed_forward),
        "scale_attn_weights": True,
        "tie_word_embeddings": is_tied(c),
    }


def table(c: ModelConfig) -> NameTable:
    tokens, duplicates = decoder_tokens(c, "transformer.wte.weight", "lm_head.weight")
    return NameTable(
        [
            *tokens,
            rename_rule("embedding.position.table", "transformer.wpe.weight", (c.max_length, c.d_model)),
            *layer_rules(c.decoder_layers, "decoder.layers", "transformer.h", lambda o, t: layer(c, o, t)),
            *norm_rules("decoder.norm", "transformer.ln_f", c.d_model),
        ],
        spellings=[(r"^transformer\.", "")],  # GPT2Model has no prefix; the published files are of this class
        duplicates=duplicates,
        unused={r"(transformer\.)?h\.\d+\.attn\.(masked_)?bias": "a mask, not a weight"},
    )


def layer(c: ModelConfig, ours: str, theirs: str) -> Iterable[NameRule]:
    """One matrix holds query, key and value. All matrices are transposed (their "Conv1D")."""
    D = c.d_model
    attention = [f"{ours}.self_attention.{part}" for part in ("query", "key", "value")]
    yield from norm_rules(f"{ours}.self_attention_residual.norm", f"{theirs}.ln_1", D)
    yield split_rule([f"{part}.weight" for part in attention], f"{theirs}.attn.c_attn.weight", (D, 3 * D), TRANSPOSED)
    yield split_rule([f"{part}.bias" for part in attention], f"{theirs}.attn.c_attn.bias", (3 * D,))
    yield from conv1d(f"{ours}.self_attention.output", f"{theirs}.attn.c_proj", D, D)
    yield from norm_rules(f"{ours}.feed_forward_residual.norm", f"{theirs}.ln_2", D)
    yield from conv1d(f"{ours}.feed_forward.expand", f"{theirs}.mlp.c_fc", c.d_ff, D)
    yield from conv1d(f"{ours}.feed_forward.contract", f"{theirs}.mlp.c_proj", D, c.d_ff)


def conv1d(ours: str, theirs: str, d_out: int, d_in: int) -> list[NameRule]:
    return [
        rename_rule(f"{ours}.weight", f"{theirs}.weight", (d_in, d_out), TRANSPOSED),
        rename_rule(f"{ours}.bias", f"{theirs}.bias", (d_out,)),
    ]


GPT2 = Architecture("gpt2", "GPT-2", ("GPT2LMHeadModel", "GPT2Model"), REQUIREMENTS, config_from, config_to, table)
