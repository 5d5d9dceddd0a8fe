"""What the text commands share: where texts come from, and where results go."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cutaway.cli.console import clock, say
from cutaway.cli.options import Bulk, Device, Strategy
from cutaway.errors import ConfigError, DataError, Interrupted

__all__ = ["Device", "Strategy"]  # beside what is defined here

if TYPE_CHECKING:
    from cutaway.bulk.jobs import RunJob, TokenCounter
    from cutaway.bulk.journal import FileHeader
    from cutaway.bulk.unknown_words import UnknownWords
    from cutaway.bulk.windows import FailedLine
    from cutaway.bulk.workers import LineProcessor


def carry_out(
    job: RunJob, text: Sequence[str] | None, file: Path | None, out: Path | None, bulk: Bulk, doing: str
) -> Any:
    """A job with the given texts, with the lines of a file, or with those of standard input as they come.

    Gives the pipeline that did it, if it was loaded in this process.
    """
    refuse_both(text, file)
    file, out = (None if str(path) == "-" else path for path in (file, out))  # as everywhere: the pipes
    if file:
        return of_file(job, file, out, bulk, doing)
    refuse_bulk(bulk, lines_come=not text)
    pipeline = job.pipeline()

    def work(texts: Sequence[str], numbers: Sequence[int]) -> list[bytes]:
        return job.work(pipeline, texts, numbers)

    token_counter = job.token_counter()
    if text:
        write(of_texts(token_counter, work, text), out, job.header)
        tell_of_long(job, token_counter.long)
        return pipeline
    refused = list["FailedLine"]()
    skipped = refused if job.skips_by_default or getattr(bulk, "skip_errors", False) else None
    write(of_standard_input(job, work, skipped, token_counter), out, job.header)
    tell_of_refused(refused)
    tell_of_unknown(job, token_counter.unknown)
    tell_of_long(job, token_counter.long)
    return pipeline


def refuse_both(text: Sequence[str] | None, file: Path | None) -> None:
    if text and file:
        raise DataError(f"both a text and --file {file} were given. Give one of them.")


def refuse_bulk(bulk: Bulk, lines_come: bool = False) -> None:
    """Options of large files, where there is none. Lines that come one by one can be skipped as well."""
    for name in bulk.given:
        if not (lines_come and name == "skip_errors"):
            option = "--" + name.replace("_", "-")
            raise ConfigError(f"{option} is for a file that is worked line by line (--file). Leave it out.")


def of_texts(token_counter: TokenCounter, work: LineProcessor, texts: Sequence[str]) -> list[bytes]:
    """In batches, as the lines of a file: they may be many."""
    from cutaway.bulk.runner import BATCH_TOKENS
    from cutaway.bulk.windows import LineWindow, make_batches

    found: dict[int, bytes] = {}
    for batch in make_batches(LineWindow(0, list(texts), ""), token_counter(texts), BATCH_TOKENS):
        found.update(zip(batch.numbers, work(batch.texts, batch.numbers), strict=True))
    return [found[number] for number in range(len(texts))]


def of_standard_input(
    job: RunJob, work: LineProcessor, skipped: list[FailedLine] | None, token_counter: TokenCounter
) -> Iterator[bytes]:
    """As they come. Lines that cannot be worked are noted in `skipped`; without it, they are an error."""
    from cutaway.bulk.windows import FailedLine, LineBatch
    from cutaway.bulk.workers import process_batch

    for number, line in enumerate(lines_of_standard_input()):
        [result] = process_batch(work, LineBatch([number], [line]))
        token_counter([line])  # which takes note of it
        if isinstance(result, FailedLine):
            if skipped is None:
                hint = " Mend the line, or have such lines skipped (--skip-errors)." if job.can_skip else ""
                raise DataError(f"standard input, line {number + 1}: {result.reason}{hint}")
            skipped.append(result)
            result = job.placeholder(result)
        yield result


def lines_of_standard_input() -> Iterator[str]:
    from cutaway.data.corpus import decoded_lines

    if sys.stdin.isatty():
        say("Type a line and press Enter; Ctrl-D ends.")
    return decoded_lines(sys.stdin.buffer, "standard input")


def of_file(job: RunJob, file: Path, out: Path | None, bulk: Bulk, doing: str) -> None:
    """All lines, by as many processes as are worth it; what is done survives whatever happens."""
    from cutaway.bulk.runner import run_job
    from cutaway.cli.bulk_progress import BulkProgress

    try:
        with BulkProgress(doing, hidden=out is None and sys.stdout.isatty()) as progress:
            report = run_job(job, file, out or sys.stdout.buffer, **bulk.given, on_progress=progress)
    except KeyboardInterrupt:
        kept = " What is done is kept: the same command goes on where it was." if out and progress.done else ""
        raise Interrupted(f"stopped.{kept}") from None
    tell_of_speed(progress.worked, progress.seconds)
    tell_of_refused(report.failed)
    tell_of_unknown(job, report.unknown)
    tell_of_long(job, report.long)


def tell_of_unknown(job: RunJob, unknown: UnknownWords | None) -> None:
    """A word that a translator does not know is translated all the same, as something else."""
    from cutaway.bulk.jobs import TranslationJob

    if unknown and unknown.lines and isinstance(job, TranslationJob):
        many = "1 line has" if unknown.lines == 1 else f"{unknown.lines:,} lines have"
        say(f"Note: {many} something that is not in this model's vocabulary, such as {', '.join(unknown.words)}")


def tell_of_long(job: RunJob, count: int) -> None:
    if told := job.describe_long_texts(count):
        say(f"Note: {told}")


def tell_of_speed(lines: int, seconds: float) -> None:
    if seconds > 10:
        say(f"{lines:,} lines in {clock(seconds)}: {lines / seconds:,.1f} a second.")


def tell_of_refused(refused: Sequence[FailedLine]) -> None:
    if refused:
        many = "1 line" if len(refused) == 1 else f"{len(refused):,} lines"
        say(f"{many} failed. The first, line {refused[0].number + 1}: {refused[0].reason}")


def write(results: Iterable[bytes], out: Path | None, header: FileHeader | None = None) -> None:
    """To a file that is whole or not there at all, or to standard output as they come."""
    if out is None:
        for result in results:
            sys.stdout.buffer.write(result)
            sys.stdout.buffer.flush()
        return
    from cutaway.bulk.runner import check_output
    from cutaway.runs.files import replacing

    check_output(out)
    header_size = header.size if header else 0
    with replacing(out) as temporary, temporary.open("wb") as stream:
        stream.seek(header_size)
        sizes = [stream.write(result) for result in results]
        if header and header_size:
            if not sizes:
                raise DataError("there is no text to make a vector of: standard input is empty.")
            stream.seek(0)
            stream.write(header.to_bytes(len(sizes), sum(sizes)))
