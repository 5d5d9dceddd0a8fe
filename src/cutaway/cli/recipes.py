"""Recipes by path, or by name if Cutaway brings them along."""

from __future__ import annotations

from pathlib import Path

from cutaway.errors import ConfigError, did_you_mean
from cutaway.shipped import shipped


def built_in_recipes() -> list[str]:
    return sorted(path.stem for path in shipped("recipes").glob("*.toml"))


def find_recipe(name: str) -> Path:
    if Path(name).is_file():
        return Path(name)
    built_in = shipped("recipes") / f"{name.removesuffix('.toml')}.toml"
    if "/" not in name and built_in.is_file():
        return built_in
    raise ConfigError(
        f"there is no recipe {name!r}, neither a file nor a built-in one. {did_you_mean(name, built_in_recipes())}"
    )
