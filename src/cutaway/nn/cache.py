"""The key-value cache: keys and values of earlier tokens, so that decoding does not compute them again.

The caller of a model owns the cache. During a forward, each attention appends its new keys and values. At the end, the
model advances the cache once. So a forward that fails leaves the cache unchanged.

        before           after append        after advance(1)
    k:  ■ ■ ■ · · ·      ■ ■ ■ □ · · ·       ■ ■ ■ ■ · · ·
        length = 3       length = 3          length = 4

Texts of different lengths can share a batch if the shorter ones have padding on the left. Then each row has its own
length, which is the position of its next token:

    row 0   a b c d         padding 0, length 4
    row 1   · · e f         padding 2, length 2
"""

from __future__ import annotations

import torch
from torch import Tensor

from cutaway.nn.masks import Span


class AttentionCache:
    """The cache of one attention module: keys and values [B,G,K,E], in buffers that grow by a quarter.

    Linear attention stores its two sums here instead.
    """

    def __init__(self, owner: KVCache):
        self.owner = owner
        self.stored: tuple[Tensor, Tensor] | None = None
        self.spare: tuple[Tensor, Tensor] | None = None  # the buffers before the last `reorder`

    @property
    def length(self) -> int:
        return self.owner.n_keys

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Append k and v. Return all keys and values so far."""
        start, new = self.length, k.size(2)
        end = start + new
        keys, values = self.stored or (None, None)
        keys, values = grow_buffer(keys, k, start, end), grow_buffer(values, v, start, end)
        # keys[:, :, start:end] = k, but faster: this runs for each token in each layer
        keys.narrow(2, start, new).copy_(k)
        values.narrow(2, start, new).copy_(v)
        self.stored = keys, values
        return keys.narrow(2, 0, end), values.narrow(2, 0, end)

    def store(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Store the keys and values of a memory, which does not grow."""
        self.stored = k, v
        return k, v

    def positions(self, indices: Span) -> Span | Tensor:
        """The positions of the tokens with these indices: the same, or with padding [B,1,T], different in each row."""
        padding = self.owner.padding
        if padding is None:
            return indices
        return (indices.tensor(padding.device) - padding[:, None, None]).clamp(min=0)

    def reorder(self, rows: Tensor) -> None:
        """Replace row i by the old row rows[i]. Two sets of buffers alternate, because allocation is slow."""
        if self.stored is None:
            return
        (k, v), (into_k, into_v) = self.stored, self.spare or (None, None)
        self.stored, self.spare = (select_rows(k, rows, into_k), select_rows(v, rows, into_v)), self.stored


class LayerCache:
    """The caches of one decoder layer. The self-attention cache grows; the cross-attention cache is constant."""

    def __init__(self, owner: KVCache):
        self.self_attention = AttentionCache(owner)
        self.cross_attention = AttentionCache(owner)


class KVCache:
    """The caches of all layers of a decoder. `padding` [B]: how many columns on the left of each row are padding."""

    def __init__(self, n_layers: int, padding: Tensor | None = None):
        self.length = 0  # columns filled in every row, with tokens or padding
        self.padding = padding
        self.layers = [LayerCache(self) for _ in range(n_layers)]

    @property
    def n_keys(self) -> int:
        """The number of keys in each self-attention cache."""
        return self.length

    @property
    def lengths(self) -> int | Tensor:
        """The number of tokens in each row [B], or one number without padding. Below 0 while a row has only padding."""
        return self.length if self.padding is None else self.length - self.padding

    def is_token(self, length: int) -> Tensor | None:
        """Which of the first `length` columns are tokens [B,length]; None: all."""
        if self.padding is None:
            return None
        return torch.arange(length, device=self.padding.device) >= self.padding[:, None]

    def advance(self, n: int) -> None:
        """Count n more columns as filled. The model calls this once, at the end of a forward."""
        self.length += n

    def reorder(self, rows: Tensor) -> None:
        """Replace row i by the old row rows[i]: repeat, drop or permute hypotheses."""
        for layer in self.layers:
            layer.self_attention.reorder(rows)
            layer.cross_attention.reorder(rows)
        if self.padding is not None:
            self.padding = self.padding[rows]


def select_rows(x: Tensor, rows: Tensor, into: Tensor | None) -> Tensor:
    """x[rows], written into the buffer `into` if it has the right shape."""
    fits = into is not None and into.shape == (len(rows), *x.shape[1:]) and not torch.is_grad_enabled()
    return torch.index_select(x, 0, rows, out=into if fits else None)


def grow_buffer(buffer: Tensor | None, like: Tensor, length: int, needed: int) -> Tensor:
    """`buffer` if it has room for `needed` columns, else a larger copy of its first `length` columns."""
    if buffer is not None and buffer.size(2) >= needed:
        return buffer
    capacity = max(16, needed, length + length // 4)  # not doubled, because beam search copies whole buffers
    larger = like.new_empty(like.size(0), like.size(1), capacity, like.size(3))
    if buffer is not None:
        larger[:, :, :length] = buffer[:, :, :length]
    return larger
