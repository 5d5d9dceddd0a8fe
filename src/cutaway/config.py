"""Configuration is data: frozen dataclasses that import nothing, TOML in, JSON out.

A recipe is four tables, `[model] [data] [train] [decode]`, and nothing else:

    recipe.toml ──read_recipe──▶ Config ──apply_overrides("train.steps=100")──▶ Config ──to_json──▶ config.json

Every exclusive choice is one field with named values (`norm_placement = "pre"`), never a pile of booleans.
What cannot work is refused here, with both values and a remedy, before anything is built.
"""

from __future__ import annotations

import dataclasses
import json
import tomllib
import types
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from cutaway.errors import ConfigError, did_you_mean


@dataclass(frozen=True)
class ModelConfig:
    """The shape of a model. The defaults are the paper's base model (table 3)."""

    family: Literal["encoder_decoder"] = "encoder_decoder"
    vocab_size: int = 0  # 0: taken from the tokenizer when training starts
    d_model: int = 512
    d_ff: int = 2048
    n_heads: int = 8
    encoder_layers: int = 6
    decoder_layers: int = 6
    dropout: float = 0.1  # on each sub-layer's output and on the embeddings, as in the paper (section 5.4)
    attention_dropout: float = 0.0  # on the attention weights: not in the paper, common elsewhere
    position: Literal["sinusoidal", "learned"] = "sinusoidal"
    max_length: int = 1024  # positions there are; a longer text is refused, never cut in silence
    norm: Literal["layer"] = "layer"
    norm_placement: Literal["post", "pre"] = "post"
    norm_epsilon: float = 1e-5
    feed_forward: Literal["relu", "gelu"] = "relu"
    # Which of source embedding, target embedding and output projection are one matrix:
    # "shared" all three (the paper, section 3.4), "tied" the last two, "separate" none.
    embeddings: Literal["shared", "tied", "separate"] = "shared"
    attention_kernel: Literal["fused", "exact"] = "fused"

    def __post_init__(self) -> None:
        check_types(self)
        for name in ("d_model", "d_ff", "n_heads", "encoder_layers", "decoder_layers", "max_length"):
            require(getattr(self, name) >= 1, self, name, "must be at least 1")
        require(self.vocab_size >= 0, self, "vocab_size", "must not be negative (0: taken from the tokenizer)")
        for name in ("dropout", "attention_dropout"):
            require(0 <= getattr(self, name) < 1, self, name, "must be at least 0 and below 1")
        if self.d_model % self.n_heads:
            raise ConfigError(
                f"model.d_model = {self.d_model} is not divisible by model.n_heads = {self.n_heads}, so the heads "
                f"would have unequal widths. Choose n_heads from {divisors(self.d_model)}, or another d_model."
            )
        if self.position == "sinusoidal" and self.d_model % 2:
            raise ConfigError(
                f"model.position = 'sinusoidal' pairs a sine with a cosine, so model.d_model = {self.d_model} must be "
                f"even. Choose {self.d_model + 1}, or position = 'learned'."
            )


@dataclass(frozen=True)
class DataConfig:
    """Where the text comes from, how it is cut into tokens, how the tokens are put into batches."""

    corpus: str = ""  # a built-in corpus: "tinyworld:en-fr", "reverse", ...; or give files in train/valid/test
    size: int = 40_000  # how many training pairs a built-in corpus generates
    heldout_size: int = 1_000  # ... and how many for each of valid and test
    root: str = ""  # the folder that the paths below are relative to; empty: the current one
    train: tuple[str, ...] = ()  # two files, line by line parallel: source, target
    valid: tuple[str, ...] = ()
    test: tuple[str, ...] = ()
    tokenizer: Literal["bpe", "word", "char", "byte", "file"] = "bpe"
    tokenizer_file: str = ""  # with tokenizer = "file": any Hugging Face tokenizer.json
    vocab_size: int = 8_000  # at most; how many tokens bpe and word may learn
    max_tokens: int = 256  # a training pair with a longer side is left out, and counted
    batch_tokens: int = 2_048  # target tokens a batch, padding included

    def __post_init__(self) -> None:
        check_types(self)
        for name in ("size", "heldout_size", "vocab_size", "max_tokens", "batch_tokens"):
            require(getattr(self, name) >= 1, self, name, "must be at least 1")
        for name in ("train", "valid", "test"):
            files = getattr(self, name)
            require(len(files) in (0, 2), self, name, 'must name two files, as in ["train.de", "train.en"]')
        if self.corpus and self.train:
            raise ConfigError(
                f"data.corpus = {self.corpus!r} and data.train = {list(self.train)} are both given; a run has one "
                "training corpus. Remove one of them."
            )
        if not self.corpus:
            refuse_unread(self, ("size", "heldout_size"), "no built-in data.corpus is named")
        if self.tokenizer in ("byte", "file"):
            refuse_unread(self, ("vocab_size",), f"data.tokenizer = {self.tokenizer!r} has a vocabulary of its own")
        if (self.tokenizer == "file") != bool(self.tokenizer_file):
            raise ConfigError(
                f"data.tokenizer = {self.tokenizer!r} and data.tokenizer_file = {self.tokenizer_file!r} do not go "
                'together: a file is read with tokenizer = "file", and only then.'
            )
        if self.max_tokens > self.batch_tokens:
            raise ConfigError(
                f"data.max_tokens = {self.max_tokens} is more than data.batch_tokens = {self.batch_tokens}, so a "
                "single long pair would not fit into a batch. Lower the first or raise the second."
            )


