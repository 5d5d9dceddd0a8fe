"""Find a recipe by its path, or by the name of a built-in one."""

from __future__ import annotations

from pathlib import Path

from cutaway.config import Config
from cutaway.runs import RunFolder
from cutaway.runs.recipe import find_base
from cutaway.system.resources import find_toml


def find_recipe(name: str) -> Path:
    return find_toml("recipes", "recipe", name)


def base_tokenizer(config: Config) -> Path | None:
    """The tokenizer of the base that a recipe fine-tunes. None: there is no base."""
    if not config.finetune.base:
        return None
    return RunFolder(find_base(config.finetune.base)).require().tokenizer
