"""From token ids, or from pixels, to vectors with their order."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cutaway.errors import DataError
from cutaway.nn.dropout import Dropout
from cutaway.nn.masks import Span
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

    def forward(self, ids: Tensor, start: int = 0, segments: Tensor | None = None) -> Tensor:
        """ids [B,T], which stand at the positions start, start + 1, ...; segments [B,T] -> [B,T,D]"""
        x = self.tokens(ids)
        if self.segments is not None:
            x = x + self.segments(torch.zeros_like(ids) if segments is None else segments)
        x = self.position.embed(x, self.positions(start, ids.size(1)).tensor(ids.device))
        return self.embedded(self.dropout(self.norm(x)))

    def positions(self, start: int, length: int) -> Span:
        if start + length > self.position.max_length:
            raise DataError(
                f"the text has {start + length} tokens; this model has positions for {self.position.max_length}. "
                "Shorten it, or train with a larger model.max_length."
            )
        return Span(start, start + length)


class PatchEmbedding(nn.Module):
    """An image as a sentence of P×P patches, each a word (ViT, Dosovitskiy et al. 2021).    [B,C,H,W] -> [B,N,D]

    ┌──┬──┐
    │ 0│ 1│      N = H/P · W/P patches, row by row; each is laid out flat (C·P·P numbers) and projected to D.
    ├──┼──┤      With `class_token` a learned vector stands before them, to gather what the image shows.
    │ 2│ 3│
    └──┴──┘
    """

    def __init__(
        self,
        image_size: int,
        patch_size: int,
        channels: int,
        d_model: int,
        position: Position,
        dropout: float,
        class_token: bool,
    ):
        super().__init__()
        self.image_size, self.patch_size, self.channels = image_size, patch_size, channels
        self.project = nn.Linear(channels * patch_size**2, d_model)
        # a matrix of one row, so that it begins like other weights: a norm of nothing but zeros has a huge gradient
        self.class_token = nn.Parameter(torch.zeros(1, d_model)) if class_token else None
        self.position = position
        self.dropout = Dropout(dropout)
        self.embedded = Probe()

    def forward(self, images: Tensor) -> Tensor:
        self.check(images)
        x_BND = self.project(self.patches(images))
        if self.class_token is not None:
            x_BND = torch.cat([self.class_token.expand(x_BND.size(0), 1, -1), x_BND], dim=1)
        x_BND = self.position.embed(x_BND, torch.arange(x_BND.size(1), device=x_BND.device))
        return self.embedded(self.dropout(x_BND))

    def patches(self, images: Tensor) -> Tensor:
        """[B,C,H,W] -> [B,N,C·P·P]"""
        B, C, P = images.size(0), self.channels, self.patch_size
        grid = images.unflatten(3, (-1, P)).unflatten(2, (-1, P))  # [B, C, rows, P, columns, P]
        return grid.permute(0, 2, 4, 1, 3, 5).reshape(B, -1, C * P * P)

    def check(self, images: Tensor) -> None:
        expected = (self.channels, self.image_size, self.image_size)
        if tuple(images.shape[1:]) != expected:
            raise DataError(
                f"the images are {list(images.shape)}; this model reads [any number, {', '.join(map(str, expected))}]. "
                "Scale them to that size first."
            )
