"""Encoded examples that cannot be used: empty ones, and those that are too long. They are left out, and counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from cutaway.data.encoded import Encoded
from cutaway.errors import DataError


def without_misfits(examples: Sequence[Encoded], max_tokens: int) -> tuple[list[Encoded], dict[str, int]]:
    """Leave out examples that are empty or longer than `max_tokens`, and say how many of each."""
    kept, left_out, _ = sort_out(examples, max_tokens)
    if not kept:
        refuse_nothing(len(examples), left_out, max_tokens)
    return kept, dict(left_out)


def sort_out(examples: Sequence[Encoded], max_tokens: int) -> tuple[list[Encoded], Counter[str], NDArray[np.int64]]:
    """What fits; why the others do not, and how many; and how long all are that are not empty."""
    kept: list[Encoded] = []
    left_out: Counter[str] = Counter()
    lengths: list[int] = []
    for example in examples:
        if is_empty(example):
            left_out["empty"] += 1
            continue
        lengths.append(max(example.lengths))
        if lengths[-1] > max_tokens:
            left_out["too long"] += 1
        else:
            kept.append(example)
    return kept, left_out, np.array(lengths, np.int64)


def is_empty(example: Encoded) -> bool:
    """Any of its rows of ids has nothing in it."""
    return any(isinstance(part, list) and not part for part in example)


def refuse_nothing(examples: int, left_out: Counter[str], max_tokens: int) -> NoReturn:
    raise DataError(
        f"no example is left: of {examples}, {left_out['empty']} are empty (on one side) and "
        f"{left_out['too long']} are longer than data.max_tokens = {max_tokens}. Raise it, or look at the files."
    )
