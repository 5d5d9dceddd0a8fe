"""An architecture of Hugging Face: its settings, which of our settings it can express, and its tensors."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cutaway.config import ModelConfig
from cutaway.config.obstacle import Obstacle
from cutaway.errors import ConfigError
from cutaway.interop.names import NameRule, NameTable, divide, rename_rule
from cutaway.interop.tensors import Array

# activations: their names -> ours. An export writes the first of several equal ones.
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


def hf_name(names: Mapping[str, str], ours: str) -> str:
    """The first of their names for ours."""
    return next(theirs for theirs, name in names.items() if name == ours)


def zero_if_default(value: int, default: int) -> int:
    """For settings of ours where 0 means the default."""
    return 0 if value == default else value


class HuggingFaceConfig:
    """A config.json of Hugging Face. `notes` collects messages for the user."""

    def __init__(self, values: Mapping[str, Any], title: str = "this model", folder: Path | None = None):
        self.values, self.title, self.folder = values, title, folder
        self.notes: list[str] = []

    def get(self, name: str, default: Any) -> Any:
        """Return a setting. null means missing."""
        value = self.values.get(name)
        return default if value is None else value

    @property
    def architecture(self) -> str:
        """The name of the transformers class."""
        return str((self.values.get("architectures") or [""])[0])

    def require(self, name: str, *supported: Any, default: Any = None) -> None:
        """Raise if a setting has another value. If it is missing, it has `default`, or the first supported value."""
        value = self.get(name, supported[0] if default is None else default)
        if value not in supported:
            raise ConfigError(self.unsupported(name, value, " or ".join(map(repr, supported))))

    def choice(self, name: str, names: Mapping[str, str], default: str) -> str:
        """Translate the value of a setting into our name."""
        value = self.get(name, default)
        if not isinstance(value, str) or value not in names:
            raise ConfigError(self.unsupported(name, value, ", ".join(names)))
        return names[value]

    def unsupported(self, name: str, value: Any, supported: str) -> str:
        return (
            f"{self.title} has {name} = {value!r} in its config.json, which Cutaway does not support. Supported: "
            f"{supported}. Choose another model."
        )

    def note_dropped(self, name: str, *defaults: Any) -> None:
        """Add a note if a setting that only training uses is lost."""
        value = self.get(name, defaults[0])
        if value not in defaults:
            self.notes.append(
                f"{name} = {value!r} is not kept: Cutaway has no such setting. Only training would use it."
            )

    def labels(self) -> list[str]:
        """The class names in the order of their ids. Default: two, as in transformers."""
        names = self.values.get("id2label")
        if not names:
            n = self.get("num_labels", self.get("_num_labels", 2))
            return [f"LABEL_{i}" for i in range(n)]
        by_id = {int(id): str(name) for id, name in names.items()}
        if sorted(by_id) != list(range(len(by_id))):
            raise ConfigError(
                f"{self.title} has an id2label in its config.json with the ids {sorted(by_id)[:5]}... Expected 0 to "
                f"{len(by_id) - 1}, each once. Correct config.json."
            )
        return [by_id[id] for id in range(len(by_id))]


@dataclass(frozen=True)
class SettingRequirement:
    """A condition on one of our settings, and its description for messages."""

    is_met: Callable[[ModelConfig], bool]
    text: str


def must_be(name: str, *values: Any) -> SettingRequirement:
    return SettingRequirement(lambda c: getattr(c, name) in values, " or ".join(map(repr, values)))


ANY = SettingRequirement(lambda c: True, "any")
DEFAULT_HEAD_WIDTH = SettingRequirement(lambda c: c.head_width * c.n_heads == c.d_model, "0 or d_model / n_heads")
NO_KV_GROUPS = SettingRequirement(lambda c: c.kv_heads == c.n_heads, "0 or n_heads")

# Settings without a requirement: every architecture can express them, or they do not change what a model computes.
UNRESTRICTED = {
    "vocab_size", "n_classes", "d_model", "d_ff", "n_heads", "encoder_layers", "decoder_layers", "max_length",
    "dropout", "attention_dropout", "attention_kernel", "init", "norm_epsilon",
    # used only with other settings that have a requirement, or part of the sizes
    "attention_window", "experts_per_token", "expert_capacity", "relative_clip", "relative_buckets",
    "relative_distance", "rope_base", "rope_scaling", "rope_factor", "rope_low_freq_factor", "rope_high_freq_factor",
    "rope_original_length",
    "image_size", "patch_size", "channels", "pixels", "resize",
}  # fmt: skip

# requirements of every architecture
COMMON = {
    "attention": must_be("attention", "full"),
    "attention_softcap": must_be("attention_softcap", 0.0),
    "qk_norm": must_be("qk_norm", False),
    "cross_attention": must_be("cross_attention", False),
    "block": must_be("block", "sequential"),
    "experts": must_be("experts", 0),
}


def requirements(**settings: SettingRequirement | tuple[Any, ...]) -> dict[str, SettingRequirement]:
    """The requirements of an architecture. A tuple lists the allowed values."""
    own = {
        name: value if isinstance(value, SettingRequirement) else must_be(name, *value)
        for name, value in settings.items()
    }
    return COMMON | own


def no_files(config: ModelConfig) -> dict[str, Any]:
    return {}


def keep_weights(settings: HuggingFaceConfig, config: ModelConfig, weights: dict[str, Array]) -> dict[str, Array]:
    return weights


@dataclass(frozen=True)
class Architecture:
    """A row of the table in `huggingface.py`."""

    model_type: str  # as in config.json
    title: str
    classes: tuple[str, ...]  # accepted classes of transformers
    requirements: Mapping[str, SettingRequirement]  # our setting -> the values that the architecture can express
    config_from: Callable[[HuggingFaceConfig, Mapping[str, Array]], ModelConfig]
    config_to: Callable[[ModelConfig], dict[str, Any]]
    table: Callable[[ModelConfig], NameTable]
    adjust: Callable[[HuggingFaceConfig, ModelConfig, dict[str, Array]], dict[str, Array]] = (
        keep_weights  # after reading
    )
    files: Callable[[ModelConfig], dict[str, Any]] = field(default=no_files)  # additional JSON files: name -> content

    def obstacles(self, config: ModelConfig) -> list[Obstacle]:
        """Our settings that this architecture cannot express."""
        return [
            Obstacle(name, getattr(config, name), f"{self.title} has {requirement.text}")
            for name, requirement in self.requirements.items()
            if not requirement.is_met(config)
        ]


def is_tied(config: ModelConfig) -> bool:
    """Whether input and output share one matrix in their sense: without a scale factor."""
    return config.embeddings in ("shared", "tied") and config.embedding_scale == "one"


def decoder_tokens(c: ModelConfig, embedding: str, output: str) -> tuple[list[NameRule], dict[str, str]]:
    """The rules for the embedding and the output matrix of a decoder, and the duplicates.

    Their models do not scale embeddings. If ours does, the export multiplies the embedding matrix by the factor and
    writes the output matrix separately.
    """
    shape, scale = (c.vocab_size, c.d_model), math.sqrt(c.d_model)
    if is_tied(c):
        return [rename_rule("embedding.tokens.weight", embedding, shape)], {output: embedding}
    if c.embeddings == "separate":
        change = [divide(scale)] if c.embedding_scale == "sqrt_d" else []
        return [
            rename_rule("embedding.tokens.weight", embedding, shape, *change),
            rename_rule("head.weight", output, shape),
        ], {}
    both = NameRule(
        ("embedding.tokens.weight",),
        (embedding, output),
        (shape, shape),
        lambda w: [w[1]],
        lambda w: [w[0] * scale, w[0]],
    )
    return [both], {}
