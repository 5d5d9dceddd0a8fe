"""The decoder-only model (GPT): it reads a text and predicts the next token."""

from __future__ import annotations

from torch import Tensor, nn

from cutaway.nn.cache import KVCache
from cutaway.nn.embedding import InputEmbedding, LanguageHead
from cutaway.nn.layers import Stack
from cutaway.nn.masks import Causal, Mask, MaskRule, Span


class DecoderOnly(nn.Module):
    """p(text), one token at a time.

        ids ──▶ embedding ──▶ decoder ──▶ head ──▶ logits
                                 ▲
                               memory (only if the layers have cross-attention)

    Token masks are True at tokens and False at padding; None: no padding.
    """

    def __init__(self, embedding: InputEmbedding, decoder: Stack, head: LanguageHead, rules: tuple[MaskRule, ...] = ()):
        super().__init__()
        self.embedding = embedding
        self.decoder = decoder
        self.head = head
        self.rules = rules

    def forward(
        self,
        ids: Tensor,
        mask: Tensor | None = None,
        memory: Tensor | None = None,
        memory_mask: Tensor | None = None,
    ) -> Tensor:
        """ids [B,T] -> logits [B,T,V] for the next token at each position."""
        return self.head(self.decode(ids, mask, memory, memory_mask))

    def decode(
        self,
        ids: Tensor,
        mask: Tensor | None = None,
        memory: Tensor | None = None,
        memory_mask: Tensor | None = None,
        cache: KVCache | None = None,
    ) -> Tensor:
        """ids [B,T], memory [B,S,D] -> x [B,T,D].

        With a cache, ids are the new tokens only; the mask, if given, covers cached and new tokens.
        """
        start = cache.length if cache else 0
        end = start + ids.size(1)
        if cache and mask is None:
            mask = cache.is_token(end)
        x_BTD = self.decoder(
            self.embedding(ids, cache.lengths if cache else 0),
            Mask(Span(start, end), Span(0, end), (Causal(), *self.rules), mask),
            memory,
            None if memory is None else Mask(Span(start, end), Span(0, memory.size(1)), is_token=memory_mask),
            cache,
        )
        if cache:
            cache.advance(ids.size(1))
        return x_BTD

    def new_cache(self, padding: Tensor | None = None) -> KVCache:
        """An empty cache. `padding` [B]: the number of padding tokens on the left of each text, if lengths differ."""
        return self.decoder.new_cache(padding)
