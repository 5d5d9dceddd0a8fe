"""The key-value cache: what attention need not compute again while text is produced token by token.

The cache belongs to the caller of a model. During a forward every layer appends its new keys and values; when
the forward ends, the model advances the cache once; beam search reorders it.

        before           after append        after advance(1)
    k:  ■ ■ ■ · · ·      ■ ■ ■ □ · · ·       ■ ■ ■ ■ · · ·
        length = 3       length = 3          length = 4
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor


class AttentionCache:
    """Keys and values [B, H, K, E] of one attention module, in buffers that grow by doubling."""

    def __init__(self, owner: KVCache):
        self.owner = owner
        self.keys: Tensor | None = None
        self.values: Tensor | None = None

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Put k and v behind what is held; all keys and values so far come back."""
        start, end = self.owner.length, self.owner.length + k.size(2)
        self.keys = _with_room(self.keys, k, start, end)
        self.values = _with_room(self.values, v, start, end)
        self.keys[:, :, start:end] = k
        self.values[:, :, start:end] = v
        return self.keys[:, :, :end], self.values[:, :, :end]

    def once(self, compute: Callable[[], tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
        """Keys and values of a memory that does not change: computed at the first step, kept for the others."""
        if self.keys is None or self.values is None:
            self.keys, self.values = compute()
        return self.keys, self.values

    def reorder(self, rows: Tensor) -> None:
        if self.keys is not None and self.values is not None:
            self.keys, self.values = self.keys[rows], self.values[rows]


class LayerCache:
    """What one decoder layer keeps: its self-attention grows, its cross-attention stays."""

    def __init__(self, owner: KVCache):
        self.self_attention = AttentionCache(owner)
        self.cross_attention = AttentionCache(owner)

    def reorder(self, rows: Tensor) -> None:
        self.self_attention.reorder(rows)
        self.cross_attention.reorder(rows)


class KVCache:
    """The caches of all layers of a decoder, and how many positions they hold."""

    def __init__(self, n_layers: int):
        self.length = 0
        self.layers = [LayerCache(self) for _ in range(n_layers)]

    def advance(self, n: int) -> None:
        """Count n positions as held. The model calls this once, at the end of a forward."""
        self.length += n

    def reorder(self, rows: Tensor) -> None:
        """Row i becomes what row rows[i] was: repeat, drop or permute hypotheses."""
        for layer in self.layers:
            layer.reorder(rows)


def _with_room(buffer: Tensor | None, like: Tensor, length: int, needed: int) -> Tensor:
    """`buffer` if `needed` positions fit into it, else a larger copy of its first `length` positions."""
    if buffer is not None and buffer.size(2) >= needed:
        return buffer
    capacity = max(16, needed, 2 * length)
    larger = like.new_empty(like.size(0), like.size(1), capacity, like.size(3))
    if buffer is not None:
        larger[:, :, :length] = buffer[:, :, :length]
    return larger
