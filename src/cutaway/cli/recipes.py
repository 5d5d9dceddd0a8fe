"""Recipes by path, or by name if Cutaway brings them along."""

from __future__ import annotations

from pathlib import Path

from cutaway.config import Config
from cutaway.runs import RunFolder
from cutaway.runs.recipe import find_base
from cutaway.system.resources import find_toml


def find_recipe(name: str) -> Path:
    return find_toml("recipes", "recipe", name)


def base_tokenizer(config: Config) -> Path | None:
    """The tokenizer of the run that a recipe begins with; None: the recipe makes its own."""
    if not config.finetune.base:
        return None
    return RunFolder(find_base(config.finetune.base)).require().tokenizer
