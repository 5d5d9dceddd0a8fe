"""Helpers for lessons: print shapes with axis names, save figures."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

FIGURES = "CUTAWAY_FIGURES"  # environment variable: the folder for figures


def shapes(**values: Any) -> None:
    """Print the shape of each value. A suffix of capitals names the axes, as in all of Cutaway:

    shapes(scores_BHQK=scores)        scores_BHQK    B=2  H=8  Q=4  K=4
    """
    for name, value in values.items():
        axes = re.search(r"_([A-Z0-9]+)$", name)
        sizes = [str(size) for size in value.shape]
        if axes and len(axes[1]) == len(sizes):
            named = zip(axes[1], sizes, strict=True)
            sizes = [size if axis.isdigit() else f"{axis}={size}" for axis, size in named]
        print(f"{name:<18} {'  '.join(sizes)}")


def save(figure: Any, name: str) -> Any:
    """Save a figure as PNG in the figure folder, and return it so that a notebook displays it."""
    folder = Path(os.environ.get(FIGURES, "lesson-figures"))
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.png"
    figure.savefig(path, bbox_inches="tight")
    print(f"[figure: {path}]")
    return figure
