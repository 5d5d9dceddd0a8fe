"""A layer of the encoder or decoder, and a stack of layers: figure 1 of the paper.

encoder layer          decoder layer               decoder-only layer (GPT)

    feed-forward           feed-forward                feed-forward
    self-attention         cross-attention ◀─ memory   self-attention, masked
                           self-attention, masked
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from cutaway.errors import DataError
from cutaway.nn.attention import MultiHeadAttention
from cutaway.nn.cache import KVCache, LayerCache
from cutaway.nn.masks import Mask
from cutaway.nn.residual import Residual


class Layer(nn.Module):
    """Self-attention, cross-attention (optional) and feed-forward, each with a residual connection."""

    def __init__(
        self,
        self_attention: MultiHeadAttention,
        feed_forward: nn.Module,
        self_attention_residual: Residual,
        feed_forward_residual: Residual,
        cross_attention: MultiHeadAttention | None = None,
        cross_attention_residual: Residual | None = None,
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
        mask: Mask | None = None,
        memory: Tensor | None = None,
        memory_mask: Mask | None = None,
        cache: LayerCache | None = None,
    ) -> Tensor:
        """x [B,T,D], memory [B,S,D] -> [B,T,D]. `mask` is for self-attention, `memory_mask` for cross-attention."""
        self_cache, cross_cache = (cache.self_attention, cache.cross_attention) if cache else (None, None)
        x = self.self_attention_residual(x, lambda x: self.self_attention(x, mask=mask, cache=self_cache))
        if self.cross_attention is not None and self.cross_attention_residual is not None:
            cross_attention, memory = self.cross_attention, require_memory(memory)
            x = self.cross_attention_residual(x, lambda x: cross_attention(x, memory, memory_mask, cross_cache))
        return self.feed_forward_residual(x, lambda x: self.feed_forward(x, token_mask(x, mask)))


class Stack(nn.Module):
    """N layers and a final norm. With post-norm it is the identity, because each layer already ends with a norm."""

    def __init__(self, layers: Sequence[nn.Module], norm: nn.Module):
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.norm = norm

    def forward(
        self,
        x: Tensor,
        mask: Mask | None = None,
        memory: Tensor | None = None,
        memory_mask: Mask | None = None,
        cache: KVCache | None = None,
    ) -> Tensor:
        for i, layer in enumerate(self.layers):
            x = layer(x, mask, memory, memory_mask, cache.layers[i] if cache else None)
        return self.norm(x)

    def new_cache(self, padding: Tensor | None = None) -> KVCache:
        return KVCache(len(self.layers), padding)


def require_memory(memory: Tensor | None) -> Tensor:
    if memory is None:
        raise DataError("this model has cross-attention but got no memory. Pass `memory`, the output of an encoder.")
    return memory


def token_mask(x: Tensor, mask: Mask | None) -> Tensor | None:
    """Which of x [B,T,D] are tokens, not padding: [B,T]. With a cache the mask has more columns; the last T are x."""
    if mask is None or mask.is_token is None:
        return None
    return mask.is_token[:, -x.size(1) :]
