"""Rotary positions: rotate queries and keys, so that their dot product depends on their distance."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from cutaway.nn.masks import Span
from cutaway.nn.positions import Position, angles, as_tensor, frequencies

RopeScaling = Callable[[Tensor], Tensor]  # frequencies [P] -> scaled frequencies [P]


class RotaryPosition(Position):
    """Rotate each pair of numbers of a query or key by an angle proportional to the position (RoPE, Su et al. 2021).

        (x₂ᵢ, x₂ᵢ₊₁) ─▶ (x₂ᵢ cos θ - x₂ᵢ₊₁ sin θ,  x₂ᵢ sin θ + x₂ᵢ₊₁ cos θ),    θ = pos · base^(-2i/E)

    The dot product of two rotated vectors depends on the *difference* of their angles, so scores depend on distance.
    `scaling` changes the frequencies, for texts longer than those of the first training.
    """

    acts_in_attention = True
    cos: Tensor
    sin: Tensor

    def __init__(self, d_head: int, max_length: int, base: float = 10_000.0, scaling: RopeScaling | None = None):
        super().__init__(max_length)
        frequency_P = frequencies(d_head, base)
        angle_TP = angles(max_length, frequency_P if scaling is None else scaling(frequency_P))
        self.register_buffer("cos", angle_TP.cos().to(torch.get_default_dtype()), persistent=False)
        self.register_buffer("sin", angle_TP.sin().to(torch.get_default_dtype()), persistent=False)

    def rotate(self, x: Tensor, positions: Span | Tensor) -> Tensor:
        positions = as_tensor(positions, x.device)
        even, odd = x[..., 0::2], x[..., 1::2]
        cos, sin = self.cos[positions], self.sin[positions]
        return torch.stack([even * cos - odd * sin, even * sin + odd * cos], dim=-1).flatten(-2)


def linear_scaling(factor: float) -> RopeScaling:
    """Divide all frequencies by `factor`, as if positions were closer together (Chen et al. 2023)."""
    return lambda frequency_P: frequency_P / factor


def llama3_scaling(factor: float, slow: float, fast: float, original_length: int) -> RopeScaling:
    """Divide only low frequencies by `factor`, as in Llama 3.1.

    A pair with many rotations within `original_length` distinguishes near tokens and is kept. A pair with less than one
    rotation would reach angles that the first training never had. Between `slow` and `fast` rotations, interpolate.
    """

    def scale(frequency_P: Tensor) -> Tensor:
        turns_P = original_length * frequency_P / (2 * math.pi)
        kept_P = ((turns_P - slow) / (fast - slow)).clamp(0, 1)
        return frequency_P * (kept_P + (1 - kept_P) / factor)

    return scale
