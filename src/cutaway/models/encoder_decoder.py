"""The Transformer of the paper: an encoder that reads, a decoder that writes."""

from __future__ import annotations

from torch import Tensor, nn

from cutaway.errors import DataError
from cutaway.nn.cache import KVCache
from cutaway.nn.embedding import InputEmbedding
from cutaway.nn.heads import LanguageHead
from cutaway.nn.layers import Decoder, Encoder
from cutaway.nn.masks import causal_mask, join_masks, padding_mask, positions_from


class EncoderDecoder(nn.Module):
    """p(target | source), one target token at a time.

        source ──▶ source_embedding ──▶ encoder ──▶ memory
                                                      │
        target_in ──▶ target_embedding ──▶ decoder ◀──┘ ──▶ head ──▶ logits

    Token masks [B,S] and [B,T] are True at tokens and False at padding; None means that there is no padding.
    """

    def __init__(
        self,
        source_embedding: InputEmbedding,
        target_embedding: InputEmbedding,
        encoder: Encoder,
        decoder: Decoder,
        head: LanguageHead,
    ):
        super().__init__()
        self.source_embedding = source_embedding
        self.target_embedding = target_embedding
        self.encoder = encoder
        self.decoder = decoder
        self.head = head

    def forward(
        self,
        source: Tensor,
        target_in: Tensor,
        source_mask: Tensor | None = None,
        target_mask: Tensor | None = None,
    ) -> Tensor:
        """source [B,S], target_in [B,T] -> logits [B,T,V]: at each position, for the token that comes next."""
        memory = self.encode(source, source_mask)
        return self.head(self.decode(target_in, memory, source_mask, target_mask))

    def encode(self, source: Tensor, source_mask: Tensor | None = None) -> Tensor:
        """source [B,S] -> memory [B,S,D]."""
        x_BSD = self.source_embedding(source, self._positions(source, 0, "source", self.source_embedding))
        return self.encoder(x_BSD, None if source_mask is None else padding_mask(source_mask))

    def decode(
        self,
        target_in: Tensor,
        memory: Tensor,
        source_mask: Tensor | None = None,
        target_mask: Tensor | None = None,
        cache: KVCache | None = None,
    ) -> Tensor:
        """target_in [B,T], memory [B,S,D] -> x [B,T,D].

        With a cache, target_in is only what is new, while target_mask covers all that the cache then holds.
        """
        start = cache.length if cache else 0
        positions = self._positions(target_in, start, "target", self.target_embedding)
        x_BTD = self.target_embedding(target_in, positions)
        mask = join_masks(
            causal_mask(positions, positions_from(0, start + target_in.size(1), target_in.device)),
            None if target_mask is None else padding_mask(target_mask),
        )
        x_BTD = self.decoder(x_BTD, memory, mask, None if source_mask is None else padding_mask(source_mask), cache)
        if cache:
            cache.advance(target_in.size(1))
        return x_BTD

    def new_cache(self) -> KVCache:
        return KVCache(len(self.decoder.layers))

    def _positions(self, ids: Tensor, start: int, side: str, embedding: InputEmbedding) -> Tensor:
        end, limit = start + ids.size(1), embedding.position.max_length
        if end > limit:
            raise DataError(
                f"the {side} has {end} tokens; this model has positions for {limit}. "
                "Shorten it, or train with a larger model.max_length."
            )
        return positions_from(start, ids.size(1), ids.device)
