"""cutaway classify RUN [TEXT]"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cutaway.cli.options import Json, Out, SkippingBulk, TorchMachine, spread
from cutaway.cli.texts import carry_out, refuse_both, refuse_bulk, write
from cutaway.errors import ConfigError, DataError

BATCH = 64  # images that are looked at together


@spread
def classify(
    run: Annotated[Path, typer.Argument(help="A run folder, such as runs/python-expressions.")],
    bulk: SkippingBulk,
    machine: TorchMachine,
    text: Annotated[
        list[str] | None,
        typer.Argument(help="What to classify: texts, or image files. None: standard input, line by line."),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option(help="Classify the lines of this file, plain or .gz; or the images in a .npz or .npy file."),
    ] = None,
    out: Out = None,
    top: Annotated[int, typer.Option(help="So many labels for each, likeliest first.")] = 1,
    json: Json = False,
) -> None:
    """Give a text, or an image, one of the labels that a model was trained on.

    Prints a line for each: label, tab, probability; with --top more of them; with --json, an object.

    Examples:  cutaway classify runs/python-expressions "len(a) + b[0]"

               cutaway classify runs/digits-vit digit.png --top 3

               cutaway classify runs/digits-vit --file images.npz

    Arrays are [N,H,W] or [N,C,H,W], bytes or fractions from 0 to 1; of a .npz file, its `images`. An image file (PNG,
    JPEG, ...) is turned to the model's channels and scaled to its size.
    """
    if top < 1:
        raise ConfigError(f"--top {top} leaves no label to print. Give at least 1.")
    from cutaway.bulk.jobs import ClassificationJob
    from cutaway.data.image_input import split_images
    from cutaway.runs import RunFolder

    job = ClassificationJob(str(run), "auto", machine.device, machine.dtype, top, json)
    model = RunFolder(run).require().read_config().model
    if model.family == "vision":
        refuse_bulk(bulk)
        refuse_both(text, file)
        if not (text or file):
            raise DataError("this run reads images. Give image files, or --file with a .npz or .npy file of arrays.")
        images, classifier = split_images(text or [file], model), job.pipeline()
        places = (range(start, min(start + BATCH, len(images))) for start in range(0, len(images), BATCH))
        write((line for place in places for line in job.work(classifier, [images[i] for i in place], place)), out)
    else:
        carry_out(job, text, file, out, bulk, "classify")
