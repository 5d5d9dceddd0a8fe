"""cutaway translate RUN [TEXT]"""

from __future__ import annotations

from typing import Annotated

import typer

from cutaway.cli.console import say
from cutaway.cli.options import (
    DECODING,
    OUTPUT,
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
def translate(
    run: Run,
    decoding: DecodingOptions,
    output: OutputOptions,
    bulk: SkippingBulkOptions,
    engine: EngineOptions,
    text: Annotated[
        list[str] | None, typer.Argument(help="Texts to translate. Default: lines of standard input.", metavar="TEXT")
    ] = None,
    file: File = None,
    out: Out = None,
    coverage_penalty: Annotated[
        float | None, option("beam: above 0 favours texts that cover the source.", DECODING, metavar="X")
    ] = None,
    max_length: Annotated[
        int | None, option("At most N tokens. Default: 50 more than the source.", TEXT, min=1, metavar="N")
    ] = None,
    align: Annotated[bool, option("Print text, tab, word alignment: 0-0 1-2.", OUTPUT, "--align")] = False,
) -> None:
    """Translate texts.

    Examples:  cutaway translate runs/demo "The small cat sleeps."
               cutaway translate runs/demo --file in.txt --out out.txt
               cat in.txt | cutaway translate runs/demo > out.txt

    --file uses all cores. Run an interrupted command again to resume: docs/bulk.md.
    """
    from cutaway.bulk.formats import OutputFormat
    from cutaway.bulk.jobs import TranslationJob
    from cutaway.runs import RunFolder

    config = RunFolder(run).require().read_config()
    decode = decoding.decode_config(config, coverage_penalty=coverage_penalty, max_length=max_length)
    output_format = OutputFormat(output.n_best, output.scores, align, output.json)
    job = TranslationJob(
        *(str(run), engine.engine, engine.device, engine.dtype, decode),
        output_format=output_format,
        **decoding.job_options,
    )
    if should_stream(output, job, output_format, text, out):
        stream_texts(job, text or [], file, bulk)
        return
    translator = run_job_on_input(job, text, file, out, bulk, "translate")
    if unknown := dict.fromkeys(word for one in text or () for word in translator.tokenizer.unknown(one)):
        say(f"Note: not in this model's vocabulary: {', '.join(unknown)}")
