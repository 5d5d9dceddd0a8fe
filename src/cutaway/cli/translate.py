"""cutaway translate RUN [TEXT]"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cutaway.cli.console import say
from cutaway.cli.options import ANSWER, PRINTED, SEARCH, Machine, Out, Printing, Searching, SkippingBulk, option, spread
from cutaway.cli.texts import carry_out
from cutaway.cli.writing import streamed, streams


@spread
def translate(
    run: Annotated[Path, typer.Argument(help="A run folder, such as runs/demo.")],
    searching: Searching,
    printing: Printing,
    bulk: SkippingBulk,
    machine: Machine,
    text: Annotated[
        list[str] | None, typer.Argument(help="What to translate. None: standard input, line by line.")
    ] = None,
    file: Annotated[Path | None, typer.Option(help="Translate the lines of this file, plain or .gz.")] = None,
    out: Out = None,
    coverage_penalty: Annotated[
        float | None, option("beam: above 0 favours texts that leave nothing of the source out.", SEARCH)
    ] = None,
    max_length: Annotated[
        int | None, option("At most so many tokens. Default: 50 more than the source.", ANSWER, min=1)
    ] = None,
    align: Annotated[
        bool, option("Print text, tab, which word of the source each word is of: 0-0 1-2.", PRINTED, "--align")
    ] = False,
) -> None:
    """Translate with a trained model.

    Examples:  cutaway translate runs/demo "The small cat sleeps."

               cutaway translate runs/demo --file in.txt --out out.txt

               cutaway translate runs/demo "The small cat sleeps." --engine numpy --n-best 4

               cat in.txt | cutaway translate runs/demo > out.txt

    --file uses all cores, and the same command goes on where it was should it be interrupted: docs/bulk.md.
    """
    from cutaway.bulk.formats import OutputFormat
    from cutaway.bulk.jobs import TranslationJob
    from cutaway.runs import RunFolder

    config = RunFolder(run).require().read_config()
    decode = searching.decode(config, coverage_penalty=coverage_penalty, max_length=max_length)
    output_format = OutputFormat(printing.n_best, printing.scores, align, printing.json)
    job = TranslationJob(
        str(run), machine.engine, machine.device, machine.dtype, decode, output_format=output_format, **searching.answer
    )
    if streams(printing, job, output_format, text, out):
        streamed(job, text or [], file, bulk)
        return
    translator = carry_out(job, text, file, out, bulk, "translate")
    if unknown := dict.fromkeys(word for one in text or () for word in translator.tokenizer.unknown(one)):
        say(f"Note: not in this model's vocabulary: {', '.join(unknown)}")
