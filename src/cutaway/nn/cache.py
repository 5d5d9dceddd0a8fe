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

Held = tuple[Tensor, Tensor]


class AttentionCache:
    """Two tensors of one attention module: keys and values [B, G, K, E], in buffers that grow by doubling.

    Linear attention keeps its two sums here instead.
    """

    def __init__(self, owner: KVCache):
        self.owner = owner
        self.held: Held | None = None

    @property
    def length(self) -> int:
        return self.owner.length

    def append(self, k: Tensor, v: Tensor) -> Held:
        """Put k and v behind what is held; all keys and values so far come back."""
        start, new = self.length, k.size(2)
        end = start + new
        keys, values = self.held or (None, None)
        keys, values = _with_room(keys, k, start, end), _with_room(values, v, start, end)
        # keys[:, :, start:end] = k, but sooner: this is done for every token in every layer
        keys.narrow(2, start, new).copy_(k)
        values.narrow(2, start, new).copy_(v)
        self.held = keys, values
        return keys.narrow(2, 0, end), values.narrow(2, 0, end)

    def once(self, compute: Callable[[], Held]) -> Held:
        """What a memory that does not change leaves: computed at the first step, kept for the others."""
        if self.held is None:
            self.held = compute()
        return self.held

    def reorder(self, rows: Tensor) -> None:
        if self.held is not None:
            self.held = self.held[0].index_select(0, rows), self.held[1].index_select(0, rows)


class LayerCache:
    """What one decoder layer keeps: its self-attention grows, its cross-attention stays."""

    def __init__(self, owner: KVCache):
        self.self_attention = AttentionCache(owner)
        self.cross_attention = AttentionCache(owner)


class KVCache:
    """The caches of all layers of a decoder, and how many positions they hold.

    `before` of them, at the beginning, are no text: a learned prompt (finetune/prompt.py).
    """

    def __init__(self, n_layers: int):
        self.length = self.before = 0
        self.layers = [LayerCache(self) for _ in range(n_layers)]

    @property
    def text_length(self) -> int:
        """How many tokens are held: the position of the next one."""
        return self.length - self.before

    def begin_with(self, n: int) -> None:
        """Count n positions as held that are no text."""
        self.length += n
        self.before = n

    def advance(self, n: int) -> None:
        """Count n positions as held. The model calls this once, at the end of a forward."""
        self.length += n

    def reorder(self, rows: Tensor) -> None:
        """Row i becomes what row rows[i] was: repeat, drop or permute hypotheses."""
        for layer in self.layers:
            layer.self_attention.reorder(rows)

    def reorder_memory(self, rows: Tensor) -> None:
        """The same with the memories that are looked at: several hypotheses may share one, so these are fewer."""
        for layer in self.layers:
            layer.cross_attention.reorder(rows)


def _with_room(buffer: Tensor | None, like: Tensor, length: int, needed: int) -> Tensor:
    """`buffer` if `needed` positions fit into it, else a larger copy of its first `length` positions."""
    if buffer is not None and buffer.size(2) >= needed:
        return buffer
    capacity = max(16, needed, 2 * length)
    larger = like.new_empty(like.size(0), like.size(1), capacity, like.size(3))
    if buffer is not None:
        larger[:, :, :length] = buffer[:, :, :length]
    return larger
