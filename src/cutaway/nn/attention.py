"""Multi-head attention (the paper, section 3.2.2): one module for self- and cross-attention, with or without cache."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from cutaway.nn.cache import AttentionCache
from cutaway.nn.kernels import AttentionKernel, attend_exact, attend_fused, attend_masked
from cutaway.nn.masks import Mask, Span
from cutaway.nn.positions import Position
from cutaway.nn.probe import Probe

NO_POSITION = Position()  # the base class changes neither queries and keys nor scores


class MultiHeadAttention(nn.Module):
    """MultiHead(Q, K, V) = Concat(head_1, ..., head_H) W_O,  head_i = Attention(Q W_Qi, K W_Ki, V W_Vi)

    Each of the matrices `query`, `key` and `value` holds the projections of all heads, of width E = D/H:

        x [B,Q,D] ──query──▶ [B,Q,H·E] ──split──▶ [B,H,Q,E] ──┐
        y [B,K,D] ──key────▶ [B,K,G·E] ──split──▶ [B,G,K,E] ──┤ attend ──▶ [B,H,Q,E] ──merge──▶ output ──▶ [B,Q,D]
        y [B,K,D] ──value──▶ [B,K,G·E] ──split──▶ [B,G,K,E] ──┘

    In self-attention, y is x. In cross-attention, y is the memory (the encoder's output), and positions are not used.
    G is the number of key-value heads. If G < H, several query heads share keys and values, and the cache is smaller
    (grouped-query attention; multi-query attention if G = 1).

    `head_norm` makes a norm of width E for queries and keys (QK-norm, Henry et al. 2020). `cap` above 0 bounds scores.
    """

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        kernel: AttentionKernel = attend_fused,
        dropout: float = 0.0,
        n_kv_heads: int | None = None,
        d_head: int | None = None,
        bias: bool = True,
        position: Position | None = None,
        head_norm: Callable[[], nn.Module] | None = None,
        cap: float = 0.0,
    ):
        super().__init__()
        self.n_heads, self.n_kv_heads = n_heads, n_kv_heads or n_heads
        self.d_head = d_head or d_model // n_heads
        self.kernel, self.dropout, self.cap = kernel, dropout, cap
        self.position = position or Position()
        self.query = nn.Linear(d_model, self.n_heads * self.d_head, bias)
        self.key = nn.Linear(d_model, self.n_kv_heads * self.d_head, bias)
        self.value = nn.Linear(d_model, self.n_kv_heads * self.d_head, bias)
        self.output = nn.Linear(self.n_heads * self.d_head, d_model, bias)
        self.query_norm = head_norm() if head_norm else nn.Identity()
        self.key_norm = head_norm() if head_norm else nn.Identity()
        self.q, self.k, self.v = Probe(), Probe(), Probe()  # a Probe returns its input, which can be recorded there
        self.scores, self.weights, self.heads = Probe(), Probe(), Probe()

    def forward(
        self,
        x: Tensor,
        memory: Tensor | None = None,
        mask: Mask | Tensor | None = None,
        cache: AttentionCache | None = None,
    ) -> Tensor:
        """x [B,Q,D], memory [B,K,D] or None (self-attention), mask: a Mask or a tensor like [B,H,Q,K]; -> [B,Q,D]"""
        scheme = self.position if memory is None else NO_POSITION
        n_cached = cache.length if cache is not None and memory is None else 0
        indices = Span(n_cached, n_cached + x.size(1))  # x comes after the cached tokens
        positions = indices if cache is None else cache.positions(indices)  # do not count padding on the left
        q = self.query_norm(self.split(self.query(x)))
        q = self.q(scheme.rotate(q, positions))
        if memory is not None and cache is not None and cache.stored is not None:
            k, v = cache.stored  # the memory is constant: its keys and values were computed at the first step
        else:
            y = x if memory is None else memory
            k, v = self.key_norm(self.split(self.key(y))), self.split(self.value(y))
            k, v = self.k(scheme.rotate(k, positions)), self.v(v)
            if cache is not None:
                k, v = cache.append(k, v) if memory is None else cache.store(k, v)
        arguments = scheme.kernel_arguments(q, indices, Span(0, k.size(2)))  # for example a bias of the scores
        heads = self.attend(q, k, v, mask, **arguments)
        return self.output(self.merge(self.heads(heads)))

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Mask | Tensor | None, **position_arguments: Any) -> Tensor:
        """Call the kernel. q [B,H,Q,E], k and v [B,G,K,E] -> [B,H,Q,E]"""
        arguments = {"dropout": self.dropout if self.training else 0.0, "cap": self.cap, **position_arguments}
        if self.scores.is_watched or self.weights.is_watched:  # only attend_exact shows them
            mask = mask.dense(q.device) if isinstance(mask, Mask) else mask
            return attend_exact(q, k, v, mask, probe_scores=self.scores, probe_weights=self.weights, **arguments)
        if isinstance(mask, Mask):
            return attend_masked(self.kernel, q, k, v, mask, **arguments)
        return self.kernel(q, k, v, mask, **arguments)

    def split(self, x: Tensor) -> Tensor:
        """[B,T,H·E] -> [B,H,T,E]; with G instead of H for keys and values.

        The E numbers of a head are adjacent in the last dimension, so `view` splits that dimension into (H, E). Then
        `transpose` moves H forward. A `view` directly to [B,H,T,E] would mix numbers of different tokens.
        """
        B, T, _ = x.shape
        return x.view(B, T, -1, self.d_head).transpose(1, 2)

    def merge(self, x_BHTE: Tensor) -> Tensor:
        """[B,H,T,E] -> [B,T,H·E]: the inverse of `split`. `flatten` makes a copy if necessary."""
        return x_BHTE.transpose(1, 2).flatten(2)
