"""cutaway generate RUN [TEXT]"""

from __future__ import annotations

from typing import Annotated

import typer

from cutaway.cli.console import out as terminal
from cutaway.cli.options import (
    TEXT,
    DecodingOptions,
    EngineOptions,
    File,
    Out,
    OutputOptions,
    Run,
    SkippingBulkOptions,
    expand_groups,
    option,
)
from cutaway.cli.streaming import should_stream, stream_texts
from cutaway.cli.texts import run_job_on_input


@expand_groups
def generate(
    run: Run,
    decoding: DecodingOptions,
    output: OutputOptions,
    bulk: SkippingBulkOptions,
    engine: EngineOptions,
    text: Annotated[
        list[str] | None,
        typer.Argument(help='Texts to continue; "" for none. Default: lines of standard input.', metavar="TEXT"),
    ] = None,
    file: File = None,
    out: Out = None,
    max_length: Annotated[int | None, option("At most N new tokens. Default: 200.", TEXT, min=1, metavar="N")] = None,
) -> None:
    """Continue texts.

    Examples:  cutaway generate runs/python-gpt "def read_lines(path):"
               cutaway generate runs/python-gpt "" --max-length 100 --seed 7
               cutaway generate runs/python-gpt "import " --choice os --choice sys

    --file uses all cores. Run an interrupted command again to resume: docs/bulk.md. An output may have several lines,
    but for a line of a file it is one line.
    """
    from cutaway.bulk.formats import OutputFormat
    from cutaway.bulk.jobs import TextGenerationJob
    from cutaway.runs import RunFolder

    config = RunFolder(run).require().read_config()
    decode = decoding.decode_config(config, max_length=max_length)
    output_format = OutputFormat(output.n_best, output.scores, json=output.json)
    job = TextGenerationJob(
        *(str(run), engine.engine, engine.device, engine.dtype, decode),
        output_format=output_format,
        lines_in=not text,
        **decoding.job_options,
    )
    by_default = terminal.is_terminal and len(text or ()) == 1 and decode.strategy != "beam"
    if should_stream(output, job, output_format, text, out, by_default):
        stream_texts(job, text or [], file, bulk)
        return
    run_job_on_input(job, text, file, out, bulk, "generate")
