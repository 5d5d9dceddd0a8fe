"""The encoder-only model (BERT): it reads a whole text and predicts hidden tokens, tags, a class or a vector."""

from __future__ import annotations

from torch import Tensor, nn

from cutaway.nn.embedding import InputEmbedding
from cutaway.nn.heads import ClassHead, VectorHead
from cutaway.nn.layers import Stack
from cutaway.nn.masks import Mask, MaskRule, Span


class EncoderOnly(nn.Module):
    """ids ──▶ embedding ──▶ encoder ──▶ head ──▶ logits

    The head is a MaskedLanguageHead (hidden tokens), a TagHead (a class for each token), a ClassHead (a class for the
    text) or a VectorHead (a vector for the text). Token masks are True at tokens and False at padding.
    """

    def __init__(self, embedding: InputEmbedding, encoder: Stack, head: nn.Module, rules: tuple[MaskRule, ...] = ()):
        super().__init__()
        self.embedding = embedding
        self.encoder = encoder
        self.head = head
        self.rules = rules

    def forward(self, ids: Tensor, mask: Tensor | None = None, segments: Tensor | None = None) -> Tensor:
        """ids [B,T] -> logits [B,T,V] of the vocabulary, [B,T,C] of tags, [B,C] of classes; or vectors [B,D]"""
        x_BTD = self.encode(ids, mask, segments)
        return self.head(x_BTD, mask) if isinstance(self.head, ClassHead | VectorHead) else self.head(x_BTD)

    def encode(self, ids: Tensor, mask: Tensor | None = None, segments: Tensor | None = None) -> Tensor:
        """ids [B,T] -> x [B,T,D]"""
        positions = Span(0, ids.size(1))
        return self.encoder(self.embedding(ids, segments=segments), Mask(positions, positions, self.rules, mask))
