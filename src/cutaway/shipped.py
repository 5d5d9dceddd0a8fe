"""Folders that come with Cutaway beside its code: recipes, lessons, exercises."""

from __future__ import annotations

from pathlib import Path


def shipped(name: str) -> Path:
    """In a wheel such a folder lies inside the package; in a checkout, at the top."""
    package = Path(__file__).parent
    installed = package / name
    return installed if installed.is_dir() else package.parents[1] / name
