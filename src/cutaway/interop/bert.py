"""BERT (Devlin et al. 2019) with a language, classification or tagging head, or without a head.

Without a head it is a sentence encoder; sentence_encoders.py reads its additional files.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from cutaway.config import ModelConfig
from cutaway.errors import ConfigError
from cutaway.interop.architecture import (
    ACTIVATIONS,
    ANY,
    DEFAULT_HEAD_WIDTH,
    NO_KV_GROUPS,
    Architecture,
    HuggingFaceConfig,
    SettingRequirement,
    hf_name,
    requirements,
)
from cutaway.interop.names import NameRule, NameTable, constant_rule, layer_rules, linear_rules, norm_rules, rename_rule
from cutaway.interop.sentence_encoders import read_pooling
from cutaway.interop.tensors import Array

# class of transformers -> our head. An export writes the first of several equal ones.
HEADS = {
    "BertForMaskedLM": "language",
    "BertForPreTraining": "language",
    "BertForSequenceClassification": "classes",
    "BertForTokenClassification": "tags",
    "BertModel": "vectors",
}

REQUIREMENTS = requirements(
    family=("encoder",),
    head=("language", "classes", "tags", "vectors"),
    pooling=SettingRequirement(
        lambda c: c.pooling in {"classes": ("cls_tanh",), "vectors": ("mean", "cls", "max")}.get(c.head, ("cls",)),
        "'cls_tanh' for head = 'classes', and 'mean', 'cls' or 'max' for head = 'vectors'",
    ),
    bias=(True,),
    position=("learned",),
    norm=("layer",),
    norm_placement=("post",),
    feed_forward=SettingRequirement(
        lambda c: c.feed_forward in (("gelu",) if c.head == "language" else ACTIVATIONS.values()),
        f"{', '.join(dict.fromkeys(ACTIVATIONS.values()))}, and only 'gelu' with head = 'language'",
    ),
    embeddings=("shared", "tied"),
    embedding_scale=("one",),
    embedding_norm=(True,),
    output_bias=(False,),
    segments=ANY,
    d_head=DEFAULT_HEAD_WIDTH,
    n_kv_heads=NO_KV_GROUPS,
)


def config_from(hf: HuggingFaceConfig, weights: Mapping[str, Array]) -> ModelConfig:
    hf.require("position_embedding_type", "absolute")
    hf.require("is_decoder", False)
    hf.require("add_cross_attention", False)
    head = HEADS[hf.architecture]
    head_settings: dict[str, Any] = {}
    if head == "language":
        hf.require("hidden_act", "gelu")  # the only activation of our masked language head
        hf.require("tie_word_embeddings", True)
    if head in ("classes", "tags"):
        head_settings["n_classes"] = len(hf.labels())
        hf.note_dropped("classifier_dropout", hf.get("hidden_dropout_prob", 0.1))
    if head == "classes":
        check_is_classifier(hf)
        head_settings["pooling"] = "cls_tanh"
    if head == "vectors":
        head_settings["pooling"] = read_pooling(hf)
    return ModelConfig(
        family="encoder",
        head=head,  # type: ignore[arg-type]
        vocab_size=hf.get("vocab_size", 30_522),
        d_model=hf.get("hidden_size", 768),
        d_ff=hf.get("intermediate_size", 3072),
        n_heads=hf.get("num_attention_heads", 12),
        encoder_layers=hf.get("num_hidden_layers", 12),
        max_length=hf.get("max_position_embeddings", 512),
        dropout=hf.get("hidden_dropout_prob", 0.1),
        attention_dropout=hf.get("attention_probs_dropout_prob", 0.1),
        position="learned",
        norm_epsilon=hf.get("layer_norm_eps", 1e-12),
        feed_forward=hf.choice("hidden_act", ACTIVATIONS, "gelu"),  # type: ignore[arg-type]
        embedding_scale="one",
        embedding_norm=True,
        segments=hf.get("type_vocab_size", 2),
        **head_settings,
    )


def check_is_classifier(hf: HuggingFaceConfig) -> None:
    """Raise for regression and multi-label models."""
    hf.require("problem_type", "single_label_classification")
    if len(hf.labels()) < 2:
        raise ConfigError(
            hf.unsupported("num_labels", len(hf.labels()), "2 or more, since one label is a score and not a class")
        )


def config_to(c: ModelConfig) -> dict[str, Any]:
    return {
        "architectures": [hf_name(HEADS, c.head)],
        "vocab_size": c.vocab_size,
        "hidden_size": c.d_model,
        "intermediate_size": c.d_ff,
        "num_attention_heads": c.n_heads,
        "num_hidden_layers": c.encoder_layers,
        "max_position_embeddings": c.max_length,
        "type_vocab_size": max(c.segments, 1),
        "hidden_dropout_prob": c.dropout,
        "attention_probs_dropout_prob": c.attention_dropout,
        "layer_norm_eps": c.norm_epsilon,
        "hidden_act": hf_name(ACTIVATIONS, c.feed_forward),
        "position_embedding_type": "absolute",
        "tie_word_embeddings": True,
    }


def table(c: ModelConfig) -> NameTable:
    V, D = c.vocab_size, c.d_model
    stem = "" if c.head == "vectors" else "bert."  # BertModel has no prefix
    embeddings = f"{stem}embeddings"
    segments = f"{embeddings}.token_type_embeddings.weight"
    return NameTable(
        [
            rename_rule("embedding.tokens.weight", f"{embeddings}.word_embeddings.weight", (V, D)),
            *([rename_rule("embedding.segments.weight", segments, (c.segments, D))] if c.segments else []),
            rename_rule("embedding.position.table", f"{embeddings}.position_embeddings.weight", (c.max_length, D)),
            *norm_rules("embedding.norm", f"{embeddings}.LayerNorm", D),
            *layer_rules(c.encoder_layers, "encoder.layers", f"{stem}encoder.layer", lambda o, t: layer(c, o, t)),
            *head(c, stem),
        ],
        spellings=[
            (r"^bert\.", "") if stem else (r"^(?=embeddings\.|encoder\.)", "bert."),
            (r"LayerNorm\.weight$", "LayerNorm.gamma"),  # files converted from TensorFlow
            (r"LayerNorm\.bias$", "LayerNorm.beta"),
        ],
        duplicates=duplicates(c),
        unused=unused(c),
        # without segments, all tokens belong to one segment with a zero vector
        constants=[] if c.segments else [constant_rule(segments, (1, D), lambda: np.zeros((1, D), np.float32))],
    )


def layer(c: ModelConfig, ours: str, theirs: str) -> Iterable[NameRule]:
    D = c.d_model
    for part in ("query", "key", "value"):
        yield from linear_rules(f"{ours}.self_attention.{part}", f"{theirs}.attention.self.{part}", D, D)
    yield from linear_rules(f"{ours}.self_attention.output", f"{theirs}.attention.output.dense", D, D)
    yield from norm_rules(f"{ours}.self_attention_residual.norm", f"{theirs}.attention.output.LayerNorm", D)
    yield from linear_rules(f"{ours}.feed_forward.expand", f"{theirs}.intermediate.dense", c.d_ff, D)
    yield from linear_rules(f"{ours}.feed_forward.contract", f"{theirs}.output.dense", D, c.d_ff)
    yield from norm_rules(f"{ours}.feed_forward_residual.norm", f"{theirs}.output.LayerNorm", D)


def head(c: ModelConfig, stem: str) -> Iterable[NameRule]:
    if c.head == "language":
        yield from linear_rules("head.transform", "cls.predictions.transform.dense", c.d_model, c.d_model)
        yield from norm_rules("head.norm", "cls.predictions.transform.LayerNorm", c.d_model)
        yield rename_rule("head.bias", "cls.predictions.bias", (c.vocab_size,))
    if c.head == "classes":
        yield from linear_rules("head.pool.dense", f"{stem}pooler.dense", c.d_model, c.d_model)
    if c.head in ("classes", "tags"):
        yield from linear_rules("head.classify", "classifier", c.n_classes, c.d_model)


def duplicates(c: ModelConfig) -> dict[str, str]:
    if c.head != "language":
        return {}
    return {
        "cls.predictions.decoder.bias": "cls.predictions.bias",
        "cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
    }


def unused(c: ModelConfig) -> dict[str, str]:
    """Tensors of heads that this model does not have."""
    reasons = {r"(bert\.)?embeddings\.position_ids": "the numbers 0, 1, 2, ..., not a weight"}
    if c.head != "classes":
        reasons[r"(bert\.)?pooler\.dense\.(weight|bias)"] = "the pooler, which this head does not use"
    if c.head == "language":
        reasons[r"cls\.seq_relationship\.(weight|bias)"] = "the next-sentence head"
    return reasons


BERT = Architecture("bert", "BERT", tuple(HEADS), REQUIREMENTS, config_from, config_to, table)
