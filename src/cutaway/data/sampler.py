"""Which examples go together in a batch, and in which order they come. No torch here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from cutaway.data.encoded import Encoded
from cutaway.data.lazy import Lengths, lengths_of, smallest_type

__all__ = ["POOL", "BatchOrder", "batches_by_tokens", "batches_from_lengths"]

POOL = 32_768  # examples that are sorted by length together: large enough for little padding, small enough for variety


class BatchOrder(Sequence[list[int]]):
    """Batches as lists of indices, kept as two arrays: a corpus may have a hundred million examples."""

    def __init__(self, indices: NDArray[Any], bounds: NDArray[Any], order: NDArray[Any]):
        """Before they are shuffled, batch b is indices[bounds[b] : bounds[b + 1]]; `order` shuffles."""
        self.indices, self.bounds, self.order = indices, bounds, order

    def __len__(self) -> int:
        return len(self.order)

    @overload
    def __getitem__(self, place: int) -> list[int]: ...
    @overload
    def __getitem__(self, place: slice) -> list[list[int]]: ...
    def __getitem__(self, place: int | slice) -> list[int] | list[list[int]]:
        if isinstance(place, slice):
            return [self[i] for i in range(*place.indices(len(self)))]
        b = self.order[place]
        return self.indices[self.bounds[b] : self.bounds[b + 1]].tolist()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]


def batches_by_tokens(examples: Sequence[Encoded], budget: int, seed: int, epoch: int) -> BatchOrder:
    """Which examples go together in an epoch: indices, in batches of at most `budget` tokens, padding included.

    The examples are shuffled, cut into pools, sorted by length within each pool (so that a batch needs little
    padding), packed, and the batches shuffled. All of it follows from the seed and the epoch alone.
    """
    return batches_from_lengths(lengths_of(examples), budget, seed, epoch)


def batches_from_lengths(lengths_NK: Lengths, budget: int, seed: int, epoch: int) -> BatchOrder:
    """The same, for those who know nothing of the examples but how long they are."""
    rng = np.random.default_rng([seed, epoch])
    order = rng.permutation(len(lengths_NK)).astype(smallest_type(len(lengths_NK)))
    bounds = [np.zeros(1, np.int64)]
    for start in range(0, len(order), POOL):
        pool = order[start : start + POOL]
        lengths_PK = lengths_NK[pool]
        by_length = np.lexsort(zigzag_keys(lengths_PK).T[::-1])  # the last key counts first; equals stay in order
        order[start : start + POOL] = pool[by_length]
        bounds.append(start + np.array(list(_ends(lengths_PK[by_length, 0], budget)), dtype=np.int64))
    ends = np.concatenate(bounds)
    return BatchOrder(order, ends, rng.permutation(len(ends) - 1))


def zigzag_keys(lengths_PK: Lengths) -> Lengths:
    """Keys to sort by, so that neighbours are alike in *both* their lengths: the second one rises and falls by turns.

    target  7 7 7 7  8 8 8 8  9 9 9 9
    source  5 6 8 9  9 8 7 6  5 7 7 8      rather than 5 6 8 9  6 7 8 9  ..., where a batch may reach from 9 to 6
    """
    keys = lengths_PK.astype(np.int64)
    keys[:, 1:] *= np.where(keys[:, :1] % 2, 1, -1)
    return keys


def _ends(lengths: NDArray[np.int64], budget: int) -> Iterator[int]:
    """Where batches end, if a row of examples, sorted by length, is cut so that their padded sizes fit the budget."""
    start = 0
    while start < len(lengths):
        some = lengths[start : start + max(1, budget // max(1, int(lengths[start])))]  # there cannot be more in it
        padded = some * np.arange(1, len(some) + 1)  # what a batch would take that ends with this example
        start += max(1, int(np.searchsorted(padded, budget, "right")))
        yield start
