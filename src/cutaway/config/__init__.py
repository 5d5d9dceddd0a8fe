"""Configuration as data: frozen dataclasses, read from TOML and written as JSON.

A recipe has the tables `[model] [data] [train] [decode]`, and `[finetune]` if it starts from a trained run:

    recipe.toml ──read_tables("train.steps=100")──▶ tables ──config_from_tables──▶ Config ──to_json──▶ config.json

Every exclusive choice is one field with named values (`norm_placement = "pre"`), not several booleans.
Impossible combinations raise an error here, before a model is built. The error names both values and a remedy.
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
from cutaway.config.renames import old_names, rename_setting, rename_settings, warn_of_old_names
from cutaway.config.train import BUDGETS, TrainConfig
from cutaway.errors import ConfigError, did_you_mean

__all__ = ["Config", "DataConfig", "DecodeConfig", "FinetuneConfig", "ModelConfig", "TrainConfig"]

SEAL = "seal"  # the table of config.json that holds a run folder's checksums (runs/folder.py); not a setting


@dataclass(frozen=True)
class Config:
    """All tables of a recipe. `config.json` in a run folder has the same content."""

    model: ModelConfig = field(default_factory=ModelConfig)
    data: DataConfig = field(default_factory=DataConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    decode: DecodeConfig = field(default_factory=DecodeConfig)
    finetune: FinetuneConfig = field(default_factory=FinetuneConfig)

    def __post_init__(self) -> None:
        """Check the settings that depend on another table."""
        object.__setattr__(self, "decode", self.decode.for_task(self.model.task))  # config.json never holds "auto"
        if self.model.family == "vision":
            text_settings = ("tokenizer", "tokenizer_file", "vocab_size", "max_tokens", "bpe_dropout")
            refuse_unread(self.data, text_settings, "model.family = 'vision' reads images")
        else:
            check_lengths(self.data, self.model.max_length)
            refuse_unread(self.data, ("distortion",), f"model.family = {self.model.family!r} reads text")
        check_long_texts(self.data, self.model.task)
        for split in ("train", "valid", "test"):
            check_files(self.data, split, self.model.task)
        if self.model.head != "vectors":
            refuse_unread(self.data, ("prompts",), "only model.head = 'vectors' has prompts")
        if not self.model.experts:
            refuse_unread(self.train, ("balance_loss",), "model.experts = 0 has no experts")
        check_prompt_fits(self)

    @property
    def longest_text(self) -> int:
        """The most tokens in a text. With RoPE, the vectors of a prompt take up positions."""
        uses_positions = self.finetune.method == "prompt" and self.model.position == "rope"
        return self.model.n_positions - (self.finetune.prompt_length if uses_positions else 0)

    @property
    def long_texts(self) -> str:
        """How texts that are too long are handled: "cut", "skip" or "refuse"."""
        return self.data.long_texts(self.model.task)

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self), indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Config:
        return config_from_tables({name: table for name, table in json.loads(text).items() if name != SEAL})


def check_lengths(data: DataConfig, max_length: int) -> None:
    if data.max_tokens > max_length:
        raise ConfigError(
            f"data.max_tokens = {data.max_tokens} is above the number of positions, "
            f"model.max_length = {max_length}. Lower the first or raise the second."
        )
    if data.max_tokens > data.batch_tokens:
        raise ConfigError(
            f"data.max_tokens = {data.max_tokens} is more than data.batch_tokens = {data.batch_tokens}, so a "
            "single long example would not fit into a batch. Lower the first or raise the second."
        )


def check_long_texts(data: DataConfig, task: str) -> None:
    if task not in LONG_TEXTS:
        why = "reads images" if task == "image_classification" else "cuts its texts into chunks, or only reads"
        refuse_unread(data, ("too_long",), f"a model for {task.replace('_', ' ')} {why}")
    if data.long_texts(task) == "cut":
        require(data.max_tokens >= 3, data, "max_tokens", "leaves no room between <s> and </s>; set it to 3 or more")


def check_prompt_fits(config: Config) -> None:
    """Check that the model has positions, or keys, for the learned vectors of prefix and prompt tuning."""
    finetune, model = config.finetune, config.model
    if finetune.method == "prefix" and model.attention == "linear":
        raise ConfigError(
            "finetune.method = 'prefix' and model.attention = 'linear' cannot be combined: linear attention keeps "
            'sums and no keys to put a prefix before. Use method = "lora" or "prompt".'
        )
    needed = model.n_positions if model.family == "vision" else config.data.max_tokens
    if finetune.method == "prompt" and needed > config.longest_text:
        read = f"an image of {needed} patches" if model.family == "vision" else f"data.max_tokens = {needed}"
        raise ConfigError(
            f"finetune.prompt_length = {finetune.prompt_length} vectors before {read} do not fit into the "
            f'{model.n_positions} positions of this model\'s RoPE. Shorten one of them, or use method = "prefix".'
        )


PAIR_SUFFIXES = (".tsv", ".jsonl")  # files in which a line holds both sides; .gz may follow


def check_files(data: DataConfig, split: str, task: str) -> None:
    """Check the number of files: two parallel files or files of pairs to translate; one to classify or tag."""
    files = getattr(data, split)
    if task == "translation":
        are_pairs = [file.startswith("hf:") or file.removesuffix(".gz").endswith(PAIR_SUFFIXES) for file in files]
        is_parallel = len(files) == 2 and not any(are_pairs)
        what = 'must name two files whose lines correspond, as in ["train.de", "train.en"], or files of pairs, as in '
        require(is_parallel or all(are_pairs), data, split, what + '["train.tsv"] (.tsv, .jsonl or hf:NAME)')
    elif task in ("classification", "tagging"):
        require(len(files) <= 1, data, split, f'must name one file for {task}, as in ["train.tsv"]')
    elif task == "image_classification":
        is_arrays = all(file.endswith(".npz") for file in files)
        require(len(files) <= 1 and is_arrays, data, split, 'must name one file of arrays, as in ["train.npz"]')
    if task == "image_classification":
        refuse_unread(data, ("columns",), "images come in arrays")


def read_tables(path: str | Path, overrides: Iterable[str] = ()) -> dict[str, Any]:
    """Read the tables of a recipe and apply `overrides`."""
    try:
        tables = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"there is no recipe {str(path)!r}. Give the path of a .toml file.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"the recipe {str(path)!r} is not valid TOML: {error}") from None
    return apply_overrides(tables, overrides)


def apply_overrides(tables: Mapping[str, Any], overrides: Iterable[str]) -> dict[str, Any]:
    """Replace settings of `tables` by "table.field=value" texts. A value is read as TOML, or else as plain text.

    A training has one budget: "train.minutes=1" replaces the recipe's steps. Old names of settings get a notice.
    """
    given = [parse_override(text) for text in overrides]
    warn_of_old_names(old_names(tables) + [n for table, name, v in given for n in old_names({table: {name: v}})])
    result = rename_settings(tables)
    train = result.get("train")
    if isinstance(train, dict) and any(table == "train" and name in BUDGETS for table, name, _ in given):
        result["train"] = {name: value for name, value in train.items() if name not in BUDGETS}
    for table, name, value in given:
        name, value = rename_setting(table, name, value)
        result.setdefault(table, {})[name] = value
    return result


def parse_override(text: str) -> tuple[str, str, Any]:
    """ "train.steps=100" -> ("train", "steps", 100)"""
    dotted, equals, value = text.partition("=")
    table, dot, name = dotted.strip().partition(".")
    if not (equals and dot and name):
        raise ConfigError(f"the setting {text!r} is not of the form table.field=value, as in train.steps=100.")
    return table, name, toml_value(value.strip())


def with_given(config: Any, **settings: Any) -> Any:
    """A copy of `config` with the settings that are not None replaced."""
    return dataclasses.replace(config, **{name: value for name, value in settings.items() if value is not None})


def config_from_tables(tables: Mapping[str, Any]) -> Config:
    """Build a Config. Old names of settings are accepted, as old run folders have them (config/renames.py)."""
    classes = {f.name: f.default_factory for f in dataclasses.fields(Config)}
    for name, table in tables.items():
        if name not in classes:
            raise ConfigError(f"unknown table [{name}]. {did_you_mean(name, classes)}")
        if not isinstance(table, Mapping):
            raise ConfigError(f"{name} = {table!r} is outside a table. Put it into one of: {', '.join(classes)}.")
    tables = rename_settings(tables)
    return Config(**{name: from_table(make, name, tables.get(name, {})) for name, make in classes.items()})


def from_table(cls: Any, table_name: str, table: Mapping[str, Any]) -> Any:
    """Build the dataclass `cls` from a table. An unknown field raises an error that suggests the nearest name."""
    allowed = [f.name for f in dataclasses.fields(cls)]
    for name in table:
        if name not in allowed:
            raise ConfigError(f"unknown setting {table_name}.{name}. {did_you_mean(name, allowed)}")
    return cls(**{name: tuple(v) if isinstance(v, list) else v for name, v in table.items()})


def toml_value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text  # so that --set data.corpus=reverse needs no quotes
