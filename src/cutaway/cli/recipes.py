"""Recipes by path, or by name if Cutaway brings them along."""

from __future__ import annotations

from pathlib import Path

from cutaway.shipped import find_toml


def find_recipe(name: str) -> Path:
    return find_toml("recipes", "recipe", name)
