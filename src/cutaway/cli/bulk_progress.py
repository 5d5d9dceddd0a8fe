"""Progress of work on a file: a live bar on a terminal, a plain line now and then when piped."""

from __future__ import annotations

import time
from collections import deque
from typing import Self

from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

from cutaway.cli.console import clock, err, say

EVERY = 10  # seconds between plain lines
WINDOW = 60  # seconds that the shown rate is a mean of


class BulkProgress:
    """Lines done, lines a second of those that this process does, time left.

    `hidden`: where the results themselves are to be seen.
    """

    def __init__(self, doing: str, hidden: bool = False) -> None:
        self.doing, self.hidden = doing, hidden
        self.started = self.last_line = time.monotonic()
        self.recent: deque[tuple[float, int]] = deque()
        self.bar: Progress | None = None
        self.done = self.worked = 0  # worked: by this process

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.bar:
            self.bar.stop()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.started

    def __call__(self, done: int, total: int, before: int) -> None:
        if not self.recent:
            self.begin(total, before)
        self.done, self.worked = done, done - before
        self.recent.append((time.monotonic(), self.worked))
        while len(self.recent) > 2 and self.recent[-1][0] - self.recent[1][0] > WINDOW:
            self.recent.popleft()
        if self.bar:
            self.bar.update(self.task, completed=done, description=self.described(done, total))
        elif not self.hidden and time.monotonic() - self.last_line > EVERY:
            self.last_line = time.monotonic()
            say(f"{self.doing}: {self.described(done, total)}")

    def begin(self, total: int, before: int) -> None:
        self.recent.append((time.monotonic(), 0))
        if before:
            say(f"Going on after the first {before:,} lines, which are done.")
        if err.is_terminal and not self.hidden:
            columns = (TextColumn(self.doing), BarColumn(), TaskProgressColumn(), TextColumn("{task.description}"))
            self.bar = Progress(*columns, console=err, transient=True)
            self.task = self.bar.add_task("", total=total, completed=before)
            self.bar.start()

    def described(self, done: int, total: int) -> str:
        (first, worked_then), (last, worked) = self.recent[0], self.recent[-1]
        rate = (worked - worked_then) / max(1e-9, last - first)
        left = f"  {clock((total - done) / rate)} left" if rate else ""
        return f"{done:,} of {total:,} lines  {rate:,.1f}/s{left}"
