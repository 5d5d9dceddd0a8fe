"""Embeddings and softmax (the paper, section 3.4): from token ids to vectors, and back to a score for each token."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cutaway.errors import DataError
from cutaway.nn.dropout import Dropout
from cutaway.nn.positions import Position
from cutaway.nn.probe import Probe


class TokenEmbedding(nn.Module):
    """A learned vector for each token, times sqrt(D) if `scaled` (the paper, section 3.4).    [B,T] -> [B,T,D]

    The paper gives no reason for the factor. One is the tie to the output projection: there the matrix must be small,
    for the logits to begin small; here it must not drown in the positions that are added, whose numbers go up to 1.
    """

    def __init__(self, vocab_size: int, d_model: int, scaled: bool = True):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(vocab_size, d_model))
        self.scale = math.sqrt(d_model) if scaled else 1.0

    def forward(self, ids: Tensor) -> Tensor:
        embedded = F.embedding(ids, self.weight)
        return embedded if self.scale == 1.0 else embedded * self.scale


class InputEmbedding(nn.Module):
    """dropout(norm(position.embed(token embedding + segment embedding)))    ids [B,T] -> [B,T,D]

    The norm and the segments are BERT's (Devlin et al. 2019): a segment is one of two sentences that are read together,
    and all tokens belong to the first unless told otherwise.
    """

    def __init__(
        self,
        tokens: TokenEmbedding,
        position: Position,
        dropout: float,
        norm: nn.Module | None = None,
        segments: TokenEmbedding | None = None,
    ):
        super().__init__()
        self.tokens = tokens
        self.segments = segments
        self.position = position
        self.norm = norm or nn.Identity()
        self.dropout = Dropout(dropout)
        self.embedded = Probe()

    def forward(self, ids: Tensor, start: int | Tensor = 0, segments: Tensor | None = None) -> Tensor:
        """ids [B,T] at the positions start, start + 1, ... (start [B]: for each row; below 0, padding) -> [B,T,D]"""
        length = ids.size(1) + (int(start.max()) if isinstance(start, Tensor) else start)
        if length > self.position.max_length:
            raise DataError(
                f"the text has {length} tokens; this model has positions for {self.position.max_length}. "
                "Shorten it, or train with a larger model.max_length."
            )
        if isinstance(start, Tensor):
            positions = (start[:, None] + torch.arange(ids.size(1), device=ids.device)).clamp(min=0)
        else:
            positions = torch.arange(start, length, device=ids.device)
        x = self.tokens(ids)
        if self.segments is not None:
            x = x + self.segments(torch.zeros_like(ids) if segments is None else segments)
        return self.embedded(self.dropout(self.norm(self.position.embed(x, positions))))


class LanguageHead(nn.Module):
    """logits = x Wᵀ: how well each token of the vocabulary fits here.    [B,T,D] -> [B,T,V]

    Given the matrix of an embedding, it shares it: a token is likely where x points the way its embedding does.
    With a bias, a token is also likely or unlikely by itself, wherever it is to stand (Marian).
    """

    def __init__(self, vocab_size: int, d_model: int, shared: nn.Parameter | None = None, bias: bool = False):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(vocab_size, d_model)) if shared is None else shared
        self.bias = nn.Parameter(torch.zeros(vocab_size)) if bias else None
        self.logits = Probe()

    def forward(self, x: Tensor) -> Tensor:
        return self.logits(F.linear(x, self.weight, self.bias))
