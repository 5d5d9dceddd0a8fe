"""A job done with every line of a file, and the results in order in another."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, NamedTuple, Protocol

from cutaway.bulk.journal import Description, Kept, Layout, Part
from cutaway.bulk.unknown import Unknown
from cutaway.bulk.windows import Batch, Reader, Refused, Window, batches
from cutaway.bulk.workers import Crew, Here, Loads, Result, WorkerPool
from cutaway.data.lines import read_lines
from cutaway.errors import ConfigError, DataError, WorkFailed

AHEAD = 3  # windows that may be open at once: the one that is to be written next, and more for idle workers
BATCH_TOKENS = 4_096


class Job(Loads, Protocol):
    """What is to be done with each line."""

    @property
    def layout(self) -> Layout: ...

    @property
    def can_skip(self) -> bool:
        """Whether anything can stand for a line that cannot be worked."""
        ...

    @property
    def skips(self) -> bool:
        """Whether that is done even if nobody asks for it."""
        ...

    def instead_of(self, refused: Refused) -> bytes:
        """What stands for it."""
        ...

    @property
    def line_bytes(self) -> int:
        """About how large a result is: those of a window are in memory together."""
        ...

    def sizer(self) -> Callable[[Sequence[str]], list[int]]:
        """Gives the room that each text takes in a batch, in tokens."""
        ...

    def description(self) -> Description:
        """What the results depend on."""
        ...

    def default_workers(self, lines: int, characters: int) -> int:
        """How many processes are worth their start; 0: none."""
        ...


class Survey(NamedTuple):
    lines: int
    characters: int


class Report(NamedTuple):
    """How it went."""

    lines: int
    resumed_at: int  # lines that were done already
    refused: list[Refused]  # lines that could not be worked and were skipped, by this process or one before it
    workers: int
    unknown: Unknown | None = None  # what of the lines that this process worked is not in the vocabulary
    long: int = 0  # lines of these that are longer than the model reads at once


Tell = Callable[[int, int, int], None]  # lines done, of how many, how many of them by an earlier process


class Sink(Protocol):
    """Where results go."""

    lines: int
    digest: str
    kept: dict[str, Kept]

    def keep(self, batch: Batch, results: Sequence[bytes], refused: Sequence[Refused]) -> None: ...

    def append(self, results: Iterable[bytes], lines: int, digest: str, batches: Iterable[Batch]) -> None: ...

    def finish(self) -> None: ...


class Printed:
    """A stream, such as standard output: what is written is written."""

    def __init__(self, stream: IO[bytes]):
        self.stream = stream
        self.lines, self.digest = 0, ""
        self.kept: dict[str, Kept] = {}
        self.refused: list[Refused] = []

    def __enter__(self) -> Printed:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def keep(self, batch: Batch, results: Sequence[bytes], refused: Sequence[Refused]) -> None:
        self.refused += refused

    def append(self, results: Iterable[bytes], lines: int, digest: str, batches: Iterable[Batch]) -> None:
        self.stream.writelines(results)
        self.stream.flush()

    def finish(self) -> None:
        pass


def carry_out(
    job: Job,
    source: str | Path,
    out: str | Path | IO[bytes],
    workers: int | None = None,
    batch_tokens: int = BATCH_TOKENS,
    fresh: bool = False,
    skip_errors: bool = False,
    tell: Tell | None = None,
) -> Report:
    """Do `job` with every line of `source`, plain or .gz, and write the results to `out`, in order.

    `workers`: processes of one thread each; 0: this one; None: as many as are worth it. If the work is interrupted,
    the same call goes on where it was; `fresh` begins anew. A line that cannot be worked ends the work with an error
    that names it; `skip_errors` leaves its result empty and goes on.
    """
    check_options(job, workers, batch_tokens, skip_errors)
    skip_errors = skip_errors or job.skips
    source = Path(source)
    if isinstance(out, str | Path):
        check_output(Path(out), source)
    lines, characters = survey = surveyed(source)
    if not lines and job.layout.head_size:
        raise DataError(f"{source} is empty: there is nothing to make an array of.")
    description = {**job.description(), "skip_errors": skip_errors}
    with sink_for(out, description, fresh, job.layout) as sink:
        reader = Reader(read_lines(source), job.line_bytes)
        if reader.skip(sink.lines) != sink.digest and sink.lines:
            raise DataError(
                f"the first {sink.lines:,} lines of {source} are not those that were worked when {out} was begun. Give "
                "the file that it was begun with, begin anew (--fresh), or name another output."
            )
        before = sink.lines
        if workers is None:
            workers = job.default_workers(lines - before, characters * (lines - before) // max(1, lines))
        with keeping(sink):
            with hands_for(job, workers) as hands:
                if tell:
                    tell(before, lines, before)
                instead_of, sizes = job.instead_of if skip_errors else None, job.sizer()
                shop = Shop(hands, sink, sizes, batch_tokens, str(source), instead_of, job.can_skip)
                for finished in shop.work(reader.windows()):
                    if tell:
                        tell(finished, lines, shop.before)
            if sink.lines != lines and isinstance(sink, Part):
                raise DataError(f"{source} has changed while it was read. Give the command again to go on.")
            sink.finish()
    unknown, long = getattr(sizes, "unknown", None), getattr(sizes, "long", 0)
    return Report(survey.lines, before, sorted(sink.refused), workers, unknown, long)


def check_options(job: Job, workers: int | None, batch_tokens: int, skip_errors: bool) -> None:
    if workers is not None and workers < 0:
        raise ConfigError(f"workers = {workers} is no number of processes. Give 1 or more, or 0 for none but this one.")
    if batch_tokens < 1:
        raise ConfigError(f"batch_tokens = {batch_tokens} leaves no room for a text. Give some hundreds or more.")
    if skip_errors and not job.can_skip:
        raise ConfigError("no result of this job can be empty, so no line can be skipped. Leave out skip_errors.")


def check_output(out: Path, source: Path | None = None) -> None:
    """What is not to be replaced by a file of results."""
    if out.is_dir():
        raise DataError(f"{out} is a folder. Give the name of a file.")
    if out.suffix == ".gz":
        raise DataError(f"results are written as plain text, and {out} is called .gz. Leave that out; pack it later.")
    if out.exists() and not out.is_file():
        raise DataError(f"{out} is no ordinary file, so it cannot be replaced by one. Name another.")
    if source and out.exists() and source.exists() and out.samefile(source):
        raise DataError(f"the results would replace {source}, which they are made of. Name another file.")


def surveyed(source: Path) -> Survey:
    """Read it all once: mistakes in line 900,000 are better known before an hour of work than after it."""
    lines = characters = 0
    for line in read_lines(source):
        lines += 1
        characters += len(line)
    return Survey(lines, characters)


def sink_for(
    out: str | Path | IO[bytes], description: Description, fresh: bool, layout: Layout
) -> AbstractContextManager[Part | Printed]:
    if not isinstance(out, str | Path):
        return Printed(out)
    return Part(Path(out), description, fresh, layout)


def hands_for(job: Job, workers: int) -> AbstractContextManager[WorkerPool]:
    return Crew(job, workers) if workers else Here(job)


@contextmanager
def keeping(sink: Part | Printed) -> Iterator[None]:
    """Tell the user of what is not lost."""
    try:
        yield
    except WorkFailed as error:
        if isinstance(sink, Printed):
            raise
        raise WorkFailed(f"{error} What is done is kept: the same command goes on where it was.") from None


@dataclass
class Open:
    """A window at work."""

    window: Window
    batches: list[Batch]
    results: dict[int, bytes] = field(default_factory=dict)

    @property
    def is_done(self) -> bool:
        return len(self.results) == len(self.window.texts)

    def add(self, batch: Batch, results: Sequence[bytes]) -> None:
        self.results.update(zip(batch.numbers, results, strict=True))

    def in_order(self) -> Iterator[bytes]:
        return (self.results[number] for number in range(self.window.first, self.window.end))


class Shop:
    """Where windows come in, are worked by hands batch by batch, and go out in order."""

    def __init__(
        self,
        hands: WorkerPool,
        sink: Sink,
        sizes: Callable[[Sequence[str]], list[int]],
        budget: int,
        name: str,
        instead_of: Callable[[Refused], bytes] | None,
        can_skip: bool = True,
    ):
        self.hands, self.sink, self.sizes, self.budget = hands, sink, sizes, budget
        self.name, self.instead_of = name, instead_of
        self.or_skipped = ", or have such lines skipped (--skip-errors)," if can_skip else ""
        self.open: deque[Open] = deque()
        self.todo: deque[tuple[Open, Batch]] = deque()
        self.given: dict[str, Open] = {}  # batches that are being worked, by their keys
        self.done = self.before = sink.lines  # before: by an earlier process

    def work(self, windows: Iterator[Window]) -> Iterator[int]:
        """Until no window is left. Gives the number of lines that are done, again and again."""
        while self.supplied(windows):
            while self.todo and self.hands.has_room:
                opened, batch = self.todo.popleft()
                self.given[batch.key] = opened
                self.hands.give(batch)
            if self.hands.is_busy:
                batch, results = self.hands.take()
                self.fill(self.given.pop(batch.key), batch, results)
            self.hand_out()
            yield self.done

    def supplied(self, windows: Iterator[Window]) -> bool:
        """Open windows until there is something to do; whether there is anything left at all."""
        while not self.todo and len(self.open) < AHEAD:
            window = next(windows, None)
            if window is None:
                break
            self.open_window(window)
        return bool(self.open)

    def open_window(self, window: Window) -> None:
        opened = Open(window, batches(window, self.sizes(window.texts), self.budget))
        self.open.append(opened)
        for batch in opened.batches:
            if kept := self.sink.kept.get(batch.key):  # ready before the last process ended
                opened.add(batch, kept.results)
                self.done += len(kept.results)
                self.before += len(kept.results)
            else:
                self.todo.append((opened, batch))

    def fill(self, opened: Open, batch: Batch, results: Sequence[Result]) -> None:
        written = [self.accepted(result) for result in results]
        opened.add(batch, written)
        self.done += len(written)
        self.sink.keep(batch, written, [result for result in results if isinstance(result, Refused)])

    def accepted(self, result: Result) -> bytes:
        if not isinstance(result, Refused):
            return result
        if self.instead_of is None:
            raise DataError(
                f"{self.name}, line {result.number + 1}: {result.why} Mend the line{self.or_skipped} and begin again: "
                "work that is done is kept."
            )
        return self.instead_of(result)

    def hand_out(self) -> None:
        """Write all windows that are done and have no other before them."""
        while self.open and self.open[0].is_done:
            opened = self.open.popleft()
            self.sink.append(opened.in_order(), opened.window.end, opened.window.digest, opened.batches)
            self.sink.lines = opened.window.end
