"""The encoder's and the decoder's layer, and a stack of each: figure 1 of the paper."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from cutaway.nn.attention import MultiHeadAttention
from cutaway.nn.cache import KVCache, LayerCache
from cutaway.nn.feedforward import FeedForward
from cutaway.nn.residual import Residual


class EncoderLayer(nn.Module):
    """Look at the whole sentence, then think."""

    def __init__(
        self,
        self_attention: MultiHeadAttention,
        feed_forward: FeedForward,
        self_attention_residual: Residual,
        feed_forward_residual: Residual,
    ):
        super().__init__()
        self.self_attention = self_attention
        self.self_attention_residual = self_attention_residual
        self.feed_forward = feed_forward
        self.feed_forward_residual = feed_forward_residual

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """x [B,S,D], mask broadcastable to [B,H,S,S] -> [B,S,D]."""
        x = self.self_attention_residual(x, lambda x: self.self_attention(x, mask=mask))
        return self.feed_forward_residual(x, self.feed_forward)


class DecoderLayer(nn.Module):
    """Look at what is written so far, look at the source, then think."""

    def __init__(
        self,
        self_attention: MultiHeadAttention,
        cross_attention: MultiHeadAttention,
        feed_forward: FeedForward,
        self_attention_residual: Residual,
        cross_attention_residual: Residual,
        feed_forward_residual: Residual,
    ):
        super().__init__()
        self.self_attention = self_attention
        self.self_attention_residual = self_attention_residual
        self.cross_attention = cross_attention
        self.cross_attention_residual = cross_attention_residual
        self.feed_forward = feed_forward
        self.feed_forward_residual = feed_forward_residual

    def forward(
        self,
        x: Tensor,
        memory: Tensor,
        mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        cache: LayerCache | None = None,
    ) -> Tensor:
        """x [B,T,D], memory [B,S,D], masks broadcastable to [B,H,T,T] and [B,H,T,S] -> [B,T,D]."""
        own, crossed = (cache.self_attention, cache.cross_attention) if cache else (None, None)
        x = self.self_attention_residual(x, lambda x: self.self_attention(x, mask=mask, cache=own))
        x = self.cross_attention_residual(x, lambda x: self.cross_attention(x, memory, memory_mask, crossed))
        return self.feed_forward_residual(x, self.feed_forward)


class Encoder(nn.Module):
    """N layers, each with weights of its own, and the norm that ends a pre-norm stack."""

    def __init__(self, layers: Sequence[EncoderLayer], norm: nn.Module):
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.norm = norm

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        for layer in self.layers:
            x = layer(x, mask)
        return self.norm(x)


class Decoder(nn.Module):
    """As the encoder, with the memory beside it and a cache on request."""

    def __init__(self, layers: Sequence[DecoderLayer], norm: nn.Module):
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.norm = norm

    def forward(
        self,
        x: Tensor,
        memory: Tensor,
        mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        cache: KVCache | None = None,
    ) -> Tensor:
        for i, layer in enumerate(self.layers):
            x = layer(x, memory, mask, memory_mask, cache.layers[i] if cache else None)
        return self.norm(x)
