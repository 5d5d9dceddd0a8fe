"""Helpers for lessons: print shapes with axis names, save or display figures."""

from __future__ import annotations

import os
import re
import sys
from io import BytesIO
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


def save(figure: Any, name: str) -> None:
    """Save a figure as PNG in the figure folder. In a Jupyter kernel, display it instead."""
    if in_jupyter():
        from IPython.display import Image, display

        picture = BytesIO()
        figure.savefig(picture, bbox_inches="tight")
        display(Image(picture.getvalue(), format="png"))
        return
    folder = Path(os.environ.get(FIGURES, "lesson-figures"))
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.png"
    figure.savefig(path, bbox_inches="tight")
    print(f"[figure: {path}]")


def in_jupyter() -> bool:
    """Whether a Jupyter kernel runs this code. IPython in a terminal is not one: it cannot display a figure."""
    ipython = sys.modules.get("IPython")
    return ipython is not None and hasattr(ipython.get_ipython(), "kernel")
