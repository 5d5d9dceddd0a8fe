"""cutaway translate RUN [TEXT]"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cutaway.cli.console import say
from cutaway.config import DecodeConfig, with_given
from cutaway.errors import ConfigError, DataError

if TYPE_CHECKING:
    from cutaway.pipeline import Translator

CHUNK = 2_048  # lines of a file that are sorted by length and translated together


def translate(
    run: Annotated[Path, typer.Argument(help="A run folder, such as runs/demo.")],
    text: Annotated[
        list[str] | None, typer.Argument(help="What to translate. None: standard input, line by line.")
    ] = None,
    file: Annotated[Path | None, typer.Option(help="Translate the lines of this file.")] = None,
    out: Annotated[Path | None, typer.Option(help="Write to this file instead of standard output.")] = None,
    strategy: Annotated[str | None, typer.Option(help="greedy, beam or sample.")] = None,
    beam_size: Annotated[int | None, typer.Option(help="How many beginnings beam search follows.")] = None,
    length_penalty: Annotated[float | None, typer.Option(help="Above 0 favours longer translations.")] = None,
    temperature: Annotated[float | None, typer.Option(help="sample: below 1 safer, above 1 bolder.")] = None,
    top_k: Annotated[int | None, typer.Option(help="sample: draw from the k likeliest tokens only.")] = None,
    top_p: Annotated[float | None, typer.Option(help="sample: draw from the likeliest tokens that make up p.")] = None,
    seed: Annotated[int | None, typer.Option(help="sample: the same seed draws the same text.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, ...")] = "auto",
) -> None:
    """Translate with a trained model.

    Examples:  cutaway translate runs/demo "The small cat sleeps."

               cutaway translate runs/demo --file in.txt --out out.txt

               cat in.txt | cutaway translate runs/demo > out.txt
    """
    if text and file:
        raise DataError(f"both a text and --file {file} were given. Give one of them.")

    from cutaway.data.corpus import decoded_lines
    from cutaway.pipeline import Translator

    translator = Translator.load(run, device)
    decode = with_given(
        translator.config.decode,
        strategy=strategy,
        beam_size=beam_size,
        length_penalty=length_penalty,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        seed=seed,
    )
    refuse_unread("beam", decode.strategy, {"--beam-size": beam_size, "--length-penalty": length_penalty})
    of_sample = {"--temperature": temperature, "--top-k": top_k, "--top-p": top_p, "--seed": seed}
    refuse_unread("sample", decode.strategy, of_sample)
    if text:
        write(translator.translate(text, decode), out)
        if unknown := [word for one in text for word in translator.tokenizer.unknown(one)]:
            say(f"Note: not in this model's vocabulary: {', '.join(unknown)}")
    elif file:
        write(translate_file(translator, file, decode), out)
    else:
        if sys.stdin.isatty():
            say("Type a sentence and press Enter; Ctrl-D ends.")
        lines = decoded_lines(sys.stdin.buffer, "standard input")
        write((translator.translate([line], decode)[0] for line in lines), out)


def refuse_unread(strategy: str, chosen: str, options: Mapping[str, object]) -> None:
    """An option that the chosen strategy does not read is a misunderstanding."""
    given = [name for name, value in options.items() if value is not None]
    if given and chosen != strategy:
        raise ConfigError(
            f"{given[0]} has no effect on strategy {chosen!r}. Add --strategy {strategy}, or leave it out."
        )


def translate_file(translator: Translator, file: Path, decode: DecodeConfig) -> Iterator[str]:
    """The lines of a file in order, a chunk at a time, so that a file of any size fits into memory."""
    from cutaway.cli.console import err
    from cutaway.data.corpus import read_lines

    total = sum(1 for _ in read_lines(file))
    if not total:
        raise DataError(f"{file} is empty: there is nothing to translate.")
    lines, done = read_lines(file), 0
    with err.status("translating ...") as status:
        while chunk := [line for _, line in zip(range(CHUNK), lines, strict=False)]:
            yield from translator.translate(chunk, decode)
            done += len(chunk)
            status.update(f"translated {done:,} of {total:,} lines")


def write(lines: Any, out: Path | None) -> None:
    if out is None:
        for line in lines:
            sys.stdout.write(one_line(line))
            sys.stdout.flush()
        return
    from cutaway.runs import replacing

    with replacing(out) as temporary, temporary.open("w", encoding="utf-8", newline="\n") as stream:
        for line in lines:
            stream.write(one_line(line))


def one_line(text: str) -> str:
    """A line in, a line out: a translation that holds a line break must not shift those that follow."""
    return " ".join(text.splitlines()) + "\n"