@dataclass(frozen=True)
class TrainConfig:
    """How the weights are found."""

    steps: int = 100_000
    seed: int = 1
    device: str = "auto"  # "auto": CUDA if there is one, else the CPU
    label_smoothing: float = 0.1
    optimizer: Literal["adam"] = "adam"
    beta1: float = 0.9
    beta2: float = 0.98
    epsilon: float = 1e-9
    schedule: Literal["noam", "constant"] = "noam"
    lr: float = 1.0  # noam: a factor on the paper's schedule; constant: the learning rate itself
    warmup: int = 4_000
    clip_norm: float = 1.0  # 0: no clipping
    log_every: int = 50
    valid_every: int = 1_000
    save_every: int = 1_000
    keep: int = 3  # checkpoints to keep, the best one beside them
    snapshots: int = 0  # weights only, spread evenly over the run, to look at how it learned

    def __post_init__(self) -> None:
        check_types(self)
        for name in ("steps", "log_every", "valid_every", "save_every", "keep"):
            require(getattr(self, name) >= 1, self, name, "must be at least 1")
        for name in ("warmup", "clip_norm", "snapshots", "seed"):
            require(getattr(self, name) >= 0, self, name, "must not be negative")
        require(0 <= self.label_smoothing < 1, self, "label_smoothing", "must be at least 0 and below 1")
        require(self.lr > 0, self, "lr", "must be positive")
        require(self.epsilon > 0, self, "epsilon", "must be positive")
        for name in ("beta1", "beta2"):
            require(0 <= getattr(self, name) < 1, self, name, "must be at least 0 and below 1")
        if self.schedule == "noam" and self.warmup < 1:
            raise ConfigError(
                f"train.schedule = 'noam' divides by train.warmup, which is {self.warmup}. "
                "Set warmup to at least 1, or schedule = 'constant'."
            )
        if self.schedule == "constant":
            refuse_unread(self, ("warmup",), "train.schedule = 'constant' has no warmup")
        if self.schedule == "constant" and self.lr >= 0.1:
            raise ConfigError(
                f"train.schedule = 'constant' takes train.lr = {self.lr} as the learning rate itself, and Adam "
                "diverges at such a rate. Set lr to about 1e-3, or schedule = 'noam', where lr is a factor."
            )


@dataclass(frozen=True)
class DecodeConfig:
    """How text comes out of a trained model."""

    strategy: Literal["greedy", "beam", "sample"] = "beam"
    beam_size: int = 4
    length_penalty: float = 0.6
    temperature: float = 1.0
    top_k: int = 0  # 0: all tokens
    top_p: float = 1.0  # 1: all tokens
    seed: int = 0
    max_length: int = 0  # tokens a translation may have; 0: 50 more than its source, as in the paper
    batch_size: int = 64  # sentences decoded together

    def __post_init__(self) -> None:
        check_types(self)
        for name in ("beam_size", "batch_size"):
            require(getattr(self, name) >= 1, self, name, "must be at least 1")
        for name in ("length_penalty", "top_k", "max_length", "seed"):
            require(getattr(self, name) >= 0, self, name, "must not be negative")
        require(self.temperature > 0, self, "temperature", "must be positive; for no randomness use greedy")
        require(0 < self.top_p <= 1, self, "top_p", "must be above 0 and at most 1")


@dataclass(frozen=True)
class Config:
    """A whole recipe, and what `config.json` in a run folder holds."""

    model: ModelConfig = field(default_factory=ModelConfig)
    data: DataConfig = field(default_factory=DataConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    decode: DecodeConfig = field(default_factory=DecodeConfig)

    def __post_init__(self) -> None:
        if self.data.max_tokens > self.model.max_length:
            raise ConfigError(
                f"data.max_tokens = {self.data.max_tokens} lets in longer texts than the model has positions for: "
                f"model.max_length = {self.model.max_length}. Lower the first or raise the second."
            )

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self), indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Config:
        return config_from_tables(json.loads(text))


