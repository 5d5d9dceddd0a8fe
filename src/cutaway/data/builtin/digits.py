"""Handwritten digits: the 1,797 images of 8×8 pixels in scikit-learn (Alpaydin & Kaynak 1998).

`digits` are the single images. `digit_sums` are images of 16×16 pixels with two digits; the label is their sum:

    ┌────┬────┐
    │    │ 7  │      label "12". There are too many combinations to memorize: a model must find the two digits,
    ├────┼────┤      recognize them and add them.
    │ 5  │    │
    └────┴────┘
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cutaway.data.examples import LabelledImage
from cutaway.errors import DataError, MissingExtra, did_you_mean

# The file is ordered by writer. With contiguous splits, almost no writer is in two splits. With random splits, a model
# would be tested on writers from its training data.
SPLITS = {"train": slice(0, 1197), "valid": slice(1197, 1397), "test": slice(1397, 1797)}
SEEDS = {split: number for number, split in enumerate(SPLITS)}
WHITE = 16.0  # the largest pixel value in the file


def digits(split: str = "train", size: int = 1_197, seed: int = 0) -> list[LabelledImage]:
    """At most `size` images [1, 8, 8] of the digits "0" to "9", shuffled with the seed."""
    pixels_NHW, labels = _load_images(split_slice(split))
    order = np.random.default_rng(seed).permutation(len(labels))[:size]
    return [LabelledImage(pixels_NHW[i][None], str(labels[i])) for i in order]


def digit_sums(split: str = "train", size: int = 20_000, seed: int = 0) -> list[LabelledImage]:
    """`size` images [1, 16, 16] with two digits of one split, in two of four quarters. The label is their sum."""
    pixels_NHW, labels = _load_images(split_slice(split))
    rng = np.random.default_rng([SEEDS[split], seed])
    images = []
    for _ in range(size):
        pixels, chosen = np.zeros((1, 16, 16), np.float32), rng.integers(len(labels), size=2)
        for i, quarter in zip(chosen, rng.permutation(4)[:2], strict=True):
            row, column = 8 * (quarter // 2), 8 * (quarter % 2)
            pixels[0, row : row + 8, column : column + 8] = pixels_NHW[i]
        images.append(LabelledImage(pixels, str(labels[chosen].sum())))
    return images


def split_slice(split: str) -> slice:
    if split not in SPLITS:
        raise DataError(f"'digits' has no split {split!r}. {did_you_mean(split, SPLITS)}")
    return SPLITS[split]


def _load_images(part: slice) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise MissingExtra("scikit-learn", "data") from None
    data = load_digits()
    return (data.images[part] / WHITE).astype(np.float32), data.target[part]
