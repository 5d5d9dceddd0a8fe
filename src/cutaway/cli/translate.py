"""cutaway translate RUN [TEXT]"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cutaway.cli.console import say
from cutaway.cli.texts import decode_settings, one_line, results, write


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
    given = {
        "strategy": strategy,
        "beam_size": beam_size,
        "length_penalty": length_penalty,
        "temperature": temperature,
        "top_k": top_k,
        "top_p": top_p,
        "seed": seed,
    }
    from cutaway.pipeline import Translator

    translator = Translator.load(run, device)
    decode = decode_settings(translator.config.decode, given)
    translated = results(lambda texts: translator.translate(texts, decode), text, file, "translate")
    write(map(one_line, translated), out)
    if unknown := [word for one in text or () for word in translator.tokenizer.unknown(one)]:
        say(f"Note: not in this model's vocabulary: {', '.join(unknown)}")
