"""Position schemes: how a model knows the order of its tokens.

A scheme can act in three places, and overrides the method that it needs:

    embed              on the embedded tokens, once           sinusoidal, learned               learned_positions.py
    rotate             on queries and keys, in every layer    rope                              rotary.py
    kernel_arguments   on the scores, in every layer          alibi, relative_bias, relative    relative_positions.py

All take explicit positions instead of counting from 0. So decoding with a cache, one token at a time, needs no special
case.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cutaway.nn.masks import Span


class Position(nn.Module):
    """The interface. Its defaults do nothing, so the class itself is the scheme "none".

    (A causal decoder can still learn the order, from the number of tokens it attends to. An encoder cannot.)
    """

    max_length: int
    per_layer = False  # True: each layer has its own instance; False: all layers share one
    acts_in_attention = False  # True: overrides `rotate` or `kernel_arguments`

    def __init__(self, max_length: int = 0):
        super().__init__()
        self.max_length = max_length

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        """Called once, on the embedded tokens. x [B,T,D], positions [T] or [B,T] -> [B,T,D]"""
        return x

    def rotate(self, x: Tensor, positions: Span | Tensor) -> Tensor:
        """Called on the queries and on the keys of self-attention. x [B,H,T,E], T positions -> [B,H,T,E]"""
        return x

    def kernel_arguments(self, q: Tensor, query: Span | Tensor, key: Span | Tensor) -> dict[str, Any]:
        """`bias` and `relative_values` for the kernel (kernels.py). q [B,H,Q,E], Q and K positions"""
        return {}


class SinusoidalPosition(Position):
    """PE(pos, 2i) = sin(pos / 10000^(2i/D)),  PE(pos, 2i+1) = cos(pos / 10000^(2i/D))     (the paper, section 3.5)

    The table is a buffer, not a parameter: it moves between devices with the model, but is not trained. Checkpoints do
    not store it, because it can be computed again.
    """

    table: Tensor

    def __init__(self, d_model: int, max_length: int):
        super().__init__(max_length)
        self.register_buffer("table", sinusoids(max_length, d_model), persistent=False)

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        return x + F.embedding(positions, self.table)


def sinusoids(length: int, d_model: int) -> Tensor:
    """The table of the paper's sinusoids: sines in even columns, cosines in odd ones. -> [length, D]"""
    angle_TP = angles(length, frequencies(d_model))
    table = torch.stack([angle_TP.sin(), angle_TP.cos()], dim=-1).flatten(1)
    return table.to(torch.get_default_dtype())


def frequencies(width: int, base: float = 10_000.0) -> Tensor:
    """base^(-2i/width): the angle of pair i at position 1. -> [width / 2]"""
    even = torch.arange(0, width, 2, dtype=torch.float64)
    return torch.exp(-math.log(base) * even / width)


def angles(length: int, frequency_P: Tensor) -> Tensor:
    """pos · frequency, in double precision. -> [length, P]"""
    return torch.arange(length, dtype=torch.float64)[:, None] * frequency_P


def as_tensor(positions: Span | Tensor, device: torch.device) -> Tensor:
    return positions.tensor(device) if isinstance(positions, Span) else positions
