"""The key-value cache: what attention need not compute again while text is produced token by token.

The cache belongs to the caller of a model. During a forward every attention appends its new keys and values; when the
forward ends, the model advances the cache once. So a forward that fails leaves the cache as it was.

        before           after append        after advance(1)
    k:  ■ ■ ■ · · ·      ■ ■ ■ □ · · ·       ■ ■ ■ ■ · · ·
        length = 3       length = 3          length = 4

Texts of different lengths share a batch when the shorter ones have padding on their left. Each row then has a length
of its own, which is the position of its next token:

    row 0   a b c d         padding 0, length 4
    row 1   · · e f         padding 2, length 2
"""

from __future__ import annotations

import torch
from torch import Tensor

from cutaway.nn.masks import Span


class AttentionCache:
    """Two tensors of one attention module: keys and values [B,G,K,E], in buffers that grow by a quarter.

    Linear attention keeps its two sums here instead.
    """

    def __init__(self, owner: KVCache):
        self.owner = owner
        self.stored: tuple[Tensor, Tensor] | None = None
        self.spare: tuple[Tensor, Tensor] | None = None  # the buffers before the last `reorder`

    @property
    def length(self) -> int:
        return self.owner.n_keys

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Put k and v behind what is held; all keys and values so far come back."""
        start, new = self.length, k.size(2)
        end = start + new
        keys, values = self.stored or (None, None)
        keys, values = grow_buffer(keys, k, start, end), grow_buffer(values, v, start, end)
        # keys[:, :, start:end] = k, but sooner: this is done for every token in every layer
        keys.narrow(2, start, new).copy_(k)
        values.narrow(2, start, new).copy_(v)
        self.stored = keys, values
        return keys.narrow(2, 0, end), values.narrow(2, 0, end)

    def store(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Hold keys and values of a memory, which does not grow."""
        self.stored = k, v
        return k, v

    def positions(self, n_keys: Span) -> Span | Tensor:
        """The positions of tokens at these places: the same; or, with padding, [B,1,T] for each row its own."""
        padding = self.owner.padding
        if padding is None:
            return n_keys
        return (n_keys.tensor(padding.device) - padding[:, None, None]).clamp(min=0)

    def reorder(self, rows: Tensor) -> None:
        """Row i becomes what row rows[i] was. Two sets of buffers take turns: fresh memory costs as much as copying."""
        if self.stored is None:
            return
        (k, v), (into_k, into_v) = self.stored, self.spare or (None, None)
        self.stored, self.spare = (select_rows(k, rows, into_k), select_rows(v, rows, into_v)), self.stored


class LayerCache:
    """What one decoder layer keeps: its self-attention grows, its cross-attention stays."""

    def __init__(self, owner: KVCache):
        self.self_attention = AttentionCache(owner)
        self.cross_attention = AttentionCache(owner)


class KVCache:
    """The caches of all layers of a decoder. `padding` [B]: places on the left of each row that hold no token."""

    def __init__(self, n_layers: int, padding: Tensor | None = None):
        self.length = 0  # places that are filled in every row, by tokens or padding
        self.padding = padding
        self.layers = [LayerCache(self) for _ in range(n_layers)]

    @property
    def n_keys(self) -> int:
        """How many keys each attention holds."""
        return self.length

    @property
    def lengths(self) -> int | Tensor:
        """How many tokens each row holds [B]; a number if that is the same for all. Negative within padding."""
        return self.length if self.padding is None else self.length - self.padding

    def is_token(self, length: int) -> Tensor | None:
        """Which of the first `length` places hold tokens [B,length]; None: all."""
        if self.padding is None:
            return None
        return torch.arange(length, device=self.padding.device) >= self.padding[:, None]

    def advance(self, n: int) -> None:
        """Count n more places as filled. The model calls this once, at the end of a forward."""
        self.length += n

    def reorder(self, rows: Tensor) -> None:
        """Row i becomes what row rows[i] was: repeat, drop or permute hypotheses."""
        for layer in self.layers:
            layer.self_attention.reorder(rows)
            layer.cross_attention.reorder(rows)
        if self.padding is not None:
            self.padding = self.padding[rows]


def select_rows(x: Tensor, rows: Tensor, into: Tensor | None) -> Tensor:
    """x[rows], put into a buffer if it has the right shape."""
    fits = into is not None and into.shape == (len(rows), *x.shape[1:]) and not torch.is_grad_enabled()
    return torch.index_select(x, 0, rows, out=into if fits else None)


def grow_buffer(buffer: Tensor | None, like: Tensor, length: int, needed: int) -> Tensor:
    """`buffer` if `needed` places fit into it, else a larger copy of its first `length` places."""
    if buffer is not None and buffer.size(2) >= needed:
        return buffer
    capacity = max(16, needed, length + length // 4)  # beam search copies them whole, so not by doubling
    larger = like.new_empty(like.size(0), like.size(1), capacity, like.size(3))
    if buffer is not None:
        larger[:, :, :length] = buffer[:, :, :length]
    return larger
