"""Run a job over every line of a file, and write the results in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, NamedTuple, Protocol

from cutaway.bulk.journal import BatchResult, Description, FileHeader, FileSink
from cutaway.bulk.unknown_words import UnknownWords
from cutaway.bulk.windows import FailedLine, LineBatch, LineWindow, WindowReader, make_batches
from cutaway.bulk.workers import InProcessPool, Loadable, ProcessPool, Result, WorkerPool
from cutaway.data.lines import read_lines
from cutaway.errors import BulkFailed, ConfigError, DataError

MAX_OPEN_WINDOWS = 3  # the window to be written next, and more for idle workers
BATCH_TOKENS = 4_096


class LineJob(Loadable, Protocol):
    """What to do with each line."""

    @property
    def header(self) -> FileHeader: ...

    @property
    def can_skip(self) -> bool:
        """Whether a failed line can have an empty result."""
        ...

    @property
    def skips_by_default(self) -> bool:
        """Whether failed lines are skipped without skip_errors."""
        ...

    def placeholder(self, failed: FailedLine) -> bytes:
        """The output for a failed line."""
        ...

    @property
    def result_bytes(self) -> int:
        """Approximate size of one result. Memory holds the results of a window together."""
        ...

    def token_counter(self) -> Callable[[Sequence[str]], list[int]]:
        """A function from texts to their sizes in tokens."""
        ...

    def description(self) -> Description:
        """The settings that the results depend on."""
        ...

    def default_workers(self, lines: int, characters: int) -> int:
        """The number of processes that pays off; 0: none."""
        ...


class BulkReport(NamedTuple):
    """Summary of a finished bulk job."""

    lines: int
    resumed_at: int  # lines done by an earlier process
    failed: list[FailedLine]  # skipped lines, those of an earlier process included
    workers: int
    unknown: UnknownWords | None = None  # unknown words in the lines that this process read
    long: int = 0  # lines longer than the model's context


OnProgress = Callable[[int, int, int], None]  # lines done, all lines, lines done by an earlier process


class Sink(Protocol):
    """Destination of the results."""

    lines: int
    digest: str
    finished: dict[str, BatchResult]

    def save_batch(self, batch: LineBatch, results: Sequence[bytes], failed: Sequence[FailedLine]) -> None: ...

    def append(self, results: Iterable[bytes], lines: int, digest: str, batches: Iterable[LineBatch]) -> None: ...

    def finish(self) -> None: ...


class StreamSink:
    """A stream, such as standard output. It cannot be resumed."""

    def __init__(self, stream: IO[bytes]):
        self.stream = stream
        self.lines, self.digest = 0, ""
        self.finished: dict[str, BatchResult] = {}
        self.failed: list[FailedLine] = []

    def __enter__(self) -> StreamSink:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def save_batch(self, batch: LineBatch, results: Sequence[bytes], failed: Sequence[FailedLine]) -> None:
        self.failed += failed

    def append(self, results: Iterable[bytes], lines: int, digest: str, batches: Iterable[LineBatch]) -> None:
        self.stream.writelines(results)
        self.stream.flush()

    def finish(self) -> None:
        pass


def run_job(
    job: LineJob,
    source: str | Path,
    out: str | Path | IO[bytes],
    workers: int | None = None,
    batch_tokens: int = BATCH_TOKENS,
    fresh: bool = False,
    skip_errors: bool = False,
    on_progress: OnProgress | None = None,
) -> BulkReport:
    """Run `job` on every line of `source`, plain or .gz, and write the results to `out`, in order.

    `workers`: processes of one thread each; 0: the current process; None: as many as pay off. After an interruption,
    the same call resumes; `fresh` starts over. A line that fails ends the job with an error that names it;
    `skip_errors` leaves its result empty and continues.
    """
    check_options(job, workers, batch_tokens, skip_errors)
    skip_errors = skip_errors or job.skips_by_default
    source = Path(source)
    if isinstance(out, str | Path):
        check_output(Path(out), source)
    lines, characters = count_lines(source)
    if not lines and job.header.size:
        raise DataError(f"{source} is empty, and an array needs at least one line. Give a file with text.")
    description = {**job.description(), "skip_errors": skip_errors}
    with open_sink(out, description, fresh, job.header) as sink:
        reader = WindowReader(read_lines(source), job.result_bytes)
        if reader.skip(sink.lines) != sink.digest and sink.lines:
            raise DataError(
                f"the first {sink.lines:,} lines of {source} have changed since {out} was started. Give the original "
                "file, start over (--fresh), or name another output."
            )
        before = sink.lines
        if workers is None:
            workers = job.default_workers(lines - before, characters * (lines - before) // max(1, lines))
        with add_resume_hint(sink):
            with open_pool(job, workers) as pool:
                if on_progress:
                    on_progress(before, lines, before)
                placeholder, sizes = job.placeholder if skip_errors else None, job.token_counter()
                scheduler = BatchScheduler(pool, sink, sizes, batch_tokens, str(source), placeholder, job.can_skip)
                for done in scheduler.run(reader.windows()):
                    if on_progress:
                        on_progress(done, lines, scheduler.before)
            if sink.lines != lines and isinstance(sink, FileSink):
                raise DataError(f"{source} changed while it was read. Run the same command again to continue.")
            sink.finish()
    unknown, long = getattr(sizes, "unknown", None), getattr(sizes, "long", 0)
    return BulkReport(lines, before, sorted(sink.failed), workers, unknown, long)


def check_options(job: LineJob, workers: int | None, batch_tokens: int, skip_errors: bool) -> None:
    if workers is not None and workers < 0:
        raise ConfigError(f"workers = {workers} is negative. Give 1 or more, or 0 to use the current process.")
    if batch_tokens < 1:
        raise ConfigError(f"batch_tokens = {batch_tokens} is too small for a text. Give some hundreds or more.")
    if skip_errors and not job.can_skip:
        raise ConfigError("this job cannot have empty results, so no line can be skipped. Leave out skip_errors.")


def check_output(out: Path, source: Path | None = None) -> None:
    """Raise if the results must not replace `out`."""
    if out.is_dir():
        raise DataError(f"{out} is a folder. Give a file name.")
    if out.suffix == ".gz":
        raise DataError(
            f"results are written uncompressed, and {out} ends with .gz. Leave out .gz, and compress the file later."
        )
    if out.exists() and not out.is_file():
        raise DataError(f"{out} is not a regular file, so it cannot be replaced. Name another file.")
    if source and out.exists() and source.exists() and out.samefile(source):
        raise DataError(f"the results would replace their own input {source}. Name another file.")


def count_lines(source: Path) -> tuple[int, int]:
    """Count lines and characters. This finds an error in line 900,000 before an hour of work, not after it."""
    lines = characters = 0
    for line in read_lines(source):
        lines += 1
        characters += len(line)
    return lines, characters


def open_sink(
    out: str | Path | IO[bytes], description: Description, fresh: bool, header: FileHeader
) -> AbstractContextManager[FileSink | StreamSink]:
    if not isinstance(out, str | Path):
        return StreamSink(out)
    return FileSink(Path(out), description, fresh, header)


def open_pool(job: LineJob, workers: int) -> AbstractContextManager[WorkerPool]:
    return ProcessPool(job, workers) if workers else InProcessPool(job)


@contextmanager
def add_resume_hint(sink: FileSink | StreamSink) -> Iterator[None]:
    """Add to a BulkFailed that the same command resumes."""
    try:
        yield
    except BulkFailed as error:
        if isinstance(sink, StreamSink):
            raise
        raise BulkFailed(f"{error} Finished work is saved: the same command continues.") from None


@dataclass
class OpenWindow:
    """A window in progress."""

    window: LineWindow
    batches: list[LineBatch]
    results: dict[int, bytes] = field(default_factory=dict)

    @property
    def is_done(self) -> bool:
        return len(self.results) == len(self.window.texts)

    def add(self, batch: LineBatch, results: Sequence[bytes]) -> None:
        self.results.update(zip(batch.numbers, results, strict=True))

    def in_order(self) -> Iterator[bytes]:
        return (self.results[number] for number in range(self.window.first, self.window.end))


class BatchScheduler:
    """Read windows, process their batches in a worker pool, and write the results in order."""

    def __init__(
        self,
        pool: WorkerPool,
        sink: Sink,
        sizes: Callable[[Sequence[str]], list[int]],
        budget: int,
        name: str,
        placeholder: Callable[[FailedLine], bytes] | None,
        can_skip: bool = True,
    ):
        self.pool, self.sink, self.sizes, self.budget = pool, sink, sizes, budget
        self.name, self.placeholder = name, placeholder
        self.skip_hint = " or skip such lines (--skip-errors)" if can_skip else ""
        self.open: deque[OpenWindow] = deque()
        self.todo: deque[tuple[OpenWindow, LineBatch]] = deque()
        self.in_progress: dict[str, OpenWindow] = {}  # window of each submitted batch, by key
        self.done = self.before = sink.lines  # before: lines done by an earlier process

    def run(self, windows: Iterator[LineWindow]) -> Iterator[int]:
        """Process all windows. Yields the number of finished lines after each batch."""
        while self.open_windows(windows):
            while self.todo and self.pool.has_room:
                opened, batch = self.todo.popleft()
                self.in_progress[batch.key] = opened
                self.pool.submit(batch)
            if self.pool.is_busy:
                batch, results = self.pool.next_result()
                self.store(self.in_progress.pop(batch.key), batch, results)
            self.write_finished()
            yield self.done

    def open_windows(self, windows: Iterator[LineWindow]) -> bool:
        """Open windows until there is a batch to submit. Returns whether any window is open."""
        while not self.todo and len(self.open) < MAX_OPEN_WINDOWS:
            window = next(windows, None)
            if window is None:
                break
            self.open_window(window)
        return bool(self.open)

    def open_window(self, window: LineWindow) -> None:
        opened = OpenWindow(window, make_batches(window, self.sizes(window.texts), self.budget))
        self.open.append(opened)
        for batch in opened.batches:
            if finished := self.sink.finished.get(batch.key):  # by an earlier process
                opened.add(batch, finished.results)
                self.done += len(finished.results)
                self.before += len(finished.results)
            else:
                self.todo.append((opened, batch))

    def store(self, opened: OpenWindow, batch: LineBatch, results: Sequence[Result]) -> None:
        written = [self.to_bytes(result) for result in results]
        opened.add(batch, written)
        self.done += len(written)
        self.sink.save_batch(batch, written, [result for result in results if isinstance(result, FailedLine)])

    def to_bytes(self, result: Result) -> bytes:
        if not isinstance(result, FailedLine):
            return result
        if self.placeholder is None:
            raise DataError(
                f"{self.name}, line {result.number + 1}: {result.reason} Fix the line{self.skip_hint}, and run the "
                "same command again: finished work is saved."
            )
        return self.placeholder(result)

    def write_finished(self) -> None:
        """Write the finished windows that have no unfinished window before them."""
        while self.open and self.open[0].is_done:
            opened = self.open.popleft()
            self.sink.append(opened.in_order(), opened.window.end, opened.window.digest, opened.batches)
            self.sink.lines = opened.window.end
