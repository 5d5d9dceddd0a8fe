"""cutaway classify RUN [TEXT]"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cutaway.cli.options import JsonLines, Out, Run, SkippingBulkOptions, TorchOptions, expand_groups
from cutaway.cli.texts import reject_bulk_options, reject_text_and_file, run_job_on_input, write_results
from cutaway.errors import ConfigError, DataError

BATCH = 64  # images


@expand_groups
def classify(
    run: Run,
    bulk: SkippingBulkOptions,
    engine: TorchOptions,
    text: Annotated[
        list[str] | None,
        typer.Argument(help="Texts or image files. Default: lines of standard input.", metavar="TEXT"),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option(help="Read the lines of this file, plain or .gz; or images: .npz, .npy.", metavar="FILE"),
    ] = None,
    out: Out = None,
    top: Annotated[int, typer.Option(help="The N most probable labels.", metavar="N")] = 1,
    json: JsonLines = False,
) -> None:
    """Classify texts or images.

    Examples:  cutaway classify runs/python-expressions "len(a) + b[0]"
               cutaway classify runs/digits-vit digit.png --top 3
               cutaway classify runs/digits-vit --file images.npz

    Prints label, tab, probability, one line for each input.

    An image file (PNG, JPEG, ...) is converted to the model's size and channels. An array has the shape [N, H, W] or
    [N, C, H, W], with bytes or numbers from 0 to 1. In a .npz file it is called `images`.
    """
    if top < 1:
        raise ConfigError(f"--top {top} prints no label. Give at least 1.")
    from cutaway.bulk.jobs import ClassificationJob
    from cutaway.data.image_input import split_images
    from cutaway.runs import RunFolder

    job = ClassificationJob(str(run), "auto", engine.device, engine.dtype, top, json)
    model = RunFolder(run).require().read_config().model
    if model.family == "vision":
        reject_bulk_options(bulk)
        reject_text_and_file(text, file)
        if not (text or file):
            raise DataError("this run reads images. Give image files, or --file with a .npz or .npy file of arrays.")
        images, classifier = split_images(text or [file], model), job.pipeline()
        batches = (range(start, min(start + BATCH, len(images))) for start in range(0, len(images), BATCH))
        lines = (line for batch in batches for line in job.work(classifier, [images[i] for i in batch], batch))
        write_results(lines, out)
    else:
        run_job_on_input(job, text, file, out, bulk, "classify")
