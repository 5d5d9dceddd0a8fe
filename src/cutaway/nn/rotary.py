"""Rotary positions: queries and keys are turned by angles, so that their product sees a distance."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from cutaway.nn.masks import Span
from cutaway.nn.positions import Position, angles, as_tensor, frequencies

RopeScaling = Callable[[Tensor], Tensor]  # how fast each pair turns -> how fast it is to turn


class RotaryPosition(Position):
    """Turn each pair of numbers of a query or key by an angle that grows with its position (RoPE, Su et al. 2021).

        (x₂ᵢ, x₂ᵢ₊₁) ─▶ (x₂ᵢ cos θ - x₂ᵢ₊₁ sin θ,  x₂ᵢ sin θ + x₂ᵢ₊₁ cos θ),    θ = pos · base^(-2i/E)

    A dot product of two turned vectors depends on the *difference* of their angles, so attention sees distances.
    `stretch` changes how fast each pair turns, for texts that are longer than those of the first training.
    """

    acts_in_attention = True
    cos: Tensor
    sin: Tensor

    def __init__(self, d_head: int, max_length: int, base: float = 10_000.0, stretch: RopeScaling | None = None):
        super().__init__(max_length)
        frequency_P = frequencies(d_head, base)
        angle_TP = angles(max_length, frequency_P if stretch is None else stretch(frequency_P))
        self.register_buffer("cos", angle_TP.cos().to(torch.get_default_dtype()), persistent=False)
        self.register_buffer("sin", angle_TP.sin().to(torch.get_default_dtype()), persistent=False)

    def rotate(self, x: Tensor, positions: Span | Tensor) -> Tensor:
        positions = as_tensor(positions, x.device)
        even, odd = x[..., 0::2], x[..., 1::2]
        cos, sin = self.cos[positions], self.sin[positions]
        return torch.stack([even * cos - odd * sin, even * sin + odd * cos], dim=-1).flatten(-2)


def linear_scaling(factor: float) -> RopeScaling:
    """Every pair turns so many times slower: positions lie closer together (Chen et al. 2023)."""
    return lambda speed_P: speed_P / factor


def llama3_scaling(factor: float, slow: float, fast: float, original_length: int) -> RopeScaling:
    """Only the pairs that turn slowly turn slower still, as in Llama 3.1.

    A pair that turns many times within the length of the first training tells near tokens apart, and is left alone;
    one that does not come round once has positions ahead of it that it has never seen.
    """

    def stretch(speed_P: Tensor) -> Tensor:
        turns_P = original_length * speed_P / (2 * math.pi)
        kept_P = ((turns_P - slow) / (fast - slow)).clamp(0, 1)
        return speed_P * (kept_P + (1 - kept_P) / factor)

    return stretch
