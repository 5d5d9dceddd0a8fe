"""Recipes by path, or by name if Cutaway brings them along."""

from __future__ import annotations

from pathlib import Path

from cutaway.errors import ConfigError, did_you_mean


def recipe_folder() -> Path:
    """In a wheel the recipes lie inside the package; in a checkout, at the top."""
    package = Path(__file__).parents[1]
    installed = package / "recipes"
    return installed if installed.is_dir() else package.parents[1] / "recipes"


def built_in_recipes() -> list[str]:
    return sorted(path.stem for path in recipe_folder().glob("*.toml"))


def find_recipe(name: str) -> Path:
    if Path(name).is_file():
        return Path(name)
    built_in = recipe_folder() / f"{name.removesuffix('.toml')}.toml"
    if "/" not in name and built_in.is_file():
        return built_in
    raise ConfigError(
        f"there is no recipe {name!r}, neither a file nor a built-in one. {did_you_mean(name, built_in_recipes())}"
    )
