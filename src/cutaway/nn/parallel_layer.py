"""A layer whose sub-layers run in parallel instead of one after the other."""

from __future__ import annotations

from torch import Tensor, nn

from cutaway.nn.attention import MultiHeadAttention
from cutaway.nn.cache import LayerCache
from cutaway.nn.layers import require_memory, token_mask
from cutaway.nn.masks import Mask
from cutaway.nn.residual import Residual


class ParallelLayer(nn.Module):
    """x + attention(norm(x)) + feed_forward(norm(x)): one norm and one residual connection (GPT-J, PaLM)

    All sub-layers read the same input. Their outputs are added.
    """

    def __init__(
        self,
        self_attention: MultiHeadAttention,
        feed_forward: nn.Module,
        residual: Residual,
        cross_attention: MultiHeadAttention | None = None,
    ):
        super().__init__()
        self.self_attention = self_attention
        self.cross_attention = cross_attention
        self.feed_forward = feed_forward
        self.residual = residual

    def forward(
        self,
        x: Tensor,
        mask: Mask | None = None,
        memory: Tensor | None = None,
        memory_mask: Mask | None = None,
        cache: LayerCache | None = None,
    ) -> Tensor:
        self_cache, cross_cache = (cache.self_attention, cache.cross_attention) if cache else (None, None)

        def sublayers(x: Tensor) -> Tensor:
            y = self.self_attention(x, mask=mask, cache=self_cache) + self.feed_forward(x, token_mask(x, mask))
            if self.cross_attention is None:
                return y
            return y + self.cross_attention(x, require_memory(memory), memory_mask, cross_cache)

        return self.residual(x, sublayers)
