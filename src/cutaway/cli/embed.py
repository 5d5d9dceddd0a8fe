"""cutaway embed RUN [TEXT]"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cutaway.cli.options import Bulk, TorchMachine, spread
from cutaway.cli.texts import carry_out, refuse_bulk, write
from cutaway.errors import ConfigError, DataError

if TYPE_CHECKING:
    from cutaway.inference.pipelines import Embedder


@spread
def embed(
    run: Annotated[Path, typer.Argument(help="A run folder, such as runs/minilm.")],
    bulk: Bulk,
    machine: TorchMachine,
    text: Annotated[
        list[str] | None, typer.Argument(help="What to make vectors of. None: standard input, line by line.")
    ] = None,
    file: Annotated[Path | None, typer.Option(help="The lines of this file, plain or .gz.")] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Write to this file: .npy for an array with a row a text, anything else as text."),
    ] = None,
    pooling: Annotated[
        str, typer.Option(help="mean, cls or max. auto: as the model was made for, else the mean.")
    ] = "auto",
    normalize: Annotated[bool, typer.Option(help="Vectors of length 1, so that a dot product is a cosine.")] = True,
    cut: Annotated[
        bool, typer.Option("--cut", help="Of a text that is too long, let the beginning stand for all of it.")
    ] = False,
    prompt: Annotated[
        str | None,
        typer.Option(
            help="Which of the model's prompts to put before each text; '' for none. None: the model's usual."
        ),
    ] = None,
    similar: Annotated[
        bool, typer.Option("--similar", help="Print how alike the texts are, instead of their vectors.")
    ] = False,
) -> None:
    """Make a vector of each text, to compare texts by: those of like meaning lie in like directions.

    Prints a line for each text: a JSON list of numbers. With --similar, the cosine of each pair of the given texts.

    Examples:  cutaway embed runs/minilm "A cat sleeps on the sofa." "A kitten is napping." "Rates rose." --similar

               cutaway embed runs/minilm --file sentences.txt --out vectors.npy
    """
    from cutaway.bulk.jobs import EmbeddingJob

    as_array = out is not None and out.suffix == ".npy"
    job = EmbeddingJob(str(run), "auto", machine.device, machine.dtype, pooling, normalize, cut, as_array, prompt)
    if similar:
        for option, given in {"--file": file, "--out": out, "--no-normalize": None if normalize else True}.items():
            if given is not None:
                raise ConfigError(
                    f"{option} has no effect with --similar, which prints cosines. Leave one of them out."
                )
        refuse_bulk(bulk)
        print_similar(job.pipeline(), text, pooling, cut, prompt)
    else:
        carry_out(job, text, file, out, bulk, "embed")


def print_similar(embedder: Embedder, text: Sequence[str] | None, pooling: str, cut: bool, prompt: str | None) -> None:
    """Each pair of texts, most alike first."""
    import numpy as np

    if not text or len(text) < 2:
        raise DataError(f"--similar compares texts, and {len(text or ())} was given. Give two or more.")
    vectors = np.array(embedder.embed(text, pooling, cut=cut, prompt=prompt))
    cosines = vectors @ vectors.T
    pairs = sorted(((cosines[i, j], i, j) for i in range(len(text)) for j in range(i)), reverse=True)
    write((f"{cosine:.4f}\t{text[j]}\t{text[i]}\n".encode() for cosine, i, j in pairs), None)
