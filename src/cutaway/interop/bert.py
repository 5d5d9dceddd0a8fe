"""BERT (Devlin et al. 2019), with the head that it was trained with, a classifier's, a tagger's, or none.

Without a head it is a sentence encoder: sentence_encoders.py reads what is said of it beside the model.
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
    NO_GROUPS,
    ONE_HEAD_WIDTH,
    Architecture,
    ForeignConfig,
    Requirement,
    demands,
    their_name,
)
from cutaway.interop.names import NameRule, NameTable, given, in_layers, linear, norm, one
from cutaway.interop.sentence_encoders import pooling
from cutaway.interop.tensors import Array

# their class -> our head; of two that are alike, the first is the one that is written
HEADS = {
    "BertForMaskedLM": "language",
    "BertForPreTraining": "language",
    "BertForSequenceClassification": "classes",
    "BertForTokenClassification": "tags",
    "BertModel": "vectors",
}

DEMANDS = demands(
    family=("encoder",),
    head=("language", "classes", "tags", "vectors"),
    pooling=Requirement(
        lambda c: c.pooling in {"classes": ("cls_tanh",), "vectors": ("mean", "cls", "max")}.get(c.head, ("cls",)),
        "'cls_tanh' in a classifier, and 'mean', 'cls' or 'max' of vectors",
    ),
    bias=(True,),
    position=("learned",),
    norm=("layer",),
    norm_placement=("post",),
    feed_forward=Requirement(
        lambda c: c.feed_forward in (("gelu",) if c.head == "language" else ACTIVATIONS.values()),
        f"{', '.join(dict.fromkeys(ACTIVATIONS.values()))}, and 'gelu' alone with head = 'language'",
    ),
    embeddings=("shared", "tied"),
    embedding_scale=("one",),
    embedding_norm=(True,),
    output_bias=(False,),
    segments=ANY,
    d_head=ONE_HEAD_WIDTH,
    n_kv_heads=NO_GROUPS,
)


def config_from(s: ForeignConfig, weights: Mapping[str, Array]) -> ModelConfig:
    s.only("position_embedding_type", "absolute")
    s.only("is_decoder", False)
    s.only("add_cross_attention", False)
    head = HEADS[s.architecture]
    of_head: dict[str, Any] = {}
    if head == "language":
        s.only("hidden_act", "gelu")  # our head for hidden words has that one
        s.only("tie_word_embeddings", True)
    if head in ("classes", "tags"):
        of_head["n_classes"] = len(s.labels())
        s.note_unless("classifier_dropout", s.get("hidden_dropout_prob", 0.1))
    if head == "classes":
        check_is_classifier(s)
        of_head["pooling"] = "cls_tanh"
    if head == "vectors":
        of_head["pooling"] = pooling(s)
    return ModelConfig(
        family="encoder",
        head=head,  # type: ignore[arg-type]
        vocab_size=s.get("vocab_size", 30_522),
        d_model=s.get("hidden_size", 768),
        d_ff=s.get("intermediate_size", 3072),
        n_heads=s.get("num_attention_heads", 12),
        encoder_layers=s.get("num_hidden_layers", 12),
        max_length=s.get("max_position_embeddings", 512),
        dropout=s.get("hidden_dropout_prob", 0.1),
        attention_dropout=s.get("attention_probs_dropout_prob", 0.1),
        position="learned",
        norm_epsilon=s.get("layer_norm_eps", 1e-12),
        feed_forward=s.choice("hidden_act", ACTIVATIONS, "gelu"),  # type: ignore[arg-type]
        embedding_scale="one",
        embedding_norm=True,
        segments=s.get("type_vocab_size", 2),
        **of_head,
    )


def check_is_classifier(s: ForeignConfig) -> None:
    """One of the classes, and of several: not a number, and not any number of them."""
    s.only("problem_type", "single_label_classification")
    if len(s.labels()) < 2:
        raise ConfigError(s.refusal("num_labels", len(s.labels()), "2 and more; one label is a score, not a class"))


def config_to(c: ModelConfig) -> dict[str, Any]:
    return {
        "architectures": [their_name(HEADS, c.head)],
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
        "hidden_act": their_name(ACTIVATIONS, c.feed_forward),
        "position_embedding_type": "absolute",
        "tie_word_embeddings": True,
    }


def table(c: ModelConfig) -> NameTable:
    V, D = c.vocab_size, c.d_model
    stem = "" if c.head == "vectors" else "bert."  # a model that is nothing but BERT has no name for that part
    embeddings = f"{stem}embeddings"
    segments = f"{embeddings}.token_type_embeddings.weight"
    return NameTable(
        [
            one("embedding.tokens.weight", f"{embeddings}.word_embeddings.weight", (V, D)),
            *([one("embedding.segments.weight", segments, (c.segments, D))] if c.segments else []),
            one("embedding.position.table", f"{embeddings}.position_embeddings.weight", (c.max_length, D)),
            *norm("embedding.norm", f"{embeddings}.LayerNorm", D),
            *in_layers(c.encoder_layers, "encoder.layers", f"{stem}encoder.layer", lambda o, t: layer(c, o, t)),
            *head(c, stem),
        ],
        spellings=[
            (r"^bert\.", "") if stem else (r"^(?=embeddings\.|encoder\.)", "bert."),
            (r"LayerNorm\.weight$", "LayerNorm.gamma"),  # in files that came from TensorFlow
            (r"LayerNorm\.bias$", "LayerNorm.beta"),
        ],
        duplicates=duplicates(c),
        unused=unused(c),
        # without segments, all tokens belong to one that adds nothing
        known=[] if c.segments else [given(segments, (1, D), lambda: np.zeros((1, D), np.float32))],
    )


def layer(c: ModelConfig, ours: str, theirs: str) -> Iterable[NameRule]:
    D = c.d_model
    for part in ("query", "key", "value"):
        yield from linear(f"{ours}.self_attention.{part}", f"{theirs}.attention.self.{part}", D, D)
    yield from linear(f"{ours}.self_attention.output", f"{theirs}.attention.output.dense", D, D)
    yield from norm(f"{ours}.self_attention_residual.norm", f"{theirs}.attention.output.LayerNorm", D)
    yield from linear(f"{ours}.feed_forward.expand", f"{theirs}.intermediate.dense", c.d_ff, D)
    yield from linear(f"{ours}.feed_forward.contract", f"{theirs}.output.dense", D, c.d_ff)
    yield from norm(f"{ours}.feed_forward_residual.norm", f"{theirs}.output.LayerNorm", D)


def head(c: ModelConfig, stem: str) -> Iterable[NameRule]:
    if c.head == "language":
        yield from linear("head.transform", "cls.predictions.transform.dense", c.d_model, c.d_model)
        yield from norm("head.norm", "cls.predictions.transform.LayerNorm", c.d_model)
        yield one("head.bias", "cls.predictions.bias", (c.vocab_size,))
    if c.head == "classes":
        yield from linear("head.pool.dense", f"{stem}pooler.dense", c.d_model, c.d_model)
    if c.head in ("classes", "tags"):
        yield from linear("head.classify", "classifier", c.n_classes, c.d_model)


def duplicates(c: ModelConfig) -> dict[str, str]:
    if c.head != "language":
        return {}
    return {
        "cls.predictions.decoder.bias": "cls.predictions.bias",
        "cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
    }


def unused(c: ModelConfig) -> dict[str, str]:
    """What these weights may bring along for heads that this model does not have."""
    reasons = {r"(bert\.)?embeddings\.position_ids": "the numbers 0, 1, 2, ..., not a weight"}
    if c.head != "classes":
        reasons[r"(bert\.)?pooler\.dense\.(weight|bias)"] = "the pooler, which this head does not look at"
    if c.head == "language":
        reasons[r"cls\.seq_relationship\.(weight|bias)"] = "the head that told whether sentences follow one another"
    return reasons


BERT = Architecture("bert", "BERT", tuple(HEADS), DEMANDS, config_from, config_to, table)
