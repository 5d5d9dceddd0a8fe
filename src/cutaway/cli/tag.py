"""cutaway tag RUN [TEXT]"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from cutaway.cli.console import out as terminal
from cutaway.cli.options import Json, Out, SkippingBulk, TorchMachine, spread
from cutaway.cli.texts import carry_out, lines_of_standard_input, refuse_both, refuse_bulk
from cutaway.data.lines import read_lines
from cutaway.errors import ConfigError, DataError

if TYPE_CHECKING:
    from cutaway.inference.pipelines import Tagger

# the terminal's own colours, which suit its background; told apart by weight and slant as well
COLOURS = ("bright_black italic", "bold yellow", "bold blue", "default", "magenta", "cyan", "green", "red")
PIECE = 12  # lines of a file of code that are read together, as in training


@spread
def tag(
    run: Annotated[Path, typer.Argument(help="A run folder, such as runs/python-tagger.")],
    bulk: SkippingBulk,
    machine: TorchMachine,
    text: Annotated[list[str] | None, typer.Argument(help="What to tag. None: standard input, line by line.")] = None,
    file: Annotated[Path | None, typer.Option(help="Tag this file: its lines, or for code the whole of it.")] = None,
    out: Out = None,
    colour: Annotated[
        bool | None, typer.Option(help="Show the text in colours instead of a table. Default: on a terminal.")
    ] = None,
    json: Json = False,
) -> None:
    """Give every word a tag.

    Prints a line for each word: word, tab, tag, with a blank line after each text; on a terminal, the text
    in colours; with --json, an object for each text.

    Examples:  cutaway tag runs/python-tagger "def area(r): return 3.14 * r  # of a disc"

               cutaway tag runs/python-tagger --file script.py
    """
    from cutaway.bulk.jobs import TaggingJob

    job = TaggingJob(str(run), "auto", machine.device, machine.dtype, json)
    if colour and (out or json):
        other = "--out writes a table" if out else "--json is for programs"
        raise ConfigError(f"--colour is for a terminal, and {other}. Leave one of them out.")
    if file and not text and job.config.data.corpus.startswith("python"):  # whose texts go over several lines
        for name in bulk.given:
            option = "--" + name.replace("_", "-")
            raise ConfigError(f"{option} has no effect: a file of code is tagged as a whole. Leave it out.")
        text, file = pieces_of_code(file), None
    if terminal.is_terminal and out is None and not json if colour is None else colour:
        refuse_both(text, file)
        refuse_bulk(bulk)
        show(job.pipeline(), text or (read_lines(file) if file else lines_of_standard_input()))
    else:
        carry_out(job, text, file, out, bulk, "tag")


def pieces_of_code(file: Path) -> list[str]:
    """A file in pieces that begin where a line is not indented, as far as possible, and are not too long."""
    pieces: list[list[str]] = [[]]
    for line in read_lines(file):
        begins = bool(re.match(r"[^\s)\]}]", line))
        if pieces[-1] and (len(pieces[-1]) >= PIECE or (begins and not pieces[-1][-1].strip())):
            pieces.append([])
        pieces[-1].append(line)
    if not any(map(str.strip, pieces[0])) and len(pieces) == 1:
        raise DataError(f"{file} is empty: there is nothing to tag.")
    return ["\n".join(piece) for piece in pieces]


def show(tagger: Tagger, texts: Iterable[str]) -> None:
    """Each text in the colours of its tags, and what the colours mean."""
    kinds = sorted({tag.removeprefix("B-").removeprefix("I-") for tag in tagger.labels} - {"O"})
    colour_of = {kind: COLOURS[i % len(COLOURS)] for i, kind in enumerate(kinds)}
    for text in texts:
        shown, place = Text(text), 0
        words = tagger.words(text)
        for word, tag in zip(words, tagger.tag([words])[0], strict=True):
            place = text.index(word, place) + len(word)
            shown.stylize(colour_of.get(tag.removeprefix("B-").removeprefix("I-"), ""), place - len(word), place)
        terminal.print(shown)
    terminal.print(Text("  ").join(Text(kind, colour_of[kind]) for kind in kinds))
