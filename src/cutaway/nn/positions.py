"""Position schemes: how a model that sees a bag of tokens learns their order.

All take explicit integer positions rather than counting by themselves, so that decoding with a cache, where one
token comes at a time, is right by construction.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn


class Position(nn.Module):
    """The interface, with neutral defaults. A scheme overrides the seam at which it acts."""

    max_length: int

    def __init__(self, max_length: int):
        super().__init__()
        self.max_length = max_length

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        """Called once, on the embedded tokens. x [B,T,D], positions [T] or [B,T] -> [B,T,D]."""
        return x


class SinusoidalPosition(Position):
    """PE(pos, 2i) = sin(pos / 10000^(2i/D)),  PE(pos, 2i+1) = cos(pos / 10000^(2i/D))     (the paper, section 3.5)

    The table is a buffer: it moves with the model from device to device, but it is no parameter. Nothing
    trains it, and since it can always be computed again, no checkpoint stores it.
    """

    table: Tensor

    def __init__(self, d_model: int, max_length: int):
        super().__init__(max_length)
        self.register_buffer("table", sinusoids(max_length, d_model), persistent=False)

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        return x + self.table[positions]


class LearnedPosition(Position):
    """A vector for each position, found by training: x + P[pos]. What lies beyond the last one, it cannot know."""

    def __init__(self, d_model: int, max_length: int):
        super().__init__(max_length)
        self.table = nn.Parameter(torch.zeros(max_length, d_model))

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        return x + self.table[positions]


def sinusoids(length: int, d_model: int) -> Tensor:
    """The table of the paper's sinusoids: sines in even columns, cosines in odd ones. -> [length, D]"""
    position = torch.arange(length, dtype=torch.float64)[:, None]
    even = torch.arange(0, d_model, 2, dtype=torch.float64)
    angle = position * torch.exp(-math.log(10_000.0) * even / d_model)
    table = torch.empty(length, d_model, dtype=torch.float64)
    table[:, 0::2] = angle.sin()
    table[:, 1::2] = angle.cos()
    return table.to(torch.get_default_dtype())
