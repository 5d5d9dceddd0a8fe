"""Examples of a corpus: one type for each kind. An example for a language model is a string."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Pair(NamedTuple):
    """A sentence and its translation."""

    source: str
    target: str


class LabelledText(NamedTuple):
    """A text and its class."""

    text: str
    label: str


class TaggedText(NamedTuple):
    """Words with a tag each. BIO tags mark spans: "B-x" begins x, "I-x" continues it, "O" is outside
    (Ramshaw & Marcus 1995)."""

    words: tuple[str, ...]
    tags: tuple[str, ...]


class LabelledImage(NamedTuple):
    """Pixels [C, H, W] from 0 to 1, and the class of the image."""

    pixels: NDArray[np.float32]
    label: str
