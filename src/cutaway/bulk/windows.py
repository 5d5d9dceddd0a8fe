"""Group lines into windows, and the lines of a window into batches.

Both depend on the lines alone, so neither the workers nor a restart changes a batch. Batches of another shape round
differently, and a search could break a tie differently.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import NamedTuple

SMALLEST, LARGEST = 256, 16_384  # lines in a window; the first are small, so that results appear soon
CHARACTERS = 4_000_000  # upper limit for a window of more than one line
RESULTS = 32_000_000  # approximate upper limit for the results of a window, in bytes


class FailedLine(NamedTuple):
    """A line that cannot be processed, and the reason."""

    number: int
    reason: str


@dataclass(frozen=True)
class LineBatch:
    """Lines of similar length that are processed together."""

    numbers: list[int]  # line numbers in the file, from 0
    texts: list[str]

    @cached_property
    def key(self) -> str:
        """Hash of the lines and their numbers. It identifies the results after a restart."""
        return hashlib.sha256(json.dumps([self.numbers, self.texts]).encode()).hexdigest()


@dataclass(frozen=True)
class LineWindow:
    """Consecutive lines. `digest` covers all lines of the file up to the last of these."""

    first: int
    texts: list[str]
    digest: str

    @property
    def end(self) -> int:
        return self.first + len(self.texts)


class WindowReader:
    """Read lines as windows. Lines that are done already are read too, to check that they have not changed."""

    def __init__(self, lines: Iterable[str], result_bytes: int = 1):
        self.lines, self.result_bytes = iter(lines), result_bytes
        self.number = 0
        self.digest = hashlib.sha256()

    def skip(self, count: int) -> str:
        """Skip `count` lines and return their digest."""
        for text in islice(self.lines, count):
            self.update(text)
        return self.digest.hexdigest()

    def windows(self) -> Iterator[LineWindow]:
        while texts := self.next_texts():
            yield LineWindow(self.number - len(texts), texts, self.digest.hexdigest())

    def next_texts(self) -> list[str]:
        texts: list[str] = []
        size, characters = window_size(self.number, self.result_bytes), 0
        for text in islice(self.lines, size):
            self.update(text)
            texts.append(text)
            characters += len(text)
            if characters >= CHARACTERS:
                break
        return texts

    def update(self, text: str) -> None:
        self.number += 1
        self.digest.update(text.encode() + b"\n")


def window_size(first: int, result_bytes: int) -> int:
    """As many lines as there are before the window, within bounds. Large results mean fewer lines."""
    return min(max(SMALLEST, first), LARGEST, max(1, RESULTS // result_bytes))


def make_batches(window: LineWindow, sizes: Sequence[int], budget: int) -> list[LineBatch]:
    """Sort the lines of a window by length and cut them: number of lines x longest size <= budget.

    The longest come first. So workers finish at about the same time, and a lack of memory shows at once.
    """
    order = sorted(range(len(sizes)), key=lambda i: (-sizes[i], i))
    groups: list[list[int]] = []
    for i in order:
        if groups and (len(groups[-1]) + 1) * sizes[groups[-1][0]] <= budget:
            groups[-1].append(i)
        else:
            groups.append([i])
    return [LineBatch([window.first + i for i in group], [window.texts[i] for i in group]) for group in groups]
