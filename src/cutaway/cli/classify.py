"""cutaway classify RUN [TEXT]"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from cutaway.cli.options import Json, Out, SkippingBulk, TorchMachine, spread
from cutaway.cli.texts import carry_out, refuse_bulk, write
from cutaway.errors import ConfigError, DataError

BATCH = 64  # images that are looked at together


@spread
def classify(
    run: Annotated[Path, typer.Argument(help="A run folder, such as runs/python-expressions.")],
    bulk: SkippingBulk,
    machine: TorchMachine,
    text: Annotated[
        list[str] | None, typer.Argument(help="What to classify. None: standard input, line by line.")
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option(help="Classify the lines of this file, plain or .gz; or the images in a .npy file."),
    ] = None,
    out: Out = None,
    top: Annotated[int, typer.Option(help="So many labels for each, likeliest first.")] = 1,
    json: Json = False,
) -> None:
    """Give a text, or an image, one of the labels that a model was trained on.

    Prints a line for each: label, tab, probability; with --top more of them; with --json, an object.

    Examples:  cutaway classify runs/python-expressions "len(a) + b[0]"

               cutaway classify runs/digits-vit --file images.npy --top 3
    """
    if top < 1:
        raise ConfigError(f"--top {top} leaves no label to print. Give at least 1.")
    from cutaway.bulk.jobs import Classifying
    from cutaway.runs import RunFolder

    job = Classifying(str(run), "auto", machine.device, machine.dtype, top, json)
    if RunFolder(run).require().read_config().model.family == "vision":
        refuse_bulk(bulk)
        images, classifier = read_images(file, text), job.pipeline()
        places = (range(start, min(start + BATCH, len(images))) for start in range(0, len(images), BATCH))
        write((line for place in places for line in job.work(classifier, [images[i] for i in place], place)), out)
    else:
        carry_out(job, text, file, out, bulk, "classify")


def read_images(file: Path | None, text: Sequence[str] | None) -> list[object]:
    """The images of a .npy file: [N,H,W] or [N,C,H,W], from 0 to 1."""
    import numpy as np

    if file is None or text:
        raise DataError("this run reads images. Give them as --file images.npy, an array of [N,H,W] or [N,C,H,W].")
    try:
        images = np.load(file, allow_pickle=False)
    except (OSError, ValueError) as error:
        raise DataError(f"{file} is not an array that can be read ({error}). Save one with numpy.save.") from None
    if images.ndim not in (3, 4):
        raise DataError(f"{file} holds an array of shape {list(images.shape)}; expected [N,H,W] or [N,C,H,W].")
    return list(images if images.ndim == 4 else images[:, None])
