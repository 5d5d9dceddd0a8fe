"""Group examples into batches, in random order. No torch here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from cutaway.data.encoded import Encoded
from cutaway.data.lazy import Lengths, lengths_of, smallest_type

__all__ = ["POOL", "BatchOrder", "batches_by_tokens", "batches_from_lengths"]

POOL = 32_768  # examples sorted by length together: large enough for little padding, small enough for variety


class BatchOrder(Sequence[list[int]]):
    """Batches as lists of indices. They are stored as arrays, because a corpus may have 100 million examples."""

    def __init__(self, indices: NDArray[Any], bounds: NDArray[Any], order: NDArray[Any]):
        """Batch b before shuffling is indices[bounds[b] : bounds[b + 1]]; `order` is a permutation of the batches."""
        self.indices, self.bounds, self.order = indices, bounds, order

    def __len__(self) -> int:
        return len(self.order)

    @overload
    def __getitem__(self, index: int) -> list[int]: ...
    @overload
    def __getitem__(self, index: slice) -> list[list[int]]: ...
    def __getitem__(self, index: int | slice) -> list[int] | list[list[int]]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        b = self.order[index]
        return self.indices[self.bounds[b] : self.bounds[b + 1]].tolist()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]


def batches_by_tokens(examples: Sequence[Encoded], budget: int, seed: int, epoch: int) -> BatchOrder:
    """The batches of an epoch: indices, in batches of at most `budget` tokens, padding included.

    Shuffle the examples, divide them into pools, sort each pool by length (for little padding), pack batches, and
    shuffle the batches. The result depends only on the lengths, the seed and the epoch.
    """
    return batches_from_lengths(lengths_of(examples), budget, seed, epoch)


def batches_from_lengths(lengths_NK: Lengths, budget: int, seed: int, epoch: int) -> BatchOrder:
    """`batches_by_tokens` with the lengths instead of the examples."""
    rng = np.random.default_rng([seed, epoch])
    order = rng.permutation(len(lengths_NK)).astype(smallest_type(len(lengths_NK)))
    bounds = [np.zeros(1, np.int64)]
    for start in range(0, len(order), POOL):
        pool = order[start : start + POOL]
        lengths_PK = lengths_NK[pool]
        by_length = np.lexsort(zigzag_keys(lengths_PK).T[::-1])  # the last key is the primary key; the sort is stable
        order[start : start + POOL] = pool[by_length]
        bounds.append(start + np.array(list(_ends(lengths_PK[by_length, 0], budget)), dtype=np.int64))
    ends = np.concatenate(bounds)
    return BatchOrder(order, ends, rng.permutation(len(ends) - 1))


def zigzag_keys(lengths_PK: Lengths) -> Lengths:
    """Sort keys for similar neighbours in *both* lengths: the second key alternates between ascending and descending.

    target  7 7 7 7  8 8 8 8  9 9 9 9
    source  5 6 8 9  9 8 7 6  5 7 7 8      instead of 5 6 8 9  6 7 8 9  ..., where a batch may contain both 9 and 6
    """
    keys = lengths_PK.astype(np.int64)
    keys[:, 1:] *= np.where(keys[:, :1] % 2, 1, -1)
    return keys


def _ends(lengths: NDArray[np.int64], budget: int) -> Iterator[int]:
    """The end of each batch: as many examples, sorted by length, as fit into the budget with padding."""
    start = 0
    while start < len(lengths):
        candidates = lengths[start : start + max(1, budget // max(1, int(lengths[start])))]  # no more can fit
        padded = candidates * np.arange(1, len(candidates) + 1)  # the size of a batch that ends with this example
        start += max(1, int(np.searchsorted(padded, budget, "right")))
        yield start
