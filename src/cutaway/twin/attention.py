"""Multi-head attention, and the cache of keys and values that spares it work while a text is being written."""

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
        """Put k and v behind the `start` positions that are held; all of them come back."""
        end = start + k.shape[2]
        self.k, self.v = grow_buffer(self.k, k, start, end), grow_buffer(self.v, v, start, end)
        self.k[:, :, start:end], self.v[:, :, start:end] = k, v
        return self.k[:, :, :end], self.v[:, :, :end]

    def keep(self, rows: Array) -> None:
        """Row i becomes what row rows[i] was."""
        if self.k is not None and self.v is not None:
            self.k, self.v = self.k[rows], self.v[rows]


class Cache:
    """All caches of a decoder, and how many positions they hold."""

    def __init__(self, n_layers: int):
        self.length = 0
        self.own = [AttentionCache() for _ in range(n_layers)]
        self.crossed = [AttentionCache() for _ in range(n_layers)]

    def keep(self, rows: Array, crossed: bool = True) -> None:
        """Row i becomes what row rows[i] was; `crossed` says whether it thereby looks at another memory."""
        for cache in (*self.own, *self.crossed) if crossed else self.own:
            cache.keep(rows)


def grow_buffer(buffer: Array | None, like: Array, length: int, needed: int) -> Array:
    """`buffer` if `needed` positions fit into it, else a larger copy of its first `length` positions."""
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
        """Self-attention: x [B,T,D], which stands at position `start` -> [B,T,D].    backward(dy) -> dx"""
        position = self.position or Position()
        new = np.arange(start, start + x.shape[1])
        q, back_q = self.split(self.query, self.query_norm, x)
        k, back_k = self.split(self.key, self.key_norm, x)
        v, back_v = self.split(self.value, None, x)
        q, turn_back_q = position.rotate(q, new)
        k, turn_back_k = position.rotate(k, new)
        (q, note_q), (k, note_k), (v, note_v) = self.q(q), self.k(k), self.v(v)
        if cache is not None:  # only ever used to write text, where nobody goes back
            k, v = cache.append(k, v, start)
        so_far = np.arange(k.shape[2])
        bias, back_bias = position.bias(q, new, so_far)
        relative = partial(position.values, query=new, key=so_far) if position.has_values else None
        heads, back_attention = attention(q, k, v, mask, bias, self.cap, self.dropout, relative, self.probe)
        y, back_merge = self.merge(heads)

        def backward(dy: Array) -> Array:
            dq, dk, dv, d_scores = back_attention(back_merge(dy))
            dq = note_q(dq + back_bias(d_scores))
            return back_q(turn_back_q(dq)) + back_k(turn_back_k(note_k(dk))) + back_v(note_v(dv))

        return y, backward

    def cross_attend(
        self, x: Array, memory: Variable, mask: Array | None, cache: AttentionCache | None = None
    ) -> ForwardResult:
        """Cross-attention: x [B,T,D], memory [B,S,D] -> [B,T,D].    backward(dy) -> dx; the memory is sent its own"""
        q, back_q = self.split(self.query, self.query_norm, x)
        q, note_q = self.q(q)
        cached: Backward = identity
        back_k = back_v = note_k = note_v = cached
        if cache is not None and cache.k is not None and cache.v is not None:
            k, v = cache.k, cache.v
        else:
            k, back_k = self.split(self.key, self.key_norm, memory.value)
            v, back_v = self.split(self.value, None, memory.value)
            (k, note_k), (v, note_v) = self.k(k), self.v(v)
        if cache is not None:  # a memory does not change, so its keys and values are computed at the first step alone
            cache.k, cache.v = k, v
        heads, back_attention = attention(q, k, v, mask, cap=self.cap, drop=self.dropout, probe=self.probe)
        y, back_merge = self.merge(heads)

        def backward(dy: Array) -> Array:
            dq, dk, dv, _ = back_attention(back_merge(dy))
            memory.add(back_k(note_k(dk)) + back_v(note_v(dv)))
            return back_q(note_q(dq))

        return y, backward

    def split(self, project: Linear, norm: Module | None, x: Array) -> ForwardResult:
        """Project and cut into heads: [B,T,D] -> [B,T,H·E] -> [B,H,T,E], each head normed on request."""
        y, back_project = project(x)
        heads = y.reshape(*y.shape[:2], -1, self.d_head).transpose(0, 2, 1, 3)
        heads, back_norm = norm(heads) if norm else (heads, identity)  # type: ignore[operator]
        return heads, lambda dy: back_project(back_norm(dy).transpose(0, 2, 1, 3).reshape(y.shape))

    def merge(self, heads: Array) -> ForwardResult:
        """The heads side by side again, and the last projection: [B,H,T,E] -> [B,T,H·E] -> [B,T,D]"""
        heads, back_heads = self.heads(heads)
        side_by_side = heads.transpose(0, 2, 1, 3)
        y, back_output = self.output(side_by_side.reshape(*side_by_side.shape[:2], -1))
        return y, lambda dy: back_heads(back_output(dy).reshape(side_by_side.shape).transpose(0, 2, 1, 3))

    def probe(self, name: str, value: Array) -> ForwardResult:
        """Lead a value inside the operation through the probe of that name."""
        return self.scores(value) if name == "scores" else self.weights(value)
