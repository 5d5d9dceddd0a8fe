"""`data.valid_share`: the end of the training data, kept for validation and never trained on.

Of a text it is the last characters, as nanoGPT splits its Shakespeare; of a list of examples the last examples.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from cutaway.data.corpus import TextPart
from cutaway.errors import DataError


class SplitPoint(NamedTuple):
    """Training data is what comes before `place` (characters, or examples), of `total`."""

    place: int
    total: int


def find_split_point(examples: Iterable[Any], share: float) -> SplitPoint:
    """Where the training data ends. It reads everything once."""
    total = 0
    unit = "examples"
    for example in examples:
        total += size_of(example)
        unit = "characters" if isinstance(example, TextPart) else "examples"
    place = int(total * (1 - share))
    if not 0 < place < total:
        what = "to train on" if place == 0 else "to validate with"
        raise DataError(
            f"data.valid_share = {share} of {total:,} {unit} leaves none {what}. Choose another share, or name "
            "data.valid files."
        )
    return SplitPoint(place, total)


def take_split(cut: SplitPoint, examples: Iterable[Any], split: str) -> Iterator[Any]:
    """One side of the cut. A text that it goes through ends there on one side, and begins there on the other."""
    seen = 0
    for example in examples:
        begins, seen = seen, seen + size_of(example)
        if split == "train":
            yield _before(example, cut.place - begins) if seen >= cut.place else example
            if seen >= cut.place:
                return
        elif seen > cut.place:
            yield _after(example, cut.place - begins)


def size_of(example: Any) -> int:
    return len(example.text) if isinstance(example, TextPart) else 1


def _before(example: Any, place: int) -> Any:
    return example._replace(text=example.text[:place], is_last=True) if isinstance(example, TextPart) else example


def _after(example: Any, place: int) -> Any:
    if not isinstance(example, TextPart) or place < 0:
        return example
    return example._replace(text=example.text[place:], is_first=True)
