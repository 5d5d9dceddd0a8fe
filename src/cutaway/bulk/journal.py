"""Partial output file and its journal. A process can be killed at any moment, and the next one continues.

    OUT.part      the results of the first lines, in order
    OUT.journal   a line of JSON: the job, the number of lines done, their digest, which of them failed;
                  then a line for each finished batch that still waits for earlier batches

The journal decides: OUT.part is truncated to the length in the journal. A rename replaces the journal atomically.
"""

from __future__ import annotations

import glob
import json
import os
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, NamedTuple, Protocol, Self

from cutaway.bulk.windows import FailedLine, LineBatch
from cutaway.errors import BulkFailed, DataError
from cutaway.runs.files import open_locked, replacing

Description = Mapping[str, Any]  # settings that must be equal for a job to resume


class FileHeader(Protocol):
    """Header that is written before the results once all of them are there."""

    size: int

    def to_bytes(self, lines: int, data_bytes: int) -> bytes: ...


class NoHeader:
    """Header of a text file: none."""

    size = 0

    def to_bytes(self, lines: int, data_bytes: int) -> bytes:
        return b""


class NpyHeader:
    """Header of a .npy file of float32 rows. Its size does not depend on the shape."""

    size = 128

    def to_bytes(self, lines: int, data_bytes: int) -> bytes:
        shape = f"({lines}, {data_bytes // 4 // max(1, lines)})"
        text = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}"
        return b"\x93NUMPY\x01\x00" + (self.size - 10).to_bytes(2, "little") + text.ljust(117).encode() + b"\n"


class BatchResult(NamedTuple):
    """Results of a finished batch."""

    results: list[bytes]
    failed: list[FailedLine]


