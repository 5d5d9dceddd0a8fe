"""Recipes: a TOML file becomes a configuration, completed by the run that it begins with."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from cutaway.config import Config, config_from_tables, read_tables
from cutaway.config.model import ModelConfig
from cutaway.errors import ConfigError


def read_recipe(path: str | Path, overrides: Iterable[str] = (), started: Path | None = None) -> Config:
    """Read a TOML recipe, with `overrides` such as "train.steps=100" on top. `started`: the run that it has begun."""
    return config_from_tables(on_base(read_tables(path, overrides), started))


# What of a base's model a fine-tuned one may have in its own way. All else is in the weights that it begins with.
OWN_WAY = ("head", "n_classes", "pooling", "dropout", "attention_dropout", "attention_kernel")
OF_THE_HEAD = ("pooling", "embeddings")  # what another head does not take over


def on_base(tables: Mapping[str, Any], started: Path | None = None) -> dict[str, Any]:
    """The tables of a recipe that begins with a trained run, completed by it: its model, tokenizer, way of decoding.

    In such a recipe, [model] and [decode] hold what is to be different from that run. A run that has been started
    already knows all of it: then nobody asks for its base.
    """
    base = base_of_tables(tables)
    if not base:
        return dict(tables)
    if started and is_run(started):
        there = json.loads((started / "config.json").read_text(encoding="utf-8"))
    else:
        there = dataclasses.asdict(read_base(find_base(base)))
    given = {name: tables.get(name, {}) for name in ("model", "data", "decode")}
    if not all(isinstance(table, Mapping) for table in given.values()):
        return dict(tables)  # who makes a Config of them says what is wrong
    if there["model"]["family"] != "vision":
        refuse_tokenizer(given["data"], base)
        given["data"] = {**given["data"], "tokenizer": "file", "tokenizer_file": "tokenizer.json"}
    model = {**there["model"], "n_classes": 0, **given["model"]}  # classes are those of the new data
    if model["head"] != there["model"]["head"]:
        defaults = {f.name: f.default for f in dataclasses.fields(ModelConfig)}
        model |= {name: defaults[name] for name in OF_THE_HEAD if name not in given["model"]}
    refuse_other_model(model, there["model"], base)
    return {**tables, "model": model, "data": given["data"], "decode": {**there["decode"], **given["decode"]}}


def base_of_tables(tables: Mapping[str, Any]) -> str:
    """The run that a recipe begins with; empty: none."""
    finetune = tables.get("finetune", {})
    base = finetune.get("base", "") if isinstance(finetune, Mapping) else ""
    return base if isinstance(base, str) else ""


def base_folders(base: str, beside: Path | None = None) -> list[Path]:
    """Where a base may be: as given, in runs/, or beside the run that was made of it."""
    named = [Path(base), Path("runs") / base]
    return [*named, beside.parent / Path(base).name] if beside else named


def is_run(folder: Path) -> bool:
    """Whether the folder's config.json is one of ours: others' folders have one, too."""
    try:
        Config.from_json((folder / "config.json").read_text(encoding="utf-8"))
    except (ConfigError, OSError, ValueError, TypeError, AttributeError):
        return False
    return True


def find_base(base: str, beside: Path | None = None) -> Path:
    for folder in base_folders(base, beside):
        if is_run(folder):
            return folder
    there = sorted(path.parent.name for path in Path("runs").glob("*/config.json"))
    known = f"In runs/ there are: {', '.join(there)}." if there else "There is no run in runs/ either."
    raise ConfigError(
        f"finetune.base = {base!r} is no run folder. {known} Give the path of one, or train it first: "
        f"cutaway train {base}"
    )


def read_base(folder: Path) -> Config:
    """The configuration of a run that another one begins with."""
    try:
        config = Config.from_json((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, json.JSONDecodeError) as error:
        raise ConfigError(f"the configuration of the base {str(folder)!r} cannot be read: {error}") from None
    if config.finetune.is_adapter:
        raise ConfigError(
            f"the base {str(folder)!r} is an adapter itself (finetune.method = {config.finetune.method!r}), on "
            f"{config.finetune.base!r}. Begin with that one, or put the two together first: "
            f"cutaway export {folder} FOLDER --to run"
        )
    return config


def refuse_tokenizer(data: Mapping[str, Any], base: str) -> None:
    for name in ("tokenizer", "tokenizer_file", "vocab_size"):
        if name in data:
            raise ConfigError(
                f"data.{name} = {data[name]!r} is not for a fine-tuned model to choose: it reads with the tokenizer "
                f"of its base, {base!r}. Remove it."
            )


def refuse_other_model(model: Mapping[str, Any], of_base: Mapping[str, Any], base: str) -> None:
    """A model that has other weights than its base, or does something else with them."""
    may_differ = {*OWN_WAY, *(OF_THE_HEAD if model.get("head") != of_base["head"] else ())}
    if of_base["family"] == "vision":
        may_differ.remove("pooling")  # whether there is a class token is a matter of the embedding
    for name, value in model.items():
        if name in of_base and name not in may_differ and value != of_base[name]:
            raise ConfigError(
                f"model.{name} = {value!r}, but the base {base!r} was trained with {of_base[name]!r}. Remove it: a "
                f"fine-tuned model is that of its base, but for {', '.join(n for n in OWN_WAY if n in may_differ)}."
            )
