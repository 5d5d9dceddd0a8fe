"""Print texts while they are being generated."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cutaway.cli.options import BulkOptions, OutputOptions
from cutaway.cli.texts import reject_bulk_options, reject_text_and_file
from cutaway.errors import ConfigError

if TYPE_CHECKING:
    from cutaway.bulk.formats import OutputFormat
    from cutaway.bulk.jobs import GenerationJob


def should_stream(
    output: OutputOptions,
    job: GenerationJob,
    output_format: OutputFormat,
    text: Sequence[str] | None,
    out: Path | None,
    by_default: bool = False,
) -> bool:
    """Whether to stream: with --stream, or by default if no other option excludes it."""
    from cutaway.search.request import BEAM_CANNOT_STREAM

    if output.stream and job.decode.strategy == "beam":
        raise ConfigError(BEAM_CANNOT_STREAM)
    conflicts = [] if text else ["a file or standard input"]
    conflicts += ["--out"] if out else []
    plain = type(output_format)()
    conflicts += [
        f"--{name.replace('_', '-')}" for name, value in vars(output_format).items() if value != getattr(plain, name)
    ]
    if output.stream and conflicts:
        raise ConfigError(f"--stream cannot be combined with {conflicts[0]}. Leave one of them out.")
    return not conflicts and (by_default if output.stream is None else output.stream)


def stream_texts(job: GenerationJob, texts: Sequence[str], file: Path | None, bulk: BulkOptions) -> None:
    """Print the output for each text, token by token. A text generator's output starts with the given text."""
    from cutaway.inference.pipelines import TextGenerator

    reject_text_and_file(texts, file)
    reject_bulk_options(bulk)
    pipeline = job.pipeline()
    for number, text in enumerate(texts):
        if isinstance(pipeline, TextGenerator):
            print_now(text)
        for piece in pipeline.stream(text, job.decode, job.prefix, job.stops, job.choices or None, number):
            print_now(piece)
        print_now("\n")


def print_now(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()
