"""Long texts cut into pieces, at other places in each epoch. No torch here.

The ids of all texts are kept once, end to end; a piece is made of them when it is asked for.

    row                <s> the cat sleeps . </s> <s> a dog barks </s>
    epoch 0, 4 a piece |───────────────────|─────────────────|───────|
    a later one        |───────|─────────────────|───────────────────|      the first piece is the shorter

A piece that always ends at the same place hides from the model how the text goes on there. What a shift leaves over at
the beginning is a piece too, so an epoch still asks for every token once.
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
    """For a language model: `size` tokens and the one that comes after them."""

    def __init__(self, row: Ids, size: int, shifts: bool = False, offset: int = 0):
        """`shifts` says whether each epoch may cut elsewhere; `offset` is how long the first piece is (0: as all)."""
        self.row, self.size, self.shifts, self.offset = row, size, shifts, offset

    @cached_property
    def cuts(self) -> NDArray[np.int64]:
        """Piece i goes from cuts[i] to cuts[i + 1], and the token there."""
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
    """For a masked language model: <s> piece </s>, where a piece is of one text only."""

    def __init__(
        self,
        ids: Ids,
        starts: NDArray[np.int64],
        size: int,
        ends: tuple[int, int],
        shifts: bool = False,
        offset: int = 0,
    ):
        """Text i is ids[starts[i] : starts[i + 1]]; `ends` are the ids of <s> and </s>, which `size` does not count."""
        self.ids, self.starts, self.size, self.ends = ids, starts, size, ends
        self.shifts, self.offset = shifts, offset

    @cached_property
    def cuts(self) -> NDArray[np.int64]:
        # Texts lie end to end, so the place where a piece begins is also where the one before it ends.
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
    """Where each piece begins, if rows of such lengths lie end to end and each is cut into pieces of `size`.

    With an offset, the first piece of each row is only so long.
    """
    first = offset or size
    pieces = np.where(lengths > 0, 1 + -(-np.maximum(lengths - first, 0) // size), 0)
    row = np.repeat(np.arange(len(lengths)), pieces)
    number = np.arange(len(row)) - (np.cumsum(pieces) - pieces)[row]  # of the piece within its row
    begins = np.cumsum(lengths) - lengths
    return begins[row] + np.where(number > 0, first + (number - 1) * size, 0)


def shift_for_epoch(examples: Examples, seed: int, epoch: int) -> Examples:
    """The examples as this epoch has them: pieces that move are cut elsewhere, all else is what it was.

    Where follows from the seed and the epoch alone, so that a resumed run does the same. The first epoch begins at the
    beginning.
    """
    if not getattr(examples, "shifts", False) or epoch == 0:
        return examples
    pieces: Any = examples
    # 1: a stream of chance of its own, beside the one that shuffles
    offset = int(np.random.default_rng([seed, epoch, 1]).integers(pieces.size))
    return pieces.with_offset(offset)
