"""Faster attention for inference, with the same results as nn/attention.py.

- Self-attention: one matrix product computes queries, keys and values.
- Cross-attention: all rows of a beam share one memory. They become queries of one text, so the keys and values of the
  memory are stored and read once.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from cutaway.inference.fast.int8 import Int8Product
from cutaway.inference.fast.packed_linear import LinearProduct, PackedLinear, to_column_major
from cutaway.models.parts import copy_module_state
from cutaway.nn.attention import MultiHeadAttention
from cutaway.nn.cache import AttentionCache
from cutaway.nn.masks import Mask, Span
from cutaway.nn.probe import is_hooked


class FusedSelfAttention(MultiHeadAttention):
    """Self-attention with one matrix product for queries, keys and values."""

    def __init__(self, attention: MultiHeadAttention, qkv: FusedProduct):
        copy_module_state(self, attention)
        self.qkv = qkv

    def forward(
        self,
        x: Tensor,
        memory: Tensor | None = None,
        mask: Mask | Tensor | None = None,
        cache: AttentionCache | None = None,
    ) -> Tensor:
        if memory is not None or not self.qkv.is_usable(self):
            return super().forward(x, memory, mask, cache)
        start = 0 if cache is None else cache.length
        places = Span(start, start + x.size(1))
        positions = places if cache is None else cache.positions(places)
        q, k, v = self.split(self.qkv(x)).split((self.n_heads, self.n_kv_heads, self.n_kv_heads), dim=1)
        if type(self.query_norm) is not nn.Identity:
            q, k = self.query_norm(q), self.key_norm(k)
        q = self.q(self.position.rotate(q, positions))
        k, v = self.k(self.position.rotate(k, positions)), self.v(v)
        if cache is not None:
            k, v = cache.append(k, v)
        heads = self.attend(q, k, v, mask, **self.position.kernel_arguments(q, places, Span(0, k.size(2))))
        return self.output(self.merge(self.heads(heads)))


class FusedProduct:
    """One matrix for queries, keys and values. The three parameters become views of it."""

    def __init__(self, attention: MultiHeadAttention, int8: bool, may_pack: bool, outliers: bool):
        linears = attention.query, attention.key, attention.value
        weight = to_column_major(torch.cat([linear.weight for linear in linears]))
        biases = [linear.bias.detach() for linear in linears if linear.bias is not None]  # type: ignore[redundant-expr]
        bias = torch.cat(biases) if biases else None
        self.product: Callable[[Tensor], Tensor]
        self.fused = None if int8 else (weight, bias)
        if int8:
            self.product = Int8Product(weight, bias, outliers)
            return
        self.product = partial(LinearProduct(may_pack), weight=weight, bias=bias)
        self.starts = (0, linears[0].out_features, linears[0].out_features + linears[1].out_features)
        for linear, start in zip(linears, self.starts, strict=True):
            rows = slice(start, start + linear.out_features)
            linear.weight = nn.Parameter(weight[rows], linear.weight.requires_grad)
            if bias is not None:
                linear.bias = nn.Parameter(bias[rows], linear.bias.requires_grad)

    def is_usable(self, attention: MultiHeadAttention) -> bool:
        """Whether the three parameters are still views of this matrix, without gradients and without hooks."""
        query, key, value = attention.query, attention.key, attention.value
        if torch.is_grad_enabled() or is_hooked(query) or is_hooked(key) or is_hooked(value):
            return False
        if self.fused is None:
            return type(query) is type(key) is type(value) is Int8Product
        if not (type(query) is type(key) is type(value) is PackedLinear):
            return False
        weight, bias = self.fused
        return all(
            is_view_at(linear.weight, weight, start) and is_view_at(linear.bias, bias, start)
            for linear, start in zip((query, key, value), self.starts, strict=True)
        )

    def __call__(self, x: Tensor) -> Tensor:
        return self.product(x)


def is_view_at(view: Tensor | None, fused: Tensor | None, row: int) -> bool:
    """Whether `view` is a view of `fused` that starts at this row (of a column-major matrix or a bias)."""
    if view is None or fused is None:
        return view is fused
    return view.data_ptr() == fused.data_ptr() + row * fused.element_size()


class SharedMemoryAttention(MultiHeadAttention):
    """Cross-attention of N = B·K rows to B memories, K rows each: [N,H,Q,E] -> [B,H,K·Q,E] -> [N,H,Q,E]"""

    def __init__(self, attention: MultiHeadAttention):
        copy_module_state(self, attention)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Mask | Tensor | None, **position_arguments: Any) -> Tensor:
        N, B = q.size(0), k.size(0)
        if N == B:
            return super().attend(q, k, v, mask, **position_arguments)
        q_BHLE = q.unflatten(0, (B, -1)).transpose(1, 2).flatten(2, 3)
        heads_BHLE = super().attend(q_BHLE, k, v, mask, **position_arguments)
        return heads_BHLE.unflatten(2, (N // B, -1)).transpose(1, 2).flatten(0, 1)
