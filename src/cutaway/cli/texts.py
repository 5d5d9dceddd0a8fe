"""What the text commands share: where texts come from, where results go, which options a search reads."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from cutaway.cli.console import err, say
from cutaway.config import DecodeConfig, with_given
from cutaway.errors import ConfigError, DataError

# The options that several commands have in common.
Out = Annotated[Path | None, typer.Option(help="Write to this file instead of standard output.")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, ...")]
Engine = Annotated[str, typer.Option(help="torch, or numpy, which needs no torch. auto: torch if it is installed.")]
Strategy = Annotated[str | None, typer.Option(help="greedy, beam or sample; default: the run's.")]
BeamSize = Annotated[int | None, typer.Option(help="How many beginnings beam search follows.")]
LengthPenalty = Annotated[float | None, typer.Option(help="Above 0 favours longer texts.")]
Temperature = Annotated[float | None, typer.Option(help="sample: below 1 safer, above 1 bolder.")]
TopK = Annotated[int | None, typer.Option(help="sample: draw from the k likeliest tokens only.")]
TopP = Annotated[float | None, typer.Option(help="sample: draw from the likeliest tokens that make up p.")]
Seed = Annotated[int | None, typer.Option(help="sample: the same seed draws the same text.")]

CHUNK = 2_048  # lines of a file that are sorted by length and worked together

Result = TypeVar("Result")
Work = Callable[[Sequence[str], int], Sequence[Result]]  # texts, the number of the first of them -> results


def results(work: Work[Result], text: Sequence[str] | None, file: Path | None, doing: str) -> Iterator[Result]:
    """`work` on the given texts, on the lines of a file, or on those of standard input as they come."""
    if text and file:
        raise DataError(f"both a text and --file {file} were given. Give one of them.")
    if text:
        return iter(work(text, 0))
    if file:
        return of_file(work, file, doing)
    return of_standard_input(work)


def of_file(work: Work[Result], file: Path, doing: str) -> Iterator[Result]:
    """The lines of a file in order, a chunk at a time, so that a file of any size fits into memory."""
    from cutaway.data.corpus import read_lines

    total = sum(1 for _ in read_lines(file))
    if not total:
        raise DataError(f"{file} is empty: there is nothing to {doing}.")
    lines, done = read_lines(file), 0
    with err.status(f"{doing}: {total:,} lines ...") as status:
        while chunk := [line for _, line in zip(range(CHUNK), lines, strict=False)]:
            yield from work(chunk, done)
            done += len(chunk)
            status.update(f"{doing}: {done:,} of {total:,} lines")


def of_standard_input(work: Work[Result]) -> Iterator[Result]:
    from cutaway.data.corpus import decoded_lines

    if sys.stdin.isatty():
        say("Type a line and press Enter; Ctrl-D ends.")
    for number, line in enumerate(decoded_lines(sys.stdin.buffer, "standard input")):
        yield work([line], number)[0]


def write(lines: Iterable[str], out: Path | None, end: str = "\n") -> None:
    """Each result with its end, to a file that is whole or not there at all, or to standard output as they come."""
    if out is None:
        for line in lines:
            sys.stdout.write(line + end)
            sys.stdout.flush()
        return
    if out.is_dir():
        raise DataError(f"--out {out} is a folder. Give the name of a file.")
    from cutaway.runs import replacing

    with replacing(out) as temporary, temporary.open("w", encoding="utf-8", newline="\n") as stream:
        for line in lines:
            stream.write(line + end)


def one_line(text: str) -> str:
    """A line in, a line out: a result that holds a line break must not shift those that follow."""
    return " ".join(text.splitlines())


OF_BEAM = ("beam_size", "length_penalty")
OF_SAMPLE = ("temperature", "top_k", "top_p", "seed")


def decode_settings(config: DecodeConfig, **given: Any) -> DecodeConfig:
    """The run's way of decoding, with what the command line was given on top."""
    decode: DecodeConfig = with_given(config, **given)
    refuse_unread("beam", decode.strategy, OF_BEAM, given)
    refuse_unread("sample", decode.strategy, OF_SAMPLE, given)
    return decode


def refuse_unread(strategy: str, chosen: str, names: Sequence[str], given: Mapping[str, Any]) -> None:
    """An option that the chosen strategy does not read is a misunderstanding."""
    unread = [name for name in names if given.get(name) is not None]
    if unread and chosen != strategy:
        option = "--" + unread[0].replace("_", "-")
        raise ConfigError(f"{option} has no effect on strategy {chosen!r}. Add --strategy {strategy}, or leave it out.")
