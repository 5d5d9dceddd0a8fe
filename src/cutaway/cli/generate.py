"""cutaway generate RUN [TEXT]"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cutaway.cli.texts import (
    BeamSize,
    Device,
    Engine,
    LengthPenalty,
    Out,
    Seed,
    Strategy,
    Temperature,
    TopK,
    TopP,
    decode_settings,
    one_line,
    results,
    write,
)


def generate(
    run: Annotated[Path, typer.Argument(help="A run folder, such as runs/python-gpt.")],
    text: Annotated[
        list[str] | None, typer.Argument(help='What to go on with; "" begins anew. None: standard input, line by line.')
    ] = None,
    file: Annotated[Path | None, typer.Option(help="Go on with each line of this file.")] = None,
    out: Out = None,
    max_tokens: Annotated[int | None, typer.Option(min=1, help="Tokens to write at most. Default: 200.")] = None,
    strategy: Strategy = None,
    beam_size: BeamSize = None,
    length_penalty: LengthPenalty = None,
    temperature: Temperature = None,
    top_k: TopK = None,
    top_p: TopP = None,
    seed: Seed = None,
    engine: Engine = "auto",
    device: Device = "auto",
) -> None:
    """Go on with a text.

    Examples:  cutaway generate runs/python-gpt "def read_lines(path):"

               cutaway generate runs/python-gpt "" --max-tokens 100 --temperature 0.8 --seed 7

    A text given here is printed as it is, over several lines if need be. From --file or standard input, a line in is
    a line out.
    """
    from cutaway.pipeline import TextGenerator

    generator = TextGenerator.load(run, device, engine=engine)
    decode = decode_settings(
        generator.config.decode,
        strategy=strategy,
        beam_size=beam_size,
        length_penalty=length_penalty,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        seed=seed,
        max_length=max_tokens,
    )
    texts = results(lambda prompts, first: generator.generate(prompts, decode, first), text, file, "generate")
    write(texts if text else map(one_line, texts), out)
