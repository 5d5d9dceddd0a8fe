"""Progress of preparing a large corpus: a live bar on a terminal, a plain line now and then when piped."""

from __future__ import annotations

import time
from types import TracebackType

from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from cutaway.cli.console import err

NO_TIME = 1  # seconds
PAUSE = 10  # seconds between two lines


class PreparingProgress:
    """To be given to `prepare` as `tell`. A corpus that is prepared in no time shows nothing."""

    def __init__(self) -> None:
        self.bar: Progress | None = None
        self.what = ""
        self.began = self.last_line = time.monotonic()

    def __call__(self, what: str, done: float) -> None:
        now = time.monotonic()
        if err.is_terminal and now - self.began > NO_TIME:
            self.show_bar(what, done)
        elif not err.is_terminal and now - self.last_line > PAUSE:
            self.last_line = now
            err.print(f"{what}: {done:.0%}")

    def show_bar(self, what: str, done: float) -> None:
        if self.bar is None:
            columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
            self.bar = Progress(*columns, console=err, transient=True)
            self.bar.start()
        if what != self.what:
            for task in self.bar.tasks:
                self.bar.remove_task(task.id)
            self.bar.add_task(what, total=1.0)
            self.what = what
        self.bar.update(self.bar.tasks[-1].id, completed=done)

    def __enter__(self) -> PreparingProgress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        if self.bar:
            self.bar.stop()
