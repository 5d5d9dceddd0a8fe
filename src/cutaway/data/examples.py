"""What a corpus is made of: one small type for each kind of example. A text for a language model is a plain string."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Pair(NamedTuple):
    """A sentence and its translation."""

    source: str
    target: str


class LabelledText(NamedTuple):
    """A text and the class that it belongs to."""

    text: str
    label: str


class TaggedText(NamedTuple):
    """Words with a tag each. Tags "B-x", "I-x", "O" mark spans: x begins, goes on, nothing (Ramshaw & Marcus 1995)."""

    words: tuple[str, ...]
    tags: tuple[str, ...]


class LabelledImage(NamedTuple):
    """Pixels [C, H, W] from 0 to 1, and what they show."""

    pixels: NDArray[np.float32]
    label: str
