"""Divide long texts into chunks, at other positions in each epoch. No torch here.

The ids of all texts are stored once, concatenated. A chunk is made when it is accessed.

    row              <s> the cat sleeps . </s> <s> a dog barks </s>
    epoch 0, size 4  |───────────────────|─────────────────|───────|
    a later epoch    |───────|─────────────────|───────────────────|      the first chunk is shorter

With fixed positions, the first tokens of a chunk would never have any context. The shorter first chunk is used too, so
each epoch still predicts every token once.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from cutaway.data.encoded import EncodedChunk, EncodedText
from cutaway.data.lazy import Ids, LazyExamples, Lengths

Examples = TypeVar("Examples", bound=Sequence[Any])


class TextChunks(LazyExamples[EncodedChunk]):
    """Chunks for a language model: `size` tokens, and the token after them."""

    def __init__(self, row: Ids, size: int, shifts: bool = False, offset: int = 0):
        """`shifts`: whether the offset changes in each epoch; `offset`: the length of the first chunk (0: `size`)."""
        self.row, self.size, self.shifts, self.offset = row, size, shifts, offset

    @cached_property
    def cuts(self) -> NDArray[np.int64]:
        """Chunk i is row[cuts[i] : cuts[i + 1] + 1]."""
        last = max(0, len(self.row) - 1)
        return np.append(chunk_starts(np.array([last]), self.size, self.offset), last)

    def __len__(self) -> int:
        return len(self.cuts) - 1

    def example(self, number: int) -> EncodedChunk:
        return EncodedChunk(self.row[self.cuts[number] : self.cuts[number + 1] + 1].tolist())

    def all_lengths(self) -> Lengths:
        return np.diff(self.cuts)[:, None]

    def with_shifts(self) -> TextChunks:
        return TextChunks(self.row, self.size, shifts=True)

    def with_offset(self, offset: int) -> TextChunks:
        return TextChunks(self.row, self.size, self.shifts, offset)


class MaskedTextChunks(LazyExamples[EncodedText]):
    """Chunks for a masked language model: <s> chunk </s>. A chunk is part of one text only."""

    def __init__(
        self,
        ids: Ids,
        starts: NDArray[np.int64],
        size: int,
        ends: tuple[int, int],
        shifts: bool = False,
        offset: int = 0,
    ):
        """Text i is ids[starts[i] : starts[i + 1]]; `ends`: the ids of <s> and </s>, not counted in `size`."""
        self.ids, self.starts, self.size, self.ends = ids, starts, size, ends
        self.shifts, self.offset = shifts, offset

    @cached_property
    def cuts(self) -> NDArray[np.int64]:
        # The texts are concatenated, so a chunk ends where the next one starts.
        return np.append(chunk_starts(np.diff(self.starts), self.size, self.offset), self.starts[-1])

    def __len__(self) -> int:
        return len(self.cuts) - 1

    def example(self, number: int) -> EncodedText:
        bos, eos = self.ends
        return EncodedText([bos, *self.ids[self.cuts[number] : self.cuts[number + 1]].tolist(), eos])

    def all_lengths(self) -> Lengths:
        return np.diff(self.cuts)[:, None] + 2

    def with_shifts(self) -> MaskedTextChunks:
        return MaskedTextChunks(self.ids, self.starts, self.size, self.ends, shifts=True)

    def with_offset(self, offset: int) -> MaskedTextChunks:
        return MaskedTextChunks(self.ids, self.starts, self.size, self.ends, self.shifts, offset)


def chunk_starts(lengths: NDArray[np.int64], size: int, offset: int) -> NDArray[np.int64]:
    """The start of each chunk, for concatenated rows of these lengths that are divided into chunks of `size`.

    With an offset, the first chunk of each row has `offset` tokens.
    """
    first = offset or size
    chunks = np.where(lengths > 0, 1 + -(-np.maximum(lengths - first, 0) // size), 0)  # of each row
    row = np.repeat(np.arange(len(lengths)), chunks)
    number = np.arange(len(row)) - (np.cumsum(chunks) - chunks)[row]  # of the chunk within its row
    row_starts = np.cumsum(lengths) - lengths
    return row_starts[row] + np.where(number > 0, first + (number - 1) * size, 0)


def shift_for_epoch(examples: Examples, seed: int, epoch: int) -> Examples:
    """The examples of this epoch: chunks get a random offset, other examples stay unchanged.

    The offset depends only on the seed and the epoch, so a resumed run repeats it. It is 0 in the first epoch.
    """
    if not getattr(examples, "shifts", False) or epoch == 0:
        return examples
    chunks: Any = examples
    # 1: independent of the generator that shuffles
    offset = int(np.random.default_rng([seed, epoch, 1]).integers(chunks.size))
    return chunks.with_offset(offset)
