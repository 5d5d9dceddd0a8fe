"""`data.valid_share`: hold out the end of the training data for validation.

Texts: the last characters, like nanoGPT's Shakespeare split. Other data: the last examples.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from cutaway.data.corpus import TextPart
from cutaway.errors import DataError


class SplitPoint(NamedTuple):
    """The training data ends at `position`, in characters or examples, of `total`."""

    position: int
    total: int


def find_split_point(examples: Iterable[Any], share: float) -> SplitPoint:
    """Read all examples once and compute where the training data ends."""
    total = 0
    unit = "examples"
    for example in examples:
        total += size_of(example)
        unit = "characters" if isinstance(example, TextPart) else "examples"
    position = int(total * (1 - share))
    if not 0 < position < total:
        what = "to train on" if position == 0 else "to validate with"
        raise DataError(
            f"data.valid_share = {share} of {total:,} {unit} leaves none {what}. Choose another share, or set "
            "data.valid to files."
        )
    return SplitPoint(position, total)


def take_split(cut: SplitPoint, examples: Iterable[Any], split: str) -> Iterator[Any]:
    """The examples before or after the split point. A text that contains it is divided."""
    end = 0
    for example in examples:
        start, end = end, end + size_of(example)
        if split == "train":
            yield _part_before(example, cut.position - start) if end >= cut.position else example
            if end >= cut.position:
                return
        elif end > cut.position:
            yield _part_after(example, cut.position - start)


def size_of(example: Any) -> int:
    return len(example.text) if isinstance(example, TextPart) else 1


def _part_before(example: Any, position: int) -> Any:
    return example._replace(text=example.text[:position], is_last=True) if isinstance(example, TextPart) else example


def _part_after(example: Any, position: int) -> Any:
    if not isinstance(example, TextPart) or position < 0:
        return example
    return example._replace(text=example.text[position:], is_first=True)