class FileSink:
    """Output file that can be resumed. The context holds a lock, and removes its files if nothing was done."""

    def __init__(self, out: Path, description: Description, fresh: bool = False, header: FileHeader | None = None):
        self.out, self.description = out, dict(description)
        self.path, self.journal = Path(f"{out}.part"), Path(f"{out}.journal")
        self.header: FileHeader = header or NoHeader()
        self.fresh = fresh
        self.lines, self.size, self.digest = 0, self.header.size, ""
        self.finished: dict[str, BatchResult] = {}  # batches that are not in the file yet, by key
        self.failed: list[FailedLine] = []  # among the lines in the file
        self.log: IO[str] | None = None

    def __enter__(self) -> Self:
        self.file = self.open_part()
        try:
            if not self.fresh:
                self.check_foreign_files()
            if self.journal.is_file() and not self.fresh:
                self.read_journal()
            with self.report_disk_errors():
                # temporary files of a process that was killed before the rename
                for temporary in self.out.parent.glob(f".{glob.escape(self.journal.name)}.*"):
                    temporary.unlink()
                self.write_journal()  # first: a .part file without a journal counts as foreign
                self.file.truncate(self.size)  # a new file gets space for its header
        except BaseException:
            self.close()
            if self.is_new:
                self.path.unlink(missing_ok=True)
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
        if not self.lines and not self.finished:
            self.path.unlink(missing_ok=True)
            self.journal.unlink(missing_ok=True)

    def close(self) -> None:
        """Ignore errors: what a full disk refused is not in the journal."""
        for file in (self.file, self.log):
            with suppress(OSError):
                if file:
                    file.close()

    @contextmanager
    def report_disk_errors(self) -> Iterator[None]:
        """Turn an OSError into a BulkFailed."""
        try:
            yield
        except OSError as error:
            raise BulkFailed(
                f"{self.path} cannot be written: {error.strerror}. Free disk space or fix the cause, then run it again."
            ) from None

    def open_part(self) -> IO[bytes]:
        """Open and lock OUT.part."""
        try:
            self.out.parent.mkdir(parents=True, exist_ok=True)
            self.is_new = not self.path.exists()
            if self.is_new and is_journal(self.journal):  # killed after the .part file was renamed to OUT
                self.journal.unlink()
            file = open_locked(self.path)
        except OSError as error:
            raise DataError(f"{self.path} cannot be written: {error.strerror}. Name another file.") from None
        if file is None:
            raise DataError(f"another process is writing {self.path}. Wait until it is done, or name another file.")
        return file

    def check_foreign_files(self) -> None:
        """Refuse to overwrite a file that only happens to have this name."""
        if self.path.stat().st_size and not self.journal.exists():
            found, missing = self.path, self.journal
        elif self.journal.exists() and not self.path.stat().st_size and not is_journal(self.journal):
            found, missing = self.journal, self.path
        else:
            return
        raise DataError(
            f"{found} exists without {missing.name}, so it does not belong to an interrupted job. Move it, name "
            "another output, or replace it (--fresh)."
        )

    def read_journal(self) -> None:
        """Load what an earlier process finished, if the job is the same."""
        remedy = "Start over (--fresh), or name another file."
        try:
            first, *rest = self.journal.read_text(encoding="utf-8").splitlines() or [""]
            state = json.loads(first)
            lines, size, digest, job = state["lines"], state["bytes"], state["digest"], state["job"]
            failed = [FailedLine(*one) for one in state.get("refused", [])]
        except (ValueError, KeyError, TypeError):
            raise DataError(f"{self.journal} is damaged, so the job cannot resume. {remedy}") from None
        # --skip-errors may be added when a job resumes
        if job not in (self.description, {**self.description, "skip_errors": False}):
            raise DataError(
                f"{self.path} was started with other settings: {describe_differences(job, self.description)}. {remedy}"
            )
        if lines and self.path.stat().st_size < size:
            raise DataError(f"{self.path} is shorter than the {size:,} bytes in its journal. {remedy}")
        self.lines, self.size, self.digest, self.failed = lines, size, digest, failed
        self.finished = dict(filter(None, map(parse_record, rest)))

    def save_batch(self, batch: LineBatch, results: Sequence[bytes], failed: Sequence[FailedLine]) -> None:
        """Write a finished batch to the journal, so that a kill does not lose it."""
        self.finished[batch.key] = BatchResult(list(results), list(failed))
        with self.report_disk_errors():
            self.log = self.log or self.journal.open("a", encoding="utf-8", newline="\n")
            self.log.write(to_record(batch.key, self.finished[batch.key]))
            self.log.flush()

    def append(self, results: Iterable[bytes], lines: int, digest: str, batches: Iterable[LineBatch]) -> None:
        """Write the results of the next lines, and drop their batches from the journal."""
        with self.report_disk_errors():
            size = sum(self.file.write(result) for result in results)
            self.flush()
            self.lines, self.size, self.digest = lines, self.size + size, digest
            for batch in batches:
                self.failed += self.finished.pop(batch.key).failed
            if self.log:
                self.log.close()
                self.log = None
            self.write_journal()

    def write_journal(self) -> None:
        state = {"lines": self.lines, "bytes": self.size, "digest": self.digest, "job": self.description}
        with replacing(self.journal) as temporary, temporary.open("w", encoding="utf-8", newline="\n") as file:
            file.write(json.dumps({**state, "refused": self.failed}) + "\n")
            file.writelines(to_record(key, result) for key, result in self.finished.items())

    def finish(self) -> None:
        """Write the header and rename OUT.part to OUT."""
        with self.report_disk_errors():
            if self.header.size:
                with self.path.open("r+b") as file:
                    file.write(self.header.to_bytes(self.lines, self.size - self.header.size))
            self.flush()
            self.file.close()
            os.replace(self.path, self.out)
            self.journal.unlink()

    def flush(self) -> None:
        self.file.flush()
        os.fsync(self.file.fileno())


def is_journal(path: Path) -> bool:
    """Whether the file is a journal of a bulk job."""
    try:
        with path.open(encoding="utf-8") as file:
            return json.loads(file.readline()).keys() >= {"lines", "bytes", "digest", "job"}
    except (OSError, ValueError, AttributeError):
        return False


def to_record(key: str, result: BatchResult) -> str:
    results = [b64encode(one).decode() for one in result.results]
    return json.dumps({"batch": key, "results": results, "refused": result.failed}) + "\n"


def parse_record(line: str) -> tuple[str, BatchResult] | None:
    """The batch key and its results; None if a kill cut the line short."""
    try:
        record = json.loads(line)
        failed = [FailedLine(*one) for one in record["refused"]]
        return record["batch"], BatchResult([b64decode(one) for one in record["results"]], failed)
    except (ValueError, KeyError, TypeError):
        return None


def describe_differences(before: Description, now: Description) -> str:
    """The first three settings that differ, each with both values."""
    names = [name for name in {**before, **now} if before.get(name) != now.get(name)]
    return "; ".join(f"{name} was {shorten(before.get(name))} and is {shorten(now.get(name))}" for name in names[:3])


def shorten(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:12] + "..." + text[-12:]
