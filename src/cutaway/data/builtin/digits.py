"""Handwritten digits: the 8×8 pictures that come with scikit-learn (Alpaydin & Kaynak 1998), 1,797 of them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cutaway.data.examples import Picture
from cutaway.errors import DataError, MissingExtra, did_you_mean

# The file is ordered by writer. Cut in order, the splits share hardly a hand; drawn at random, they would share all,
# and a model would be tested on writers that it has seen.
SPLITS = {"train": slice(0, 1197), "valid": slice(1197, 1397), "test": slice(1397, 1797)}
WHITE = 16.0  # the brightest value in the file

MAX_SHIFT = 0.6  # pixels
MAX_TURN = 0.2  # radians
MAX_STRETCH = 0.12  # of each axis, by itself


def digits(split: str = "train", size: int = 20_000, seed: int = 0) -> list[Picture]:
    """At most `size` pictures [1, 8, 8] of the digits "0" to "9".

    The training split begins with the originals, and goes on with distorted copies for as long as `size` asks. What
    is held out is never distorted.
    """
    if split not in SPLITS:
        raise DataError(f"'digits' has no split {split!r}. {did_you_mean(split, SPLITS)}")
    pixels_NHW, labels = _originals(SPLITS[split])
    if split == "train" and size > len(labels):
        draw = np.random.default_rng(seed)
        copied = draw.integers(len(labels), size=size - len(labels))
        pixels_NHW = np.concatenate([pixels_NHW, distort(pixels_NHW[copied], draw)])
        labels = np.concatenate([labels, labels[copied]])
    return [Picture(p[None], str(label)) for p, label in zip(pixels_NHW[:size], labels[:size], strict=True)]


def _originals(part: slice) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise MissingExtra("scikit-learn", "data") from None
    data = load_digits()
    return (data.images[part] / WHITE).astype(np.float32), data.target[part]


def distort(pixels_NHW: NDArray[np.float32], draw: np.random.Generator) -> NDArray[np.float32]:
    """Each picture turned, stretched and shifted a little about its middle, differently from the others."""
    n, height, width = pixels_NHW.shape
    turn = draw.uniform(-MAX_TURN, MAX_TURN, n)
    stretch_N2 = draw.uniform(1 - MAX_STRETCH, 1 + MAX_STRETCH, (n, 2))
    shift_N2 = draw.uniform(-MAX_SHIFT, MAX_SHIFT, (n, 2))
    middle = np.array([(height - 1) / 2, (width - 1) / 2])
    grid_HW2 = np.stack(np.meshgrid(np.arange(height), np.arange(width), indexing="ij"), axis=-1) - middle
    # Where each new pixel comes from: p = R·S·(q - middle) + middle + shift
    rotation_N22 = np.stack([np.cos(turn), -np.sin(turn), np.sin(turn), np.cos(turn)], axis=-1).reshape(n, 2, 2)
    from_NHW2 = np.einsum("nij,nj,hwj->nhwi", rotation_N22, stretch_N2, grid_HW2) + (middle + shift_N2)[:, None, None]
    return _bilinear(pixels_NHW, from_NHW2)


def _bilinear(pixels_NHW: NDArray[np.float32], at_NHW2: NDArray[np.float64]) -> NDArray[np.float32]:
    """The value between four pixels is their mean, weighted by nearness; outside the picture all is black."""
    padded = np.pad(pixels_NHW, ((0, 0), (1, 1), (1, 1)))
    picture = np.arange(len(padded))[:, None, None]
    limits = np.array(padded.shape[1:]) - 1
    at = np.clip(at_NHW2 + 1, 0, limits)
    corner = np.minimum(at.astype(int), limits - 1)
    weight = at - corner
    value = np.zeros(at.shape[:-1])
    for row in (0, 1):
        for column in (0, 1):
            share = np.abs(1 - row - weight[..., 0]) * np.abs(1 - column - weight[..., 1])
            value += share * padded[picture, corner[..., 0] + row, corner[..., 1] + column]
    return value.astype(np.float32)
