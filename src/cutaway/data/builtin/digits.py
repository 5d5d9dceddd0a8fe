"""Handwritten digits: the 8×8 pictures that come with scikit-learn (Alpaydin & Kaynak 1998), 1,797 of them.

`digits` are the pictures as they are; `digit_sums` two of them in a field of 16×16, and the question is their sum:

    ┌────┬────┐
    │    │ 7  │      label "12". To compare pictures does not help much, for there are too many of them: a model must
    ├────┼────┤      find the two, read them, and put together what it has read.
    │ 5  │    │
    └────┴────┘
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cutaway.data.examples import LabelledImage
from cutaway.errors import DataError, MissingExtra, did_you_mean

# The file is ordered by writer. Cut in order, the splits share hardly a hand; drawn at random, they would share all,
# and a model would be tested on writers that it has seen.
SPLITS = {"train": slice(0, 1197), "valid": slice(1197, 1397), "test": slice(1397, 1797)}
SEEDS = {split: number for number, split in enumerate(SPLITS)}
WHITE = 16.0  # the brightest value in the file


def digits(split: str = "train", size: int = 1_197, seed: int = 0) -> list[LabelledImage]:
    """At most `size` pictures [1, 8, 8] of the digits "0" to "9", in an order drawn with the seed."""
    pixels_NHW, labels = _originals(split_slice(split))
    order = np.random.default_rng(seed).permutation(len(labels))[:size]
    return [LabelledImage(pixels_NHW[i][None], str(labels[i])) for i in order]


def digit_sums(split: str = "train", size: int = 20_000, seed: int = 0) -> list[LabelledImage]:
    """`size` pictures [1, 16, 16] of two digits of one split, in two of four places, labelled with their sum."""
    pixels_NHW, labels = _originals(split_slice(split))
    rng = np.random.default_rng([SEEDS[split], seed])
    pictures = []
    for _ in range(size):
        field, chosen = np.zeros((1, 16, 16), np.float32), rng.integers(len(labels), size=2)
        for i, place in zip(chosen, rng.permutation(4)[:2], strict=True):
            row, column = 8 * (place // 2), 8 * (place % 2)
            field[0, row : row + 8, column : column + 8] = pixels_NHW[i]
        pictures.append(LabelledImage(field, str(labels[chosen].sum())))
    return pictures


def split_slice(split: str) -> slice:
    if split not in SPLITS:
        raise DataError(f"'digits' has no split {split!r}. {did_you_mean(split, SPLITS)}")
    return SPLITS[split]


def _originals(part: slice) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise MissingExtra("scikit-learn", "data") from None
    data = load_digits()
    return (data.images[part] / WHITE).astype(np.float32), data.target[part]
