"""Lines in windows, windows in batches. Both follow from the lines alone, so that no worker and no restart changes
what goes together: batches of other shapes would round otherwise, and a tie in a search could end otherwise."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import NamedTuple

SMALLEST, LARGEST = 256, 16_384  # lines of a window: few at first, so that something is soon to be seen
CHARACTERS = 4_000_000  # that a window holds at most, unless it is one line
RESULTS = 32_000_000  # bytes that the results of a window have, about, at most


class Refused(NamedTuple):
    """A line that cannot be worked, and why."""

    number: int
    why: str


@dataclass(frozen=True)
class Batch:
    """Lines of about the same length that are worked together."""

    numbers: list[int]  # of each line in the file, counted from 0
    texts: list[str]

    @cached_property
    def key(self) -> str:
        """By which its results are known again after a restart: the same lines at the same places."""
        return hashlib.sha256(json.dumps([self.numbers, self.texts]).encode()).hexdigest()


@dataclass(frozen=True)
class Window:
    """Lines that follow each other; `digest` is of all lines of the file up to the last of these."""

    first: int
    texts: list[str]
    digest: str

    @property
    def end(self) -> int:
        return self.first + len(self.texts)


class Reader:
    """The lines of a file as windows. Lines that were done earlier are read, to know that they are still the same."""

    def __init__(self, lines: Iterable[str], line_bytes: int = 1):
        self.lines, self.line_bytes = iter(lines), line_bytes
        self.number = 0
        self.digest = hashlib.sha256()

    def skip(self, count: int) -> str:
        """Past so many lines; their digest."""
        for text in islice(self.lines, count):
            self.note(text)
        return self.digest.hexdigest()

    def windows(self) -> Iterator[Window]:
        while texts := self.next_texts():
            yield Window(self.number - len(texts), texts, self.digest.hexdigest())

    def next_texts(self) -> list[str]:
        texts: list[str] = []
        size, characters = window_size(self.number, self.line_bytes), 0
        for text in islice(self.lines, size):
            self.note(text)
            texts.append(text)
            characters += len(text)
            if characters >= CHARACTERS:
                break
        return texts

    def note(self, text: str) -> None:
        self.number += 1
        self.digest.update(text.encode() + b"\n")


def window_size(first: int, line_bytes: int) -> int:
    """As many lines as stand before it, within bounds: of large results, of so many bytes, fewer fit the memory."""
    return min(max(SMALLEST, first), LARGEST, max(1, RESULTS // line_bytes))


def batches(window: Window, sizes: Sequence[int], budget: int) -> list[Batch]:
    """The lines of a window, longest first, as many together as fit: number of lines x size of the longest.

    Longest first, so that workers end at about the same time, and memory that is too small is noticed at once.
    """
    order = sorted(range(len(sizes)), key=lambda i: (-sizes[i], i))
    cut: list[list[int]] = []
    for i in order:
        if cut and (len(cut[-1]) + 1) * sizes[cut[-1][0]] <= budget:
            cut[-1].append(i)
        else:
            cut.append([i])
    return [Batch([window.first + i for i in chosen], [window.texts[i] for i in chosen]) for chosen in cut]
