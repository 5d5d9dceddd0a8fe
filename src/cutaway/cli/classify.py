"""cutaway classify RUN [TEXT]"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cutaway.cli.texts import Device, Out, results, write
from cutaway.errors import ConfigError, DataError

if TYPE_CHECKING:
    from cutaway.pipeline import Classifier


def classify(
    run: Annotated[Path, typer.Argument(help="A run folder, such as runs/python-expressions.")],
    text: Annotated[
        list[str] | None, typer.Argument(help="What to classify. None: standard input, line by line.")
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option(help="Classify the lines of this file, or the images in a .npy file."),
    ] = None,
    out: Out = None,
    top: Annotated[int, typer.Option(help="So many labels for each, likeliest first.")] = 1,
    device: Device = "auto",
) -> None:
    """Give a text, or an image, one of the labels that a model was trained on.

    Prints a line for each: label, tab, probability; with --top more of them.

    Examples:  cutaway classify runs/python-expressions "len(a) + b[0]"

               cutaway classify runs/digits-vit --file images.npy --top 3
    """
    if top < 1:
        raise ConfigError(f"--top {top} leaves no label to print. Give at least 1.")
    from cutaway.pipeline import Classifier

    classifier = Classifier.load(run, device)

    def lines(examples: Sequence[object], first: int = 0) -> list[str]:
        return [line_of(classifier, row, top) for row in classifier.probabilities(examples)]

    if classifier.config.model.family == "vision":
        write(lines(read_images(file, text)), out)
    else:
        write(results(lines, text, file, "classify"), out)


def line_of(classifier: Classifier, probabilities: Sequence[float], top: int) -> str:
    best = sorted(zip(probabilities, classifier.labels, strict=True), reverse=True)[:top]
    return "\t".join(f"{label}\t{probability:.4f}" for probability, label in best)


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
