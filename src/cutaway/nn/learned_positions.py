"""Learned positions: a trained vector for each position, like the embedding of a token."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cutaway.nn.positions import Position


class LearnedPosition(Position):
    """x + P[pos]. There is no vector for positions from `max_length` on."""

    def __init__(self, d_model: int, max_length: int):
        super().__init__(max_length)
        self.table = nn.Parameter(torch.zeros(max_length, d_model))

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        return x + F.embedding(positions, self.table)