def read_recipe(path: str | Path, overrides: Iterable[str] = ()) -> Config:
    """Read a TOML recipe, with `overrides` such as "train.steps=100" on top."""
    try:
        tables = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"there is no recipe {str(path)!r}. Give the path of a .toml file.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"the recipe {str(path)!r} is not valid TOML: {error}") from None
    return config_from_tables(apply_overrides(tables, overrides))


def apply_overrides(tables: Mapping[str, Any], overrides: Iterable[str]) -> dict[str, Any]:
    """Put "table.field=value" settings on top of `tables`. A value is read as TOML, or else as plain text."""
    result = {name: dict(table) if isinstance(table, Mapping) else table for name, table in tables.items()}
    for setting in overrides:
        dotted, equals, text = setting.partition("=")
        table, dot, name = dotted.strip().partition(".")
        if not (equals and dot and name):
            raise ConfigError(f"the setting {setting!r} is not of the form table.field=value, as in train.steps=100.")
        result.setdefault(table, {})[name] = toml_value(text.strip())
    return result


def with_given(config: Any, **settings: Any) -> Any:
    """`config` with those settings changed that are not None: what a command line was given."""
    return dataclasses.replace(config, **{name: value for name, value in settings.items() if value is not None})


def config_from_tables(tables: Mapping[str, Any]) -> Config:
    parts = {f.name: f.default_factory for f in dataclasses.fields(Config)}
    for name, table in tables.items():
        if name not in parts:
            raise ConfigError(f"unknown table [{name}]. {did_you_mean(name, parts)}")
        if not isinstance(table, Mapping):
            raise ConfigError(f"{name} = {table!r} stands outside a table. Put it under one of: {', '.join(parts)}.")
    return Config(**{name: from_table(make, name, tables.get(name, {})) for name, make in parts.items()})


def from_table(cls: Any, table_name: str, table: Mapping[str, Any]) -> Any:
    """Build the dataclass `cls` from a table, refusing unknown fields with a suggestion."""
    allowed = [f.name for f in dataclasses.fields(cls)]
    for name in table:
        if name not in allowed:
            raise ConfigError(f"unknown setting {table_name}.{name}. {did_you_mean(name, allowed)}")
    return cls(**{name: tuple(v) if isinstance(v, list) else v for name, v in table.items()})


def toml_value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text  # --set data.corpus=reverse, with no quotes to fight the shell for


def check_types(config: Any) -> None:
    """Hold each field against its annotation: 8.0 heads or a misspelt choice is refused by name."""
    hints = get_type_hints(type(config))
    for f in dataclasses.fields(config):
        value, hint = getattr(config, f.name), hints[f.name]
        if get_origin(hint) is Literal:
            if value not in get_args(hint):
                raise ConfigError(
                    f"{setting_name(config, f.name)} = {value!r} is not a choice. "
                    f"{did_you_mean(str(value), get_args(hint))}"
                )
        elif hint is float and type(value) is int:
            object.__setattr__(config, f.name, float(value))  # `lr = 1` in TOML means 1.0
        elif not is_of_type(value, hint):
            raise ConfigError(
                f"{setting_name(config, f.name)} = {value!r} is of type {type(value).__name__}; "
                f"expected {getattr(hint, '__name__', hint)}."
            )


def is_of_type(value: Any, hint: Any) -> bool:
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        return any(is_of_type(value, h) for h in get_args(hint))
    if origin is tuple:
        return isinstance(value, tuple) and all(is_of_type(v, get_args(hint)[0]) for v in value)
    return type(value) is hint  # not isinstance: True is no number of layers


def require(holds: bool, config: Any, name: str, what: str) -> None:
    if not holds:
        raise ConfigError(f"{setting_name(config, name)} = {getattr(config, name)!r} {what}.")


def refuse_unread(config: Any, names: Iterable[str], why: str) -> None:
    """A setting that nothing reads is a misunderstanding: say so rather than ignore it."""
    defaults = {f.name: f.default for f in dataclasses.fields(config)}
    for name in names:
        if getattr(config, name) != defaults[name]:
            raise ConfigError(
                f"{setting_name(config, name)} = {getattr(config, name)!r} would have no effect, because {why}. "
                "Remove it."
            )


def setting_name(config: Any, name: str) -> str:
    return f"{type(config).__name__.removesuffix('Config').lower()}.{name}"


def choices(cls: type, name: str) -> tuple[str, ...]:
    """The named values of one field: what the tests iterate."""
    return get_args(get_type_hints(cls)[name])


def divisors(n: int) -> list[int]:
    return [d for d in range(1, n + 1) if n % d == 0]
