"""Multi-head attention (the paper, section 3.2.2) and the KV cache that makes decoding fast."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from cutaway.twin.basics import Linear
from cutaway.twin.modules import Dropout, ForwardResult, Module, Probe, Variable
from cutaway.twin.ops import Array, Backward, attention, identity
from cutaway.twin.positions import Position


class AttentionCache:
    """The keys and values [B,G,K,E] of one attention, in buffers that grow by doubling."""

    def __init__(self) -> None:
        self.k: Array | None = None
        self.v: Array | None = None

    def append(self, k: Array, v: Array, start: int) -> tuple[Array, Array]:
        """Append k and v after the first `start` positions. Return all keys and values so far."""
        end = start + k.shape[2]
        self.k, self.v = grow_buffer(self.k, k, start, end), grow_buffer(self.v, v, start, end)
        self.k[:, :, start:end], self.v[:, :, start:end] = k, v
        return self.k[:, :, :end], self.v[:, :, :end]

    def reorder(self, rows: Array) -> None:
        """Replace row i by the old row rows[i]."""
        if self.k is not None and self.v is not None:
            self.k, self.v = self.k[rows], self.v[rows]


class KVCache:
    """The caches of all layers of a decoder. `length`: the number of cached positions."""

    def __init__(self, n_layers: int):
        self.length = 0
        self.self_attention = [AttentionCache() for _ in range(n_layers)]
        self.cross_attention = [AttentionCache() for _ in range(n_layers)]

    def reorder(self, rows: Array, cross: bool = True) -> None:
        """Replace row i by the old row rows[i]. Without `cross`, the caches of cross-attention stay as they are."""
        for cache in (*self.self_attention, *self.cross_attention) if cross else self.self_attention:
            cache.reorder(rows)


def grow_buffer(buffer: Array | None, like: Array, length: int, needed: int) -> Array:
    """Return `buffer` if it has room for `needed` positions, else a larger copy of its first `length` positions."""
    if buffer is not None and buffer.shape[2] >= needed:
        return buffer
    larger = np.empty((*like.shape[:2], max(16, needed, 2 * length), like.shape[3]), like.dtype)
    if buffer is not None:
        larger[:, :, :length] = buffer[:, :, :length]
    return larger


class MultiHeadAttention(Module):
    """MultiHead(Q, K, V) = Concat(head_1, ..., head_H) W_O,    head_i = Attention(Q W_Qi, K W_Ki, V W_Vi)

    x ──query, key, value──▶ split ──▶ (norm) ──▶ (rotate) ──▶ attention ──▶ merge ──output──▶ y
    """

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        n_kv_heads: int,
        d_head: int,
        bias: bool,
        position: Position | None = None,
        head_norm: Callable[[], Module] | None = None,
        cap: float = 0.0,
        dropout: float = 0.0,
    ):
        self.d_head, self.cap = d_head, cap
        self.position = position
        self.query = Linear(d_model, n_heads * d_head, bias)
        self.key = Linear(d_model, n_kv_heads * d_head, bias)
        self.value = Linear(d_model, n_kv_heads * d_head, bias)
        self.output = Linear(n_heads * d_head, d_model, bias)
        self.query_norm = head_norm() if head_norm else None
        self.key_norm = head_norm() if head_norm else None
        self.dropout = Dropout(dropout)
        self.q, self.k, self.v = Probe(), Probe(), Probe()
        self.scores, self.weights, self.heads = Probe(), Probe(), Probe()

    def self_attend(
        self, x: Array, mask: Array | None, cache: AttentionCache | None = None, start: int = 0
    ) -> ForwardResult:
        """Self-attention: x [B,T,D] at the positions start, start + 1, ... -> [B,T,D].    backward(dy) -> dx"""
        position = self.position or Position()
        new = np.arange(start, start + x.shape[1])
        q, back_q = self.split(self.query, self.query_norm, x)
        k, back_k = self.split(self.key, self.key_norm, x)
        v, back_v = self.split(self.value, None, x)
        q, back_rotate_q = position.rotate(q, new)
        k, back_rotate_k = position.rotate(k, new)
        (q, back_probe_q), (k, back_probe_k), (v, back_probe_v) = self.q(q), self.k(k), self.v(v)
        if cache is not None:  # only while decoding, where there is no backward pass
            k, v = cache.append(k, v, start)
        keys = np.arange(k.shape[2])
        bias, back_bias = position.bias(q, new, keys)
        relative = partial(position.values, query=new, key=keys) if position.has_values else None
        heads, back_attention = attention(q, k, v, mask, bias, self.cap, self.dropout, relative, self.probe)
        y, back_merge = self.merge(heads)

        def backward(dy: Array) -> Array:
            dq, dk, dv, d_scores = back_attention(back_merge(dy))
            dq = back_probe_q(dq + back_bias(d_scores))
            return back_q(back_rotate_q(dq)) + back_k(back_rotate_k(back_probe_k(dk))) + back_v(back_probe_v(dv))

        return y, backward

    def cross_attend(
        self, x: Array, memory: Variable, mask: Array | None, cache: AttentionCache | None = None
    ) -> ForwardResult:
        """Cross-attention: x [B,T,D], memory [B,S,D] -> [B,T,D].

        backward(dy) -> dx; the gradient of the memory is added to `memory.gradient`
        """
        q, back_q = self.split(self.query, self.query_norm, x)
        q, back_probe_q = self.q(q)
        no_backward: Backward = identity
        back_k = back_v = back_probe_k = back_probe_v = no_backward
        if cache is not None and cache.k is not None and cache.v is not None:
            k, v = cache.k, cache.v
        else:
            k, back_k = self.split(self.key, self.key_norm, memory.value)
            v, back_v = self.split(self.value, None, memory.value)
            (k, back_probe_k), (v, back_probe_v) = self.k(k), self.v(v)
        if cache is not None:  # the memory is constant, so its keys and values are computed only at the first step
            cache.k, cache.v = k, v
        heads, back_attention = attention(q, k, v, mask, cap=self.cap, drop=self.dropout, probe=self.probe)
        y, back_merge = self.merge(heads)

        def backward(dy: Array) -> Array:
            dq, dk, dv, _ = back_attention(back_merge(dy))
            memory.add(back_k(back_probe_k(dk)) + back_v(back_probe_v(dv)))
            return back_q(back_probe_q(dq))

        return y, backward

    def split(self, project: Linear, norm: Module | None, x: Array) -> ForwardResult:
        """Project, split into heads and normalize them: [B,T,D] -> [B,T,H·E] -> [B,H,T,E]"""
        y, back_project = project(x)
        heads = y.reshape(*y.shape[:2], -1, self.d_head).transpose(0, 2, 1, 3)
        heads, back_norm = norm(heads) if norm else (heads, identity)  # type: ignore[operator]
        return heads, lambda dy: back_project(back_norm(dy).transpose(0, 2, 1, 3).reshape(y.shape))

    def merge(self, heads: Array) -> ForwardResult:
        """Concatenate the heads and apply the output projection: [B,H,T,E] -> [B,T,H·E] -> [B,T,D]"""
        heads, back_heads = self.heads(heads)
        concat_BTHE = heads.transpose(0, 2, 1, 3)
        y, back_output = self.output(concat_BTHE.reshape(*concat_BTHE.shape[:2], -1))
        return y, lambda dy: back_heads(back_output(dy).reshape(concat_BTHE.shape).transpose(0, 2, 1, 3))

    def probe(self, name: str, value: Array) -> ForwardResult:
        """Pass scores or weights through the probe with that name."""
        return self.scores(value) if name == "scores" else self.weights(value)
