"""Progress of a job on a file: a live bar on a terminal, a plain line every few seconds when piped."""

from __future__ import annotations

import time
from collections import deque
from typing import Self

from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

from cutaway.cli.console import clock, err, say

EVERY = 10  # seconds between plain lines
WINDOW = 60  # the rate is a mean over these seconds


class BulkProgress:
    """Lines done, lines per second in this process, time left. `hidden`: the results themselves are on the screen."""

    def __init__(self, verb: str, hidden: bool = False) -> None:
        self.verb, self.hidden = verb, hidden
        self.started = self.last_line = time.monotonic()
        self.recent: deque[tuple[float, int]] = deque()
        self.bar: Progress | None = None
        self.done = self.done_here = 0  # done_here: without the lines of an earlier, interrupted command

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
            self.start(total, before)
        self.done, self.done_here = done, done - before
        self.recent.append((time.monotonic(), self.done_here))
        while len(self.recent) > 2 and self.recent[-1][0] - self.recent[1][0] > WINDOW:
            self.recent.popleft()
        if self.bar:
            self.bar.update(self.task, completed=done, description=self.describe(done, total))
        elif not self.hidden and time.monotonic() - self.last_line > EVERY:
            self.last_line = time.monotonic()
            say(f"{self.verb}: {self.describe(done, total)}")

    def start(self, total: int, before: int) -> None:
        self.recent.append((time.monotonic(), 0))
        if before:
            say(f"Resuming after the first {before:,} lines.")
        if err.is_terminal and not self.hidden:
            columns = (TextColumn(self.verb), BarColumn(20), TaskProgressColumn(), TextColumn("{task.description}"))
            self.bar = Progress(*columns, console=err, transient=True)
            self.task = self.bar.add_task("", total=total, completed=before)
            self.bar.start()

    def describe(self, done: int, total: int) -> str:
        (first, done_then), (last, done_now) = self.recent[0], self.recent[-1]
        rate = (done_now - done_then) / max(1e-9, last - first)
        left = f"  {clock((total - done) / rate)} left" if rate else ""
        return f"{done:,} of {total:,} lines  {rate:,.1f}/s{left}"
