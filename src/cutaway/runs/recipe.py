"""Read a recipe: TOML to a configuration. A fine-tuning gets its other settings from its base run."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from cutaway.config import Config, config_from_tables, read_tables
from cutaway.config.model import ModelConfig
from cutaway.config.renames import rename_settings
from cutaway.errors import ConfigError


def read_recipe(path: str | Path, overrides: Iterable[str] = (), started: Path | None = None) -> Config:
    """Read a TOML recipe and apply `overrides` such as "train.steps=100". `started`: its run, if it was started."""
    return config_from_tables(complete_from_base(read_tables(path, overrides), started))


# Settings of [model] that may differ from the base. All others must fit its weights.
MAY_DIFFER = ("head", "n_classes", "pooling", "dropout", "attention_dropout", "attention_kernel")
HEAD_SETTINGS = ("pooling", "embeddings")  # not taken from a base with another head


def complete_from_base(tables: Mapping[str, Any], started: Path | None = None) -> dict[str, Any]:
    """Add the settings of the base to a fine-tuning recipe: its model, its tokenizer and its decoding.

    Its [model] and [decode] have only the settings that differ. If the run was started before, they
    come from its config.json, so that the base is not needed.
    """
    base = base_name(tables)
    if not base:
        return dict(tables)
    if started and is_run(started):
        config = rename_settings(json.loads((started / "config.json").read_text(encoding="utf-8")))
    else:
        config = dataclasses.asdict(read_base(find_base(base)))
    given = {name: tables.get(name, {}) for name in ("model", "data", "decode")}
    if not all(isinstance(table, Mapping) for table in given.values()):
        return dict(tables)  # config_from_tables raises the error
    if config["model"]["family"] != "vision":
        refuse_tokenizer(given["data"], base)
        given["data"] = {**given["data"], "tokenizer": "file", "tokenizer_file": "tokenizer.json"}
    model = {**config["model"], "n_classes": 0, **given["model"]}  # n_classes comes from the new data
    if model["head"] != config["model"]["head"]:
        defaults = {f.name: f.default for f in dataclasses.fields(ModelConfig)}
        model |= {name: defaults[name] for name in HEAD_SETTINGS if name not in given["model"]}
    refuse_other_model(model, config["model"], base)
    return {**tables, "model": model, "data": given["data"], "decode": {**config["decode"], **given["decode"]}}


def base_name(tables: Mapping[str, Any]) -> str:
    """The value of finetune.base in a recipe; "" if there is none."""
    finetune = tables.get("finetune", {})
    base = finetune.get("base", "") if isinstance(finetune, Mapping) else ""
    return base if isinstance(base, str) else ""


def base_folders(base: str, beside: Path | None = None) -> list[Path]:
    """The folders where a base may be: the path itself, in runs/, or in the same folder as the run `beside`."""
    folders = [Path(base), Path("runs") / base]
    return [*folders, beside.parent / Path(base).name] if beside else folders


def is_run(folder: Path) -> bool:
    """Whether the folder's config.json is a configuration of Cutaway. Other programs use the same name."""
    try:
        Config.from_json((folder / "config.json").read_text(encoding="utf-8"))
    except (ConfigError, OSError, ValueError, TypeError, AttributeError):
        return False
    return True


def find_base(base: str, beside: Path | None = None) -> Path:
    for folder in base_folders(base, beside):
        if is_run(folder):
            return folder
    names = sorted(path.parent.name for path in Path("runs").glob("*/config.json"))
    known = f"Runs in runs/: {', '.join(names)}." if names else "There are no runs in runs/."
    raise ConfigError(
        f"finetune.base = {base!r} is not a run folder. {known} Give the path of a run, or train it first: "
        f"cutaway train {base}"
    )


def read_base(folder: Path) -> Config:
    """Read the configuration of a base."""
    try:
        config = Config.from_json((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, json.JSONDecodeError) as error:
        raise ConfigError(f"the configuration of the base {str(folder)!r} cannot be read: {error}") from None
    if config.finetune.is_adapter:
        raise ConfigError(
            f"the base {str(folder)!r} is an adapter itself (finetune.method = {config.finetune.method!r}) of "
            f"{config.finetune.base!r}. Start from that run, or merge the two first: "
            f"cutaway export {folder} FOLDER --to run"
        )
    return config


def refuse_tokenizer(data: Mapping[str, Any], base: str) -> None:
    for name in ("tokenizer", "tokenizer_file", "vocab_size"):
        if name in data:
            raise ConfigError(
                f"data.{name} = {data[name]!r} cannot be set: a fine-tuned model uses the tokenizer of its base, "
                f"{base!r}. Remove it."
            )


def refuse_other_model(model: Mapping[str, Any], base_model: Mapping[str, Any], base: str) -> None:
    """Raise an error if a setting of the model does not fit the weights of its base."""
    may_differ = {*MAY_DIFFER, *(HEAD_SETTINGS if model.get("head") != base_model["head"] else ())}
    if base_model["family"] == "vision":
        may_differ.remove("pooling")  # it decides whether the embedding has a class token
    for name, value in model.items():
        if name in base_model and name not in may_differ and value != base_model[name]:
            raise ConfigError(
                f"model.{name} = {value!r}, but the base {base!r} was trained with {base_model[name]!r}. Remove it. "
                f"Only {', '.join(n for n in MAY_DIFFER if n in may_differ)} may differ from the base."
            )
