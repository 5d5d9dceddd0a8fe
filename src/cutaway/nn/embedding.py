"""From token ids to vectors, with their order."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cutaway.nn.positions import Position
from cutaway.nn.probe import Probe


class TokenEmbedding(nn.Module):
    """A learned vector for each token, times sqrt(D) (the paper, section 3.4).    [B,T] -> [B,T,D]

    The paper gives no reason for the factor. One is the tie to the output projection: there the matrix must be small,
    for the logits to begin small; here it must not drown in the positions that are added, whose numbers go up to 1.
    """

    def __init__(self, vocab_size: int, d_model: int):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(vocab_size, d_model))

    def forward(self, ids: Tensor) -> Tensor:
        return F.embedding(ids, self.weight) * math.sqrt(self.weight.size(1))


class InputEmbedding(nn.Module):
    """dropout(position.embed(token embedding))    ids [B,T], positions [T] -> [B,T,D]"""

    def __init__(self, tokens: TokenEmbedding, position: Position, dropout: float):
        super().__init__()
        self.tokens = tokens
        self.position = position
        self.dropout = nn.Dropout(dropout)
        self.embedded = Probe()

    def forward(self, ids: Tensor, positions: Tensor) -> Tensor:
        return self.embedded(self.dropout(self.position.embed(self.tokens(ids), positions)))
