"""Texts shown while they are being written."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cutaway.cli.options import Bulk, Printing
from cutaway.cli.texts import refuse_both, refuse_bulk
from cutaway.errors import ConfigError

if TYPE_CHECKING:
    from cutaway.bulk.formats import OutputFormat
    from cutaway.bulk.jobs import GenerationJob


def streams(
    printing: Printing,
    job: GenerationJob,
    output_format: OutputFormat,
    text: Sequence[str] | None,
    out: Path | None,
    wanted: bool = False,
) -> bool:
    """Whether texts are shown piece by piece: if that was asked for, or is wanted and nothing stands against it."""
    from cutaway.search.request import BEAM_IS_DEAF

    if printing.stream and job.decode.strategy == "beam":
        raise ConfigError(BEAM_IS_DEAF)
    against = [] if text else ["a file or standard input"]
    against += ["--out"] if out else []
    plain = type(output_format)()
    against += [
        f"--{name.replace('_', '-')}" for name, value in vars(output_format).items() if value != getattr(plain, name)
    ]
    if printing.stream and against:
        raise ConfigError(f"--stream does not go together with {against[0]}. Leave one of them out.")
    return not against and (wanted if printing.stream is None else printing.stream)


def streamed(job: GenerationJob, texts: Sequence[str], file: Path | None, bulk: Bulk) -> None:
    """Each text, with what comes after it if it is a beginning, and a line end."""
    from cutaway.inference.pipelines import TextGenerator

    refuse_both(texts, file)
    refuse_bulk(bulk)
    writer = job.pipeline()
    for number, text in enumerate(texts):
        if isinstance(writer, TextGenerator):
            print_at_once(text)
        for piece in writer.stream(text, job.decode, job.prefix, job.stops, job.choices or None, number):
            print_at_once(piece)
        print_at_once("\n")


def print_at_once(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()
