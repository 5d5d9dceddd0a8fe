"""Corpora that need no download: generated, seeded, with held-out splits that are disjoint by construction.

load_builtin("tinyworld:en-fr", "train", size=40_000)
load_builtin("reverse", "test", size=500)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from cutaway.data.builtin.algorithmic import TASKS, algorithmic
from cutaway.errors import DataError, did_you_mean


class SentencePair(Protocol):
    """All that a translation corpus must give; tinyworld's pairs carry their alignment as well."""

    @property
    def source(self) -> str: ...
    @property
    def target(self) -> str: ...


Load = Callable[[str, int, int], Sequence[SentencePair]]  # split, size, seed


def _tinyworld(direction: str) -> Load:
    def load(split: str, size: int, seed: int) -> Sequence[SentencePair]:
        from cutaway.data.builtin.tinyworld import tinyworld  # its tables are built when first asked for

        return tinyworld(direction, split, size, seed)

    return load


def _algorithmic(task: str) -> Load:
    return lambda split, size, seed: algorithmic(task, split, size, seed)


BUILTIN: dict[str, Load] = {
    "tinyworld:en-fr": _tinyworld("en-fr"),
    "tinyworld:en-de": _tinyworld("en-de"),
    **{task: _algorithmic(task) for task in TASKS},
}


def load_builtin(name: str, split: str, size: int, seed: int = 0) -> Sequence[SentencePair]:
    if name not in BUILTIN:
        raise DataError(f"there is no built-in corpus {name!r}. {did_you_mean(name, BUILTIN)}")
    return BUILTIN[name](split, size, seed)
