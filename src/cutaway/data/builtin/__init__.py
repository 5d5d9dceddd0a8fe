"""Corpora without download: generated, or read from installed packages. They are seeded, with disjoint splits.

load_builtin("tinyworld:en-fr", "train", size=40_000)
load_builtin("python:tags", "test", size=500)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, NamedTuple, Protocol

from cutaway.data.builtin.algorithmic import TASKS, algorithmic
from cutaway.errors import DataError, did_you_mean


class SentencePair(Protocol):
    """An example of a translation corpus."""

    @property
    def source(self) -> str: ...
    @property
    def target(self) -> str: ...


Load = Callable[[str, int, int], Sequence[Any]]  # split, size, seed
WordSplitter = Callable[[str], list[str]]


class Corpus(NamedTuple):
    kind: str  # kind of examples: pairs, texts, labels, tags or images
    load: Load
    split_words: WordSplitter = str.split  # splits a text into words


def _tinyworld(direction: str) -> Load:
    def load(split: str, size: int, seed: int) -> Sequence[SentencePair]:
        from cutaway.data.builtin.tinyworld import tinyworld  # the import builds its tables

        return tinyworld(direction, split, size, seed)

    return load


def _algorithmic(task: str) -> Load:
    return lambda split, size, seed: algorithmic(task, split, size, seed)


def _lazy_corpus(module: str, name: str) -> Load:
    """A function of a module in this package, imported at the first call."""

    def load(split: str, size: int, seed: int) -> Sequence[Any]:
        return getattr(import_module(f"cutaway.data.builtin.{module}"), name)(split, size, seed)

    return load


def _code_words(code: str) -> list[str]:
    from cutaway.data.builtin.python_source import code_words

    return code_words(code)


BUILTIN: dict[str, Corpus] = {
    "tinyworld:en-fr": Corpus("pairs", _tinyworld("en-fr")),
    "tinyworld:en-de": Corpus("pairs", _tinyworld("en-de")),
    **{task: Corpus("pairs", _algorithmic(task)) for task in TASKS},
    "python": Corpus("texts", _lazy_corpus("python_source", "python_texts")),
    "python:docstrings": Corpus("texts", _lazy_corpus("python_source", "python_docstrings")),
    "python:tags": Corpus("tags", _lazy_corpus("python_source", "python_tags"), _code_words),
    "python:expressions": Corpus("labels", _lazy_corpus("python_source", "python_expressions"), _code_words),
    "digits": Corpus("images", _lazy_corpus("digits", "digits")),
    "digits:sums": Corpus("images", _lazy_corpus("digits", "digit_sums")),
}


def load_builtin(name: str, split: str, size: int, seed: int = 0) -> Sequence[Any]:
    """One split of a built-in corpus. The type of the examples depends on the kind of corpus."""
    return find_corpus(name).load(split, size, seed)


def find_corpus(name: str) -> Corpus:
    if name not in BUILTIN:
        raise DataError(f"there is no built-in corpus {name!r}. {did_you_mean(name, BUILTIN)}")
    return BUILTIN[name]
