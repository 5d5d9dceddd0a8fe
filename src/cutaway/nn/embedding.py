"""Embeddings and output projection (the paper, section 3.4): from token ids to vectors, and from vectors to logits."""

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

    The paper gives no reason for the factor. A likely one: the output projection shares the matrix and needs small
    numbers, so that logits start small. The input needs larger ones, comparable to the sinusoids up to 1 added to them.
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

    Norm and segments are those of BERT (Devlin et al. 2019). A segment is one of two sentences in an input; by default
    all tokens belong to the first.
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
        """ids [B,T] at positions start, start + 1, ... -> [B,T,D]. `start` [B] differs by row; below 0 is padding."""
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
    """logits = x Wᵀ + b: a score for each token of the vocabulary.    [B,T,D] -> [B,T,V]

    `shared`: the matrix of an embedding, used as W. Then a logit is the dot product of x and the token's embedding.
    The paper has no bias b; Marian has.
    """

    def __init__(self, vocab_size: int, d_model: int, shared: nn.Parameter | None = None, bias: bool = False):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(vocab_size, d_model)) if shared is None else shared
        self.bias = nn.Parameter(torch.zeros(vocab_size)) if bias else None
        self.logits = Probe()

    def forward(self, x: Tensor) -> Tensor:
        return self.logits(F.linear(x, self.weight, self.bias))
