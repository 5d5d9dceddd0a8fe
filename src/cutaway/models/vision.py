"""The Vision Transformer: an encoder that reads the patches of an image as tokens (Dosovitskiy et al. 2021)."""

from __future__ import annotations

from torch import Tensor, nn

from cutaway.nn.heads import ClassHead
from cutaway.nn.layers import Stack
from cutaway.nn.masks import Mask, MaskRule, Span
from cutaway.nn.patches import PatchEmbedding


class VisionTransformer(nn.Module):
    """images ──▶ patches ──▶ encoder ──▶ head ──▶ logits"""

    def __init__(self, embedding: PatchEmbedding, encoder: Stack, head: ClassHead, rules: tuple[MaskRule, ...] = ()):
        super().__init__()
        self.embedding = embedding
        self.encoder = encoder
        self.head = head
        self.rules = rules

    def forward(self, images: Tensor) -> Tensor:
        """images [B,C,H,W] -> logits [B, classes]"""
        return self.head(self.encode(images))

    def encode(self, images: Tensor) -> Tensor:
        """images [B,C,H,W] -> x [B,N,D], one vector for each patch."""
        x_BND = self.embedding(images)
        positions = Span(0, x_BND.size(1))
        return self.encoder(x_BND, Mask(positions, positions, self.rules))
