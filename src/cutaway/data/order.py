"""Which examples go together in a batch, and in which order they come. No torch here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from cutaway.data.tasks import Encoded

POOL = 8_192  # examples that are sorted by length together: large enough for little padding, small enough for variety


def batches_by_tokens(examples: Sequence[Encoded], budget: int, seed: int, epoch: int) -> list[list[int]]:
    """Which examples go together in an epoch: indices, in batches of at most `budget` tokens, padding included.

    The examples are shuffled, cut into pools, sorted by length within each pool (so that a batch needs little
    padding), packed, and the batches shuffled. All of it follows from the seed and the epoch alone.
    """
    draw = np.random.default_rng([seed, epoch])
    order = draw.permutation(len(examples))
    batches: list[list[int]] = []
    for start in range(0, len(order), POOL):
        pool = order[start : start + POOL].tolist()
        pool.sort(key=lambda i: examples[i].lengths)
        batches.extend(_pack(pool, [examples[i].lengths[0] for i in pool], budget))
    return [batches[i] for i in draw.permutation(len(batches))]


def _pack(indices: Sequence[int], lengths: Sequence[int], budget: int) -> Iterator[list[int]]:
    """Cut a row of indices, sorted by length, into batches whose padded size stays within the budget."""
    batch: list[int] = []
    for index, length in zip(indices, lengths, strict=True):
        if batch and (len(batch) + 1) * length > budget:
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch
