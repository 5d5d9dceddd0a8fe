"""Configuration is data: frozen dataclasses that import nothing, TOML in, JSON out.

A recipe is four tables, `[model] [data] [train] [decode]`, and a fifth, `[finetune]`, if it begins with a trained run:

    recipe.toml ──read_recipe──▶ Config ──apply_overrides("train.steps=100")──▶ Config ──to_json──▶ config.json

Every exclusive choice is one field with named values (`norm_placement = "pre"`), never a pile of booleans.
What cannot work is refused here, with both values and a remedy, before anything is built.
"""

from __future__ import annotations

import dataclasses
import json
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cutaway.config.checks import refuse_unread, require
from cutaway.config.data import LONG_TEXTS, DataConfig
from cutaway.config.decode import DecodeConfig
from cutaway.config.finetune import FinetuneConfig
from cutaway.config.model import ModelConfig
from cutaway.config.train import BUDGETS, TrainConfig
from cutaway.errors import ConfigError, did_you_mean

__all__ = ["Config", "DataConfig", "DecodeConfig", "FinetuneConfig", "ModelConfig", "TrainConfig"]

SEAL = "seal"  # the table of config.json in which a run folder keeps its checksums (runs/folder.py): no setting


@dataclass(frozen=True)
class Config:
    """A whole recipe, and what `config.json` in a run folder holds."""

    model: ModelConfig = field(default_factory=ModelConfig)
    data: DataConfig = field(default_factory=DataConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    decode: DecodeConfig = field(default_factory=DecodeConfig)
    finetune: FinetuneConfig = field(default_factory=FinetuneConfig)

    def __post_init__(self) -> None:
        """What one table asks of another."""
        object.__setattr__(self, "decode", self.decode.for_task(self.model.task))  # config.json never says "auto"
        if self.model.family == "vision":
            of_text = ("tokenizer", "tokenizer_file", "vocab_size", "max_tokens", "bpe_dropout")
            refuse_unread(self.data, of_text, "model.family = 'vision' reads images")
        else:
            check_lengths(self.data, self.model.max_length)
            refuse_unread(self.data, ("distortion",), f"model.family = {self.model.family!r} reads text")
        check_long_texts(self.data, self.model.task)
        for split in ("train", "valid", "test"):
            check_files(self.data, split, self.model.task)
        if self.model.head != "vectors":
            refuse_unread(self.data, ("prompts",), "model.head = 'vectors' alone has prompts")
        if not self.model.experts:
            refuse_unread(self.train, ("balance_loss",), "model.experts = 0 has no experts")
        check_vectors(self)

    @property
    def longest_text(self) -> int:
        """Tokens that a text may have. A rotation has so many positions, and those of a prompt are among them."""
        takes_some = self.finetune.method == "prompt" and self.model.position == "rope"
        return self.model.n_positions - (self.finetune.length if takes_some else 0)

    @property
    def long_texts(self) -> str:
        """What is done with texts that are too long: "cut", "skip" or "refuse"."""
        return self.data.long_texts(self.model.task)

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self), indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Config:
        return config_from_tables({name: table for name, table in json.loads(text).items() if name != SEAL})


def check_lengths(data: DataConfig, max_length: int) -> None:
    if data.max_tokens > max_length:
        raise ConfigError(
            f"data.max_tokens = {data.max_tokens} lets in longer texts than the model has positions for: "
            f"model.max_length = {max_length}. Lower the first or raise the second."
        )
    if data.max_tokens > data.batch_tokens:
        raise ConfigError(
            f"data.max_tokens = {data.max_tokens} is more than data.batch_tokens = {data.batch_tokens}, so a "
            "single long example would not fit into a batch. Lower the first or raise the second."
        )


def check_long_texts(data: DataConfig, task: str) -> None:
    if task not in LONG_TEXTS:
        why = "reads images" if task == "image_classification" else "cuts its texts into pieces, or only reads"
        refuse_unread(data, ("too_long",), f"a model for {task.replace('_', ' ')} {why}")
    if data.long_texts(task) == "cut":
        require(data.max_tokens >= 3, data, "max_tokens", "leaves no room between <s> and </s>; set it to 3 or more")


def check_vectors(config: Config) -> None:
    """Whether there is a place for the learned vectors of prefix and prompt tuning."""
    finetune, model = config.finetune, config.model
    if finetune.method == "prefix" and model.attention == "linear":
        raise ConfigError(
            "finetune.method = 'prefix' and model.attention = 'linear' cannot go together: linear attention keeps "
            'sums, and no keys that others could stand before. Use method = "lora" or "prompt".'
        )
    needed = model.n_positions if model.family == "vision" else config.data.max_tokens
    if finetune.method == "prompt" and needed > config.longest_text:
        read = f"an image of {needed} patches" if model.family == "vision" else f"data.max_tokens = {needed}"
        raise ConfigError(
            f"finetune.length = {finetune.length} vectors before {read} do not fit into the {model.n_positions} "
            'positions that this model\'s rotation knows. Shorten one of them, or use method = "prefix".'
        )


OF_PAIRS = (".tsv", ".jsonl")  # endings of files in which a line holds both sides; .gz may follow


def check_files(data: DataConfig, split: str, task: str) -> None:
    """Two parallel files to translate, or files of pairs; one to classify or tag; any number of texts."""
    files = getattr(data, split)
    if task == "translation":
        of_pairs = [file.startswith("hf:") or file.removesuffix(".gz").endswith(OF_PAIRS) for file in files]
        is_parallel = len(files) == 2 and not any(of_pairs)
        what = 'must name two files whose lines correspond, as in ["train.de", "train.en"], or files of pairs, as in '
        require(is_parallel or all(of_pairs), data, split, what + '["train.tsv"] (.tsv, .jsonl or hf:NAME)')
    elif task in ("classification", "tagging"):
        require(len(files) <= 1, data, split, f'must name one file for {task}, as in ["train.tsv"]')
    elif task == "image_classification":
        is_arrays = all(file.endswith(".npz") for file in files)
        require(len(files) <= 1 and is_arrays, data, split, 'must name one file of arrays, as in ["train.npz"]')
    if task == "image_classification":
        refuse_unread(data, ("columns",), "images come in arrays")


def read_tables(path: str | Path, overrides: Iterable[str] = ()) -> dict[str, Any]:
    """The tables of a recipe as they stand there, with `overrides` on top."""
    try:
        tables = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"there is no recipe {str(path)!r}. Give the path of a .toml file.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"the recipe {str(path)!r} is not valid TOML: {error}") from None
    return apply_overrides(tables, overrides)


def apply_overrides(tables: Mapping[str, Any], overrides: Iterable[str]) -> dict[str, Any]:
    """Put "table.field=value" settings on top of `tables`. A value is read as TOML, or else as plain text.

    One thing says how long a training is: "train.minutes=1" takes the place of the recipe's steps.
    """
    overrides = list(overrides)
    result = {name: dict(table) if isinstance(table, Mapping) else table for name, table in tables.items()}
    budgets, train = [f"train.{name}" for name in BUDGETS], result.get("train")
    if isinstance(train, dict) and any(setting.partition("=")[0].strip() in budgets for setting in overrides):
        result["train"] = {name: value for name, value in train.items() if name not in BUDGETS}
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
