"""cutaway generate RUN [TEXT]"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cutaway.cli.texts import decode_settings, one_line, results, write


def generate(
    run: Annotated[Path, typer.Argument(help="A run folder, such as runs/python-gpt.")],
    text: Annotated[
        list[str] | None, typer.Argument(help='What to go on with; "" begins anew. None: standard input, line by line.')
    ] = None,
    file: Annotated[Path | None, typer.Option(help="Go on with each line of this file.")] = None,
    out: Annotated[Path | None, typer.Option(help="Write to this file instead of standard output.")] = None,
    max_tokens: Annotated[int | None, typer.Option(help="How many tokens to write at most. Default: 200.")] = None,
    strategy: Annotated[str | None, typer.Option(help="greedy, beam or sample; default: the run's.")] = None,
    beam_size: Annotated[int | None, typer.Option(help="How many beginnings beam search follows.")] = None,
    length_penalty: Annotated[float | None, typer.Option(help="Above 0 favours longer texts.")] = None,
    temperature: Annotated[float | None, typer.Option(help="sample: below 1 safer, above 1 bolder.")] = None,
    top_k: Annotated[int | None, typer.Option(help="sample: draw from the k likeliest tokens only.")] = None,
    top_p: Annotated[float | None, typer.Option(help="sample: draw from the likeliest tokens that make up p.")] = None,
    seed: Annotated[int | None, typer.Option(help="sample: the same seed draws the same text.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, ...")] = "auto",
) -> None:
    """Go on with a text.

    Examples:  cutaway generate runs/python-gpt "def read_lines(path):"

               cutaway generate runs/python-gpt "" --max-tokens 100 --temperature 0.8 --seed 7

    A text given here is printed as it is, over several lines if need be. From --file or standard input, a line in is
    a line out.
    """
    given = {
        "strategy": strategy,
        "beam_size": beam_size,
        "length_penalty": length_penalty,
        "temperature": temperature,
        "top_k": top_k,
        "top_p": top_p,
        "seed": seed,
        "max_length": max_tokens,
    }
    from cutaway.pipeline import TextGenerator

    generator = TextGenerator.load(run, device)
    decode = decode_settings(generator.config.decode, given)
    texts = results(lambda prompts: generator.generate(prompts, decode), text, file, "generate")
    write(texts if text else map(one_line, texts), out)
