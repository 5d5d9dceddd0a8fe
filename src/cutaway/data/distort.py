"""Random rotation, stretching and shifting of images."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

# limits at strength 1
MAX_SHIFT = 0.6  # pixels
MAX_ANGLE = 0.2  # radians
MAX_STRETCH = 0.12  # of each axis separately


def distort(pixels_NHW: NDArray[np.float32], rng: np.random.Generator, strength: float = 1.0) -> NDArray[np.float32]:
    """Rotate, stretch and shift each image about its center by random amounts."""
    n, height, width = pixels_NHW.shape
    angle = strength * rng.uniform(-MAX_ANGLE, MAX_ANGLE, n)
    stretch_N2 = 1 + strength * rng.uniform(-MAX_STRETCH, MAX_STRETCH, (n, 2))
    shift_N2 = strength * rng.uniform(-MAX_SHIFT, MAX_SHIFT, (n, 2))
    center = np.array([(height - 1) / 2, (width - 1) / 2])
    grid_HW2 = np.stack(np.meshgrid(np.arange(height), np.arange(width), indexing="ij"), axis=-1) - center
    # The source position p of each new pixel q: p = R·S·(q - center) + center + shift
    rotation_N22 = np.stack([np.cos(angle), -np.sin(angle), np.sin(angle), np.cos(angle)], axis=-1).reshape(n, 2, 2)
    from_NHW2 = np.einsum("nij,nj,hwj->nhwi", rotation_N22, stretch_N2, grid_HW2) + (center + shift_N2)[:, None, None]
    return _bilinear(pixels_NHW, from_NHW2)


def _bilinear(pixels_NHW: NDArray[np.float32], at_NHW2: NDArray[np.float64]) -> NDArray[np.float32]:
    """Bilinear interpolation at real-valued positions. Outside the image everything is black."""
    padded = np.pad(pixels_NHW, ((0, 0), (1, 1), (1, 1)))
    image = np.arange(len(padded))[:, None, None]
    limits = np.array(padded.shape[1:]) - 1
    at = np.clip(at_NHW2 + 1, 0, limits)
    corner = np.minimum(at.astype(int), limits - 1)
    weight = at - corner
    value = np.zeros(at.shape[:-1])
    for row in (0, 1):
        for column in (0, 1):
            share = np.abs(1 - row - weight[..., 0]) * np.abs(1 - column - weight[..., 1])
            value += share * padded[image, corner[..., 0] + row, corner[..., 1] + column]
    return value.astype(np.float32)
