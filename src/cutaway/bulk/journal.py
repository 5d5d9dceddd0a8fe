"""The output in the making, so that a process may end at any moment and the next goes on.

    OUT.part      the results of all lines up to some line, in order
    OUT.journal   a line of JSON: for what job, how many lines that is, a digest of these lines, which were refused;
                  then a line for each batch that is ready and still has to wait for others before it

What counts is in the journal: OUT.part is cut to the length that stands there. It gets a new first line in one rename.
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

from cutaway.bulk.windows import Batch, Refused
from cutaway.errors import DataError, WorkFailed
from cutaway.runs.files import locked_file, replacing

Description = Mapping[str, Any]  # what must be the same for a job to be the same


class Layout(Protocol):
    """What stands before the results in a file, once all are there."""

    head_size: int

    def head(self, lines: int, size: int) -> bytes: ...


class Plain:
    """Nothing."""

    head_size = 0

    def head(self, lines: int, size: int) -> bytes:
        return b""


class Array:
    """The head of a .npy file: so many rows of float32. Its size does not depend on the numbers in it."""

    head_size = 128

    def head(self, lines: int, size: int) -> bytes:
        shape = f"({lines}, {size // 4 // max(1, lines)})"
        text = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}"
        return b"\x93NUMPY\x01\x00" + (self.head_size - 10).to_bytes(2, "little") + text.ljust(117).encode() + b"\n"


class Kept(NamedTuple):
    """What came of a batch."""

    results: list[bytes]
    refused: list[Refused]


class Part:
    """Use as a context: it holds a lock, and leaves nothing behind if nothing was done."""

    def __init__(self, out: Path, description: Description, fresh: bool = False, layout: Layout | None = None):
        self.out, self.description = out, dict(description)
        self.path, self.journal = Path(f"{out}.part"), Path(f"{out}.journal")
        self.layout: Layout = layout or Plain()
        self.fresh = fresh
        self.lines, self.size, self.digest = 0, self.layout.head_size, ""
        self.kept: dict[str, Kept] = {}  # of batches, by their keys
        self.refused: list[Refused] = []  # of the lines that are written
        self.log: IO[str] | None = None

    def __enter__(self) -> Self:
        self.file = self.opened()
        try:
            if not self.fresh:
                self.check_ours()
            if self.journal.is_file() and not self.fresh:
                self.remember()
            with self.writing():
                for left_over in self.out.parent.glob(f".{glob.escape(self.journal.name)}.*"):  # by a kill in a rename
                    left_over.unlink()
                self.write_journal()  # first: a part that is not empty has a journal, or is not ours
                self.file.truncate(self.size)  # to what is noted; a new one gets room for its head
        except BaseException:
            self.close()
            if self.is_new:
                self.path.unlink(missing_ok=True)
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
        if not self.lines and not self.kept:
            self.path.unlink(missing_ok=True)
            self.journal.unlink(missing_ok=True)

    def close(self) -> None:
        """What a full disk did not take does not count: it is not in the journal."""
        for file in (self.file, self.log):
            with suppress(OSError):
                if file:
                    file.close()

    @contextmanager
    def writing(self) -> Iterator[None]:
        """What the disk has against it is told in a sentence."""
        try:
            yield
        except OSError as error:
            raise WorkFailed(
                f"{self.path} cannot be written: {error.strerror}. Make room, or see to whatever else it is."
            ) from None

    def opened(self) -> IO[bytes]:
        """OUT.part, and nobody else has it."""
        try:
            self.out.parent.mkdir(parents=True, exist_ok=True)
            self.is_new = not self.path.exists()
            if self.is_new and is_journal(self.journal):  # there was a kill after the part had become the whole
                self.journal.unlink()
            file = locked_file(self.path)
        except OSError as error:
            raise DataError(f"{self.path} cannot be written: {error.strerror}. Name another file.") from None
        if file is None:
            raise DataError(f"another process is writing {self.path}. Wait until it is done, or name another file.")
        return file

    def check_ours(self) -> None:
        """A file that only happens to have the name is not to be lost."""
        if self.path.stat().st_size and not self.journal.exists():
            theirs, missing = self.path, self.journal
        elif self.journal.exists() and not self.path.stat().st_size and not is_journal(self.journal):
            theirs, missing = self.journal, self.path
        else:
            return
        raise DataError(
            f"{theirs} is there already, without {missing.name}, so it is not of work that was interrupted. Move it "
            "away, name another output, or have it replaced (--fresh)."
        )

    def remember(self) -> None:
        """What an earlier process has done, if it was about the same job."""
        remedy = "Begin anew (--fresh), or name another file."
        try:
            first, *rest = self.journal.read_text(encoding="utf-8").splitlines() or [""]
            told = json.loads(first)
            lines, size, digest, job = told["lines"], told["bytes"], told["digest"], told["job"]
            refused = [Refused(*one) for one in told.get("refused", [])]
        except (ValueError, KeyError, TypeError):
            raise DataError(f"{self.journal} is damaged, so the work cannot go on where it was. {remedy}") from None
        if job not in (self.description, {**self.description, "skip_errors": False}):  # so far, no line was skipped
            raise DataError(f"{self.path} was begun otherwise: {differences(job, self.description)}. {remedy}")
        if lines and self.path.stat().st_size < size:
            raise DataError(f"{self.path} is shorter than the {size:,} bytes that were written to it. {remedy}")
        self.lines, self.size, self.digest, self.refused = lines, size, digest, refused
        self.kept = dict(filter(None, map(read_record, rest)))

    def keep(self, batch: Batch, results: Sequence[bytes], refused: Sequence[Refused]) -> None:
        """Note a batch that is ready. If the process is killed a moment later, it need not be worked again."""
        self.kept[batch.key] = Kept(list(results), list(refused))
        with self.writing():
            self.log = self.log or self.journal.open("a", encoding="utf-8", newline="\n")
            self.log.write(record(batch.key, self.kept[batch.key]))
            self.log.flush()

    def append(self, results: Iterable[bytes], lines: int, digest: str, batches: Iterable[Batch]) -> None:
        """Write the results of the next lines, which makes the notes about their batches superfluous."""
        with self.writing():
            size = sum(self.file.write(result) for result in results)
            self.flush()
            self.lines, self.size, self.digest = lines, self.size + size, digest
            for batch in batches:
                self.refused += self.kept.pop(batch.key).refused
            if self.log:
                self.log.close()
                self.log = None
            self.write_journal()

    def write_journal(self) -> None:
        state = {"lines": self.lines, "bytes": self.size, "digest": self.digest, "job": self.description}
        with replacing(self.journal) as temporary, temporary.open("w", encoding="utf-8", newline="\n") as file:
            file.write(json.dumps({**state, "refused": self.refused}) + "\n")
            file.writelines(record(key, kept) for key, kept in self.kept.items())

    def finish(self) -> None:
        """All is there: the part becomes the whole."""
        with self.writing():
            if self.layout.head_size:
                with self.path.open("r+b") as file:
                    file.write(self.layout.head(self.lines, self.size - self.layout.head_size))
            self.flush()
            self.file.close()
            os.replace(self.path, self.out)
            self.journal.unlink()

    def flush(self) -> None:
        self.file.flush()
        os.fsync(self.file.fileno())


def is_journal(path: Path) -> bool:
    """Whether it is one of ours."""
    try:
        with path.open(encoding="utf-8") as file:
            return json.loads(file.readline()).keys() >= {"lines", "bytes", "digest", "job"}
    except (OSError, ValueError, AttributeError):
        return False


def record(key: str, kept: Kept) -> str:
    results = [b64encode(one).decode() for one in kept.results]
    return json.dumps({"batch": key, "results": results, "refused": kept.refused}) + "\n"


def read_record(line: str) -> tuple[str, Kept] | None:
    """None, if the process was killed while it wrote this."""
    try:
        told = json.loads(line)
        refused = [Refused(*one) for one in told["refused"]]
        return told["batch"], Kept([b64decode(one) for one in told["results"]], refused)
    except (ValueError, KeyError, TypeError):
        return None


def differences(before: Description, now: Description) -> str:
    """The settings that differ, each with both values."""
    names = [name for name in {**before, **now} if before.get(name) != now.get(name)]
    return "; ".join(f"{name} was {shown(before.get(name))} and is {shown(now.get(name))}" for name in names[:3])


def shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:12] + "..." + text[-12:]
