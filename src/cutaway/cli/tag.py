"""cutaway tag RUN [TEXT]"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from cutaway.cli.console import out as terminal
from cutaway.cli.options import JsonLines, Out, Run, SkippingBulkOptions, TorchOptions, expand_groups
from cutaway.cli.texts import read_standard_input, reject_bulk_options, reject_text_and_file, run_job_on_input
from cutaway.data.lines import read_lines
from cutaway.errors import ConfigError, DataError

if TYPE_CHECKING:
    from cutaway.inference.pipelines import Tagger

# colours of the terminal's palette; weight and slant also tell them apart
COLOURS = ("bright_black italic", "bold yellow", "bold blue", "default", "magenta", "cyan", "green", "red")
CODE_LINES = 12  # lines of code in one text, as in training


@expand_groups
def tag(
    run: Run,
    bulk: SkippingBulkOptions,
    engine: TorchOptions,
    text: Annotated[
        list[str] | None, typer.Argument(help="Texts to tag. Default: lines of standard input.", metavar="TEXT")
    ] = None,
    file: Annotated[
        Path | None, typer.Option(help="Read the lines of this file; code is read as a whole.", metavar="FILE")
    ] = None,
    out: Out = None,
    colour: Annotated[bool | None, typer.Option(help="Colours instead of a table. Default: on a terminal.")] = None,
    json: JsonLines = False,
) -> None:
    """Tag every word of a text.

    Examples:  cutaway tag runs/python-tagger "def area(r): return 3.14 * r"
               cutaway tag runs/python-tagger --file script.py

    Prints word, tab, tag, one line for each word, and a blank line after each text. On a terminal, prints the text in
    colours.
    """
    from cutaway.bulk.jobs import TaggingJob

    job = TaggingJob(str(run), "auto", engine.device, engine.dtype, json)
    if colour and (out or json):
        other = "--out writes a table" if out else "--json is for programs"
        raise ConfigError(f"--colour is for a terminal, and {other}. Leave one of them out.")
    if file and not text and job.config.data.corpus.startswith("python"):  # code: a text has several lines
        for name in bulk.given:
            option = "--" + name.replace("_", "-")
            raise ConfigError(f"{option} has no effect: a file of code is tagged as a whole. Leave it out.")
        text, file = split_code(file), None
    if terminal.is_terminal and out is None and not json if colour is None else colour:
        reject_text_and_file(text, file)
        reject_bulk_options(bulk)
        print_coloured(job.pipeline(), text or (read_lines(file) if file else read_standard_input()))
    else:
        run_job_on_input(job, text, file, out, bulk, "tag")


def split_code(file: Path) -> list[str]:
    """Split a file into texts of at most CODE_LINES lines, preferably after a blank line before unindented code."""
    texts: list[list[str]] = [[]]
    for line in read_lines(file):
        is_unindented = bool(re.match(r"[^\s)\]}]", line))
        if texts[-1] and (len(texts[-1]) >= CODE_LINES or (is_unindented and not texts[-1][-1].strip())):
            texts.append([])
        texts[-1].append(line)
    if not any(map(str.strip, texts[0])) and len(texts) == 1:
        raise DataError(f"{file} is empty: there is nothing to tag.")
    return ["\n".join(lines) for lines in texts]


def print_coloured(tagger: Tagger, texts: Iterable[str]) -> None:
    """Each text with a colour for each tag, then the legend."""
    kinds = sorted({tag.removeprefix("B-").removeprefix("I-") for tag in tagger.labels} - {"O"})
    colours = {kind: COLOURS[i % len(COLOURS)] for i, kind in enumerate(kinds)}
    for text in texts:
        coloured, end = Text(text), 0
        words = tagger.words(text)
        for word, tag in zip(words, tagger.tag([words])[0], strict=True):
            end = text.index(word, end) + len(word)
            coloured.stylize(colours.get(tag.removeprefix("B-").removeprefix("I-"), ""), end - len(word), end)
        terminal.print(coloured)
    terminal.print(Text("  ").join(Text(kind, colours[kind]) for kind in kinds))
