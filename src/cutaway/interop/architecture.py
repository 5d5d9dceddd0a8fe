"""What an architecture of theirs is to us: which settings it has, which of ours it can express, and its tensors."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cutaway.config import ModelConfig
from cutaway.config.obstacle import Obstacle
from cutaway.errors import ConfigError
from cutaway.interop.names import NameRule, NameTable, divided_by, one
from cutaway.interop.tensors import Array

# Their names of activations -> ours. Of two that are alike, the first is the one that is written.
ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_python_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
}


def their_name(names: Mapping[str, str], ours: str) -> str:
    return next(theirs for theirs, name in names.items() if name == ours)


def unless(value: int, usual: int) -> int:
    """A setting of ours for which 0 stands for what is usual."""
    return 0 if value == usual else value


class ForeignConfig:
    """Their config.json. What is missing has the value that their library gives it; what is remarkable is noted."""

    def __init__(self, values: Mapping[str, Any], title: str = "this model", folder: Path | None = None):
        self.values, self.title, self.folder = values, title, folder
        self.notes: list[str] = []

    def get(self, name: str, default: Any) -> Any:
        """A setting; one that is null counts as missing."""
        value = self.values.get(name)
        return default if value is None else value

    @property
    def architecture(self) -> str:
        """The class of theirs that these weights are for."""
        return str((self.values.get("architectures") or [""])[0])

    def only(self, name: str, *supported: Any, default: Any = None) -> None:
        """Refuse any other value of a setting. Not given, it has the first of those that are supported."""
        value = self.get(name, supported[0] if default is None else default)
        if value not in supported:
            raise ConfigError(self.refusal(name, value, " or ".join(map(repr, supported))))

    def choice(self, name: str, names: Mapping[str, str], default: str) -> str:
        """Our name of what a setting chooses."""
        value = self.get(name, default)
        if not isinstance(value, str) or value not in names:
            raise ConfigError(self.refusal(name, value, ", ".join(names)))
        return names[value]

    def refusal(self, name: str, value: Any, supported: str) -> str:
        return (
            f"{self.title} has {name} = {value!r} in its config.json, which Cutaway's model cannot express; supported: "
            f"{supported}. Choose a model without it."
        )

    def note_unless(self, name: str, *usual: Any) -> None:
        """A setting that matters to training alone, and is not kept."""
        value = self.get(name, usual[0])
        if value not in usual:
            self.notes.append(
                f"{name} = {value!r} is not kept: it matters to training alone, and Cutaway has no such setting."
            )

    def labels(self) -> list[str]:
        """The names of the classes, in the order of their ids. Without any, there are two, as their library has it."""
        names = self.values.get("id2label")
        if not names:
            n = self.get("num_labels", self.get("_num_labels", 2))
            return [f"LABEL_{i}" for i in range(n)]
        by_id = {int(id): str(name) for id, name in names.items()}
        if sorted(by_id) != list(range(len(by_id))):
            raise ConfigError(
                f"{self.title} has an id2label in its config.json whose ids are {sorted(by_id)[:5]}...; expected are 0 "
                f"to {len(by_id) - 1}, each once. Mend it there."
            )
        return [by_id[id] for id in range(len(by_id))]


@dataclass(frozen=True)
class Requirement:
    """What an architecture asks of one of our settings, and how to say it."""

    holds: Callable[[ModelConfig], bool]
    what: str


def must_be(name: str, *values: Any) -> Requirement:
    return Requirement(lambda c: getattr(c, name) in values, " or ".join(map(repr, values)))


ANY = Requirement(lambda c: True, "any")
ONE_HEAD_WIDTH = Requirement(lambda c: c.head_width * c.n_heads == c.d_model, "0, or d_model / n_heads")
NO_GROUPS = Requirement(lambda c: c.kv_heads == c.n_heads, "0, or as many as n_heads")

# Settings that change nothing in what a trained model computes, or that any architecture can have.
FREE = {
    "vocab_size", "n_classes", "d_model", "d_ff", "n_heads", "encoder_layers", "decoder_layers", "max_length",
    "dropout", "attention_dropout", "attention_kernel", "init", "norm_epsilon",
    # what is read only with settings that the demands rule out, or that their sizes carry
    "attention_window", "experts_per_token", "expert_capacity", "relative_clip", "relative_buckets",
    "relative_distance", "rope_base", "rope_scaling", "rope_factor", "rope_low_freq_factor", "rope_high_freq_factor", "rope_original_length",
    "image_size", "patch_size", "channels", "pixels", "resize",
}  # fmt: skip

# What none of the architectures has.
COMMON = {
    "attention": must_be("attention", "full"),
    "attention_softcap": must_be("attention_softcap", 0.0),
    "qk_norm": must_be("qk_norm", False),
    "cross_attention": must_be("cross_attention", False),
    "block": must_be("block", "sequential"),
    "experts": must_be("experts", 0),
}


def demands(**settings: Requirement | tuple[Any, ...]) -> dict[str, Requirement]:
    """What an architecture asks of our settings: a tuple holds the values that it can express."""
    stated = {
        name: demand if isinstance(demand, Requirement) else must_be(name, *demand) for name, demand in settings.items()
    }
    return COMMON | stated


def nothing_more(config: ModelConfig) -> dict[str, Any]:
    return {}


def unchanged(settings: ForeignConfig, config: ModelConfig, weights: dict[str, Array]) -> dict[str, Array]:
    return weights


@dataclass(frozen=True)
class Architecture:
    """A row of the table in `huggingface.py`."""

    model_type: str  # as their config.json has it
    title: str
    classes: tuple[str, ...]  # of theirs, that are accepted
    demands: Mapping[str, Requirement]  # a setting of ours -> what it must be, for them to express it
    config_from: Callable[[ForeignConfig, Mapping[str, Array]], ModelConfig]
    config_to: Callable[[ModelConfig], dict[str, Any]]
    table: Callable[[ModelConfig], NameTable]
    adjust: Callable[[ForeignConfig, ModelConfig, dict[str, Array]], dict[str, Array]] = unchanged  # after reading
    files: Callable[[ModelConfig], dict[str, Any]] = field(default=nothing_more)  # to write beside: name -> JSON

    def obstacles(self, config: ModelConfig) -> list[Obstacle]:
        """Each setting of ours that they cannot express."""
        return [
            Obstacle(name, getattr(config, name), f"{self.title} has {demand.what}")
            for name, demand in self.demands.items()
            if not demand.holds(config)
        ]


def is_tied(config: ModelConfig) -> bool:
    """Whether input and output are one matrix as they understand it: without a factor between them."""
    return config.embeddings in ("shared", "tied") and config.embedding_scale == "one"


def decoder_tokens(c: ModelConfig, embedding: str, output: str) -> tuple[list[NameRule], dict[str, str]]:
    """The embedding and the output matrix of a decoder, and what may be in a file twice.

    They have no factor on the embeddings. Ours goes into the matrix, of which there must then be a second for the
    output, even if here one serves both.
    """
    shape, scale = (c.vocab_size, c.d_model), math.sqrt(c.d_model)
    if is_tied(c):
        return [one("embedding.tokens.weight", embedding, shape)], {output: embedding}
    if c.embeddings == "separate":
        change = [divided_by(scale)] if c.embedding_scale == "sqrt_d" else []
        return [one("embedding.tokens.weight", embedding, shape, *change), one("head.weight", output, shape)], {}
    both = NameRule(
        ("embedding.tokens.weight",),
        (embedding, output),
        (shape, shape),
        lambda w: [w[1]],
        lambda w: [w[0] * scale, w[0]],
    )
    return [both], {}
