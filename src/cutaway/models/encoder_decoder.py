"""The Transformer of the paper: an encoder reads the source, a decoder generates the target."""

from __future__ import annotations

from torch import Tensor, nn

from cutaway.nn.cache import KVCache
from cutaway.nn.embedding import InputEmbedding, LanguageHead
from cutaway.nn.layers import Stack
from cutaway.nn.masks import Causal, Mask, MaskRule, Span


class EncoderDecoder(nn.Module):
    """p(target | source), one target token at a time.

        source ──▶ source_embedding ──▶ encoder ──▶ memory
                                                      │
        target_in ──▶ target_embedding ──▶ decoder ◀──┘ ──▶ head ──▶ logits

    Token masks [B,S] and [B,T] are True at tokens and False at padding; None: no padding. `rules` restrict the
    self-attention of encoder and decoder.
    """

    def __init__(
        self,
        source_embedding: InputEmbedding,
        target_embedding: InputEmbedding,
        encoder: Stack,
        decoder: Stack,
        head: LanguageHead,
        rules: tuple[MaskRule, ...] = (),
    ):
        super().__init__()
        self.source_embedding = source_embedding
        self.target_embedding = target_embedding
        self.encoder = encoder
        self.decoder = decoder
        self.head = head
        self.rules = rules

    def forward(
        self, source: Tensor, target_in: Tensor, source_mask: Tensor | None = None, target_mask: Tensor | None = None
    ) -> Tensor:
        """source [B,S], target_in [B,T] -> logits [B,T,V] for the next token at each position."""
        memory = self.encode(source, source_mask)
        return self.head(self.decode(target_in, memory, source_mask, target_mask))

    def encode(self, source: Tensor, source_mask: Tensor | None = None) -> Tensor:
        """source [B,S] -> memory [B,S,D]."""
        positions = Span(0, source.size(1))
        return self.encoder(self.source_embedding(source), Mask(positions, positions, self.rules, source_mask))

    def decode(
        self,
        target_in: Tensor,
        memory: Tensor,
        source_mask: Tensor | None = None,
        target_mask: Tensor | None = None,
        cache: KVCache | None = None,
    ) -> Tensor:
        """target_in [B,T], memory [B,S,D] -> x [B,T,D].

        With a cache, target_in is the new tokens only; target_mask, if given, covers cached and new tokens.
        """
        start = cache.length if cache else 0
        end = start + target_in.size(1)
        if cache and target_mask is None:
            target_mask = cache.is_token(end)
        x_BTD = self.decoder(
            self.target_embedding(target_in, cache.lengths if cache else 0),
            Mask(Span(start, end), Span(0, end), (Causal(), *self.rules), target_mask),
            memory,
            Mask(Span(start, end), Span(0, memory.size(1)), is_token=source_mask),
            cache,
        )
        if cache:
            cache.advance(target_in.size(1))
        return x_BTD

    def new_cache(self, padding: Tensor | None = None) -> KVCache:
        """An empty cache. `padding` [B]: the number of padding tokens on the left of each text, if lengths differ."""
        return self.decoder.new_cache(padding)
