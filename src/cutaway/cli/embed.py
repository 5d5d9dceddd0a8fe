"""cutaway embed RUN [TEXT]"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cutaway.cli.options import BulkOptions, File, Run, TorchOptions, expand_groups
from cutaway.cli.texts import reject_bulk_options, run_job_on_input, write_results
from cutaway.errors import ConfigError, DataError

if TYPE_CHECKING:
    from cutaway.inference.pipelines import Embedder


@expand_groups
def embed(
    run: Run,
    bulk: BulkOptions,
    engine: TorchOptions,
    text: Annotated[
        list[str] | None, typer.Argument(help="Texts to embed. Default: lines of standard input.", metavar="TEXT")
    ] = None,
    file: File = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Write to this file. .npy: an array with a row for each text.", metavar="FILE"),
    ] = None,
    pooling: Annotated[
        str, typer.Option(help="mean, cls or max. Default: as the model was made for.", show_default=False)
    ] = "auto",
    normalize: Annotated[bool, typer.Option(help="Scale vectors to length 1. Default: on.")] = True,
    cut: Annotated[bool, typer.Option("--cut", help="Embed the beginning of a text that is too long.")] = False,
    prompt: Annotated[
        str | None,
        typer.Option(help="A prompt of the model, put before each text; '': none. Default: as in the model."),
    ] = None,
    similar: Annotated[
        bool, typer.Option("--similar", help="Print the cosine similarity of each pair of texts.")
    ] = False,
) -> None:
    """Compute a vector for each text, to compare texts.

    Examples:  cutaway embed runs/minilm "A cat sleeps." "A kitten naps." --similar
               cutaway embed runs/minilm --file sentences.txt --out vectors.npy

    Prints a JSON list of numbers, one line for each text.
    """
    from cutaway.bulk.jobs import EmbeddingJob

    as_array = out is not None and out.suffix == ".npy"
    job = EmbeddingJob(str(run), "auto", engine.device, engine.dtype, pooling, normalize, cut, as_array, prompt)
    if similar:
        for option, given in {"--file": file, "--out": out, "--no-normalize": None if normalize else True}.items():
            if given is not None:
                raise ConfigError(
                    f"{option} has no effect with --similar, which prints cosines. Leave one of them out."
                )
        reject_bulk_options(bulk)
        print_similarities(job.pipeline(), text, pooling, cut, prompt)
    else:
        run_job_on_input(job, text, file, out, bulk, "embed")


def print_similarities(
    embedder: Embedder, text: Sequence[str] | None, pooling: str, cut: bool, prompt: str | None
) -> None:
    """Each pair of texts, most similar first."""
    import numpy as np

    if not text or len(text) < 2:
        raise DataError(f"--similar compares texts, and {len(text or ())} was given. Give two or more.")
    vectors = np.array(embedder.embed(text, pooling, cut=cut, prompt=prompt))
    cosines = vectors @ vectors.T
    pairs = sorted(((cosines[i, j], i, j) for i in range(len(text)) for j in range(i)), reverse=True)
    write_results((f"{cosine:.4f}\t{text[j]}\t{text[i]}\n".encode() for cosine, i, j in pairs), None)
