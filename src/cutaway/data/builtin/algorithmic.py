"""Algorithmic tasks that show what attention can do: copy, reverse and sort a sequence of letters.

reverse    source "d a c b"    target "b c a d"
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable
from typing import NamedTuple

from cutaway.errors import DataError, did_you_mean

LETTERS = "abcdefghijklmnopqrstuvwxyz"
MIN_LENGTH, MAX_LENGTH = 3, 12

TASKS: dict[str, Callable[[list[str]], list[str]]] = {
    "copy": lambda letters: letters,
    "reverse": lambda letters: letters[::-1],
    "sort": lambda letters: sorted(letters),
}

# A hash of the sequence decides its split, so the splits are disjoint for all sizes and seeds.
SPLITS = {"test": range(0, 5), "valid": range(5, 10), "train": range(10, 100)}


class LetterPair(NamedTuple):
    source: str
    target: str


def algorithmic(task: str, split: str = "train", size: int = 1_000, seed: int = 0) -> list[LetterPair]:
    """`size` distinct pairs of one task. The same arguments give the same pairs on every machine."""
    if task not in TASKS:
        raise DataError(f"there is no task {task!r}. {did_you_mean(task, TASKS)}")
    if split not in SPLITS:
        raise DataError(f"{task!r} has no split {split!r}. {did_you_mean(split, SPLITS)}")
    rng = random.Random(f"{task} {split} {seed}")
    pairs: dict[str, LetterPair] = {}
    while len(pairs) < size:
        letters = rng.choices(LETTERS, k=rng.randint(MIN_LENGTH, MAX_LENGTH))
        source = " ".join(letters)
        if zlib.crc32(source.encode()) % 100 in SPLITS[split]:
            pairs.setdefault(source, LetterPair(source, " ".join(TASKS[task](letters))))
    return list(pairs.values())
