"""Pictures turned, stretched and shifted a little, so that a model sees each of them in a new way every time."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

# how far at strength 1
SHIFT = 0.6  # pixels
TURN = 0.2  # radians
STRETCH = 0.12  # of each axis, by itself


def distort(pixels_NHW: NDArray[np.float32], rng: np.random.Generator, strength: float = 1.0) -> NDArray[np.float32]:
    """Each picture turned, stretched and shifted a little about its middle, differently from the others."""
    n, height, width = pixels_NHW.shape
    turn = strength * rng.uniform(-TURN, TURN, n)
    stretch_N2 = 1 + strength * rng.uniform(-STRETCH, STRETCH, (n, 2))
    shift_N2 = strength * rng.uniform(-SHIFT, SHIFT, (n, 2))
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
