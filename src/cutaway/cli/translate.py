"""cutaway translate RUN [TEXT]"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cutaway.cli.console import say
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


def translate(
    run: Annotated[Path, typer.Argument(help="A run folder, such as runs/demo.")],
    text: Annotated[
        list[str] | None, typer.Argument(help="What to translate. None: standard input, line by line.")
    ] = None,
    file: Annotated[Path | None, typer.Option(help="Translate the lines of this file.")] = None,
    out: Out = None,
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
    """Translate with a trained model.

    Examples:  cutaway translate runs/demo "The small cat sleeps."

               cutaway translate runs/demo --file in.txt --out out.txt

               cutaway translate runs/demo "The small cat sleeps." --engine numpy

               cat in.txt | cutaway translate runs/demo > out.txt
    """
    from cutaway.pipeline import Translator

    translator = Translator.load(run, device, engine=engine)
    decode = decode_settings(
        translator.config.decode,
        strategy=strategy,
        beam_size=beam_size,
        length_penalty=length_penalty,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        seed=seed,
    )
    translated = results(lambda texts, first: translator.translate(texts, decode, first), text, file, "translate")
    write(map(one_line, translated), out)
    if unknown := dict.fromkeys(word for one in text or () for word in translator.tokenizer.unknown(one)):
        say(f"Note: not in this model's vocabulary: {', '.join(unknown)}")
