"""Input and output of the text commands: texts, files or standard input in; a file or standard output out."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cutaway.cli.console import clock, say
from cutaway.cli.options import BulkOptions
from cutaway.errors import ConfigError, DataError, Interrupted

if TYPE_CHECKING:
    from cutaway.bulk.jobs import RunJob, TokenCounter
    from cutaway.bulk.journal import FileHeader
    from cutaway.bulk.unknown_words import UnknownWords
    from cutaway.bulk.windows import FailedLine
    from cutaway.bulk.workers import LineProcessor


def run_job_on_input(
    job: RunJob, text: Sequence[str] | None, file: Path | None, out: Path | None, bulk: BulkOptions, verb: str
) -> Any:
    """Run a job on the given texts, on the lines of a file, or on standard input line by line.

    Returns the pipeline if it was loaded in this process.
    """
    reject_text_and_file(text, file)
    file, out = (None if str(path) == "-" else path for path in (file, out))  # "-": standard input and output
    if file:
        return run_on_file(job, file, out, bulk, verb)
    reject_bulk_options(bulk, reads_lines=not text)
    pipeline = job.pipeline()

    def process(texts: Sequence[str], numbers: Sequence[int]) -> list[bytes]:
        return job.work(pipeline, texts, numbers)

    token_counter = job.token_counter()
    if text:
        write_results(run_on_texts(token_counter, process, text), out, job.header)
        report_long_texts(job, token_counter.long)
        return pipeline
    failed = list["FailedLine"]()
    skipped = failed if job.skips_by_default or getattr(bulk, "skip_errors", False) else None
    write_results(run_on_standard_input(job, process, skipped, token_counter), out, job.header)
    report_failed_lines(failed)
    report_unknown_words(job, token_counter.unknown)
    report_long_texts(job, token_counter.long)
    return pipeline


def reject_text_and_file(text: Sequence[str] | None, file: Path | None) -> None:
    if text and file:
        raise DataError(f"both a text and --file {file} were given. Give one of them.")


def reject_bulk_options(bulk: BulkOptions, reads_lines: bool = False) -> None:
    """Reject options for large files if there is no --file. Lines of standard input can be skipped as well."""
    for name in bulk.given:
        if not (reads_lines and name == "skip_errors"):
            option = "--" + name.replace("_", "-")
            raise ConfigError(f"{option} is for a file that is processed line by line (--file). Leave it out.")


def run_on_texts(token_counter: TokenCounter, process: LineProcessor, texts: Sequence[str]) -> list[bytes]:
    """In batches, like the lines of a file."""
    from cutaway.bulk.runner import BATCH_TOKENS
    from cutaway.bulk.windows import LineWindow, make_batches

    found: dict[int, bytes] = {}
    for batch in make_batches(LineWindow(0, list(texts), ""), token_counter(texts), BATCH_TOKENS):
        found.update(zip(batch.numbers, process(batch.texts, batch.numbers), strict=True))
    return [found[number] for number in range(len(texts))]


def run_on_standard_input(
    job: RunJob, process: LineProcessor, skipped: list[FailedLine] | None, token_counter: TokenCounter
) -> Iterator[bytes]:
    """One result for each line, as it arrives. A line that fails is added to `skipped`; None: it is an error."""
    from cutaway.bulk.windows import FailedLine, LineBatch
    from cutaway.bulk.workers import process_batch

    for number, line in enumerate(read_standard_input()):
        [result] = process_batch(process, LineBatch([number], [line]))
        token_counter([line])  # records long texts and unknown words
        if isinstance(result, FailedLine):
            if skipped is None:
                hint = " Correct the line, or skip such lines with --skip-errors." if job.can_skip else ""
                raise DataError(f"standard input, line {number + 1}: {result.reason}{hint}")
            skipped.append(result)
            result = job.placeholder(result)
        yield result


def read_standard_input() -> Iterator[str]:
    from cutaway.data.corpus import decoded_lines

    if sys.stdin.isatty():
        say("Type a line and press Enter. Ctrl-D ends the input.")
    return decoded_lines(sys.stdin.buffer, "standard input")


def run_on_file(job: RunJob, file: Path, out: Path | None, bulk: BulkOptions, verb: str) -> None:
    """All lines, in several processes. Finished lines survive an interruption."""
    from cutaway.bulk.runner import run_job
    from cutaway.cli.bulk_progress import BulkProgress

    try:
        with BulkProgress(verb, hidden=out is None and sys.stdout.isatty()) as progress:
            report = run_job(job, file, out or sys.stdout.buffer, **bulk.given, on_progress=progress)
    except KeyboardInterrupt:
        kept = " Finished lines are saved. Run the same command again to continue." if out and progress.done else ""
        raise Interrupted(f"stopped.{kept}") from None
    report_speed(progress.done_here, progress.seconds)
    report_failed_lines(report.failed)
    report_unknown_words(job, report.unknown)
    report_long_texts(job, report.long)


def report_unknown_words(job: RunJob, unknown: UnknownWords | None) -> None:
    """A translator reads an unknown word as the unknown token, so the translation is probably wrong."""
    from cutaway.bulk.jobs import TranslationJob

    if unknown and unknown.lines and isinstance(job, TranslationJob):
        lines = "1 line has" if unknown.lines == 1 else f"{unknown.lines:,} lines have"
        say(f"Note: {lines} words that are not in this model's vocabulary, such as {', '.join(unknown.words)}")


def report_long_texts(job: RunJob, count: int) -> None:
    if note := job.describe_long_texts(count):
        say(f"Note: {note}")


def report_speed(lines: int, seconds: float) -> None:
    if seconds > 10:
        say(f"{lines:,} lines in {clock(seconds)}: {lines / seconds:,.1f} lines/s.")


def report_failed_lines(failed: Sequence[FailedLine]) -> None:
    if failed:
        lines = "1 line" if len(failed) == 1 else f"{len(failed):,} lines"
        say(f"{lines} failed. The first, line {failed[0].number + 1}: {failed[0].reason}")


def write_results(results: Iterable[bytes], out: Path | None, header: FileHeader | None = None) -> None:
    """Write to a file atomically, or to standard output one by one."""
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
                raise DataError("standard input is empty: there is no text to embed.")
            stream.seek(0)
            stream.write(header.to_bytes(len(sizes), sum(sizes)))
