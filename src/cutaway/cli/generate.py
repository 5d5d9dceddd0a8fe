"""cutaway generate RUN [TEXT]"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cutaway.cli.console import out as terminal
from cutaway.cli.options import ANSWER, Machine, Out, Printing, Searching, SkippingBulk, option, spread
from cutaway.cli.texts import carry_out
from cutaway.cli.writing import streamed, streams


@spread
def generate(
    run: Annotated[Path, typer.Argument(help="A run folder, such as runs/python-gpt.")],
    searching: Searching,
    printing: Printing,
    bulk: SkippingBulk,
    machine: Machine,
    text: Annotated[
        list[str] | None, typer.Argument(help='What to go on with; "" begins anew. None: standard input, line by line.')
    ] = None,
    file: Annotated[Path | None, typer.Option(help="Go on with each line of this file, plain or .gz.")] = None,
    out: Out = None,
    max_tokens: Annotated[int | None, option("Tokens to write at most. Default: 200.", ANSWER, min=1)] = None,
) -> None:
    """Go on with a text.

    Examples:  cutaway generate runs/python-gpt "def read_lines(path):"

               cutaway generate runs/python-gpt "" --max-tokens 100 --temperature 0.8 --seed 7

               cutaway generate runs/python-gpt "import " --choice os --choice sys --scores

    A text given here is printed as it is, over several lines if need be. From --file or standard input, a line in is
    a line out. --file uses all cores, and can be interrupted and go on: docs/bulk.md.
    """
    from cutaway.bulk.formats import OutputFormat
    from cutaway.bulk.jobs import TextGenerationJob
    from cutaway.runs import RunFolder

    config = RunFolder(run).require().read_config()
    decode = searching.decode(config, max_length=max_tokens)
    output_format = OutputFormat(printing.n_best, printing.scores, json=printing.json)
    job = TextGenerationJob(
        *(str(run), machine.engine, machine.device, machine.dtype, decode),
        output_format=output_format,
        lines_in=not text,
        **searching.answer,
    )
    by_default = terminal.is_terminal and len(text or ()) == 1 and decode.strategy != "beam"
    if streams(printing, job, output_format, text, out, by_default):
        streamed(job, text or [], file, bulk)
        return
    carry_out(job, text, file, out, bulk, "generate")
