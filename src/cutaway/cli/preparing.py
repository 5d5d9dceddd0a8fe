"""Progress of preparing a large corpus: a live bar on a terminal, a plain line every few seconds when piped."""

from __future__ import annotations

import time
from typing import Self

from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from cutaway.cli.console import err

SHOW_AFTER = 1  # seconds; a small corpus shows nothing
LINE_EVERY = 10  # seconds


class PreparingProgress:
    """A callback for `prepare`."""

    def __init__(self) -> None:
        self.bar: Progress | None = None
        self.stage = ""
        self.started = self.last_line = time.monotonic()

    def __call__(self, stage: str, done: float) -> None:
        now = time.monotonic()
        if err.is_terminal and now - self.started > SHOW_AFTER:
            self.show_bar(stage, done)
        elif not err.is_terminal and now - self.last_line > LINE_EVERY:
            self.last_line = now
            err.print(f"{stage}: {done:.0%}")

    def show_bar(self, stage: str, done: float) -> None:
        if self.bar is None:
            columns = (TextColumn("{task.description}"), BarColumn(20), TaskProgressColumn(), TimeRemainingColumn())
            self.bar = Progress(*columns, console=err, transient=True)
            self.bar.start()
        if stage != self.stage:
            for task in self.bar.tasks:
                self.bar.remove_task(task.id)
            self.bar.add_task(stage, total=1.0)
            self.stage = stage
        self.bar.update(self.bar.tasks[-1].id, completed=done)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.bar:
            self.bar.stop()
