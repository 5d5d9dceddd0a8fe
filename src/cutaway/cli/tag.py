"""cutaway tag RUN [TEXT]"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from cutaway.cli.console import out as terminal
from cutaway.cli.texts import Device, Out, results, write
from cutaway.errors import DataError

if TYPE_CHECKING:
    from cutaway.pipeline import Tagger

# the terminal's own colours, which suit its background; told apart by weight and slant as well
COLOURS = ("bright_black italic", "bold yellow", "bold blue", "default", "magenta", "cyan", "green", "red")
PIECE = 12  # lines of a file of code that are read together, as in training


def tag(
    run: Annotated[Path, typer.Argument(help="A run folder, such as runs/python-tagger.")],
    text: Annotated[list[str] | None, typer.Argument(help="What to tag. None: standard input, line by line.")] = None,
    file: Annotated[Path | None, typer.Option(help="Tag this file: its lines, or for code the whole of it.")] = None,
    out: Out = None,
    colour: Annotated[
        bool | None, typer.Option(help="Show the text in colours instead of a table. Default: on a terminal.")
    ] = None,
    device: Device = "auto",
) -> None:
    """Give every word a tag.

    Prints a line for each word: word, tab, tag, with a blank line after each text; on a terminal, the text in colours.

    Examples:  cutaway tag runs/python-tagger "def area(r): return 3.14 * r  # of a disc"

               cutaway tag runs/python-tagger --file script.py
    """
    from cutaway.pipeline import Tagger

    tagger = Tagger.load(run, device)
    if file and not text and tagger.reads_code:
        text, file = pieces_of_code(file), None
    in_colour = terminal.is_terminal and out is None if colour is None else colour
    if in_colour:
        show(tagger, results(lambda texts, first: texts, text, file, "tag"))
        return

    def tables(texts: Sequence[str], first: int) -> list[str]:
        words = [tagger.words(one) for one in texts]
        return [table(*row) for row in zip(words, tagger.tag(words), strict=True)]

    write(results(tables, text, file, "tag"), out)


def table(words: Sequence[str], tags: Sequence[str]) -> str:
    """A line each; a word that is a line break is written as such."""
    return "".join(f"{word.encode('unicode_escape').decode() if word.isspace() else word}\t{tag}\n"
                   for word, tag in zip(words, tags, strict=True))  # fmt: skip


def pieces_of_code(file: Path) -> list[str]:
    """A file in pieces that begin where a line is not indented, as far as possible, and are not too long."""
    from cutaway.data.corpus import read_lines

    pieces: list[list[str]] = [[]]
    for line in read_lines(file):
        begins = bool(re.match(r"[^\s)\]}]", line))
        if pieces[-1] and (len(pieces[-1]) >= PIECE or (begins and not pieces[-1][-1].strip())):
            pieces.append([])
        pieces[-1].append(line)
    if not any(map(str.strip, pieces[0])) and len(pieces) == 1:
        raise DataError(f"{file} is empty: there is nothing to tag.")
    return ["\n".join(piece) for piece in pieces]


def show(tagger: Tagger, texts: Iterator[str]) -> None:
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
