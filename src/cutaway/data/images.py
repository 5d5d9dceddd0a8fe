"""Pictures from .npz files: `images` [N, H, W] or [N, C, H, W], whole numbers from 0 to 255 or fractions from 0 to 1,
and `labels` [N], numbers or strings:

np.savez("train.npz", images=images, labels=labels)
"""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cutaway.data.examples import LabelledImage
from cutaway.data.lazy import LazyExamples, Lengths
from cutaway.errors import DataError

HOW = 'Write it with np.savez("train.npz", images=images, labels=labels)'


class ImageExamples(LazyExamples[LabelledImage]):
    """The arrays of a file as examples. They stay as small as they were until one is asked for."""

    def __init__(self, images_NCHW: NDArray[Any], labels: NDArray[Any]):
        self.images_NCHW, self.labels = images_NCHW, labels

    def __len__(self) -> int:
        return len(self.labels)

    def example(self, number: int) -> LabelledImage:
        return LabelledImage(unit_pixels(self.images_NCHW[number]), str(self.labels[number]))

    def all_lengths(self) -> Lengths:
        return np.ones((len(self), 1), np.int64)


def unit_pixels(images: NDArray[Any]) -> NDArray[np.float32]:
    """The numbers that a model reads, from 0 (black) to 1 (white): of bytes x / 255, of fractions x itself.

    The one place that decides it, in training and after: what `model.pixels = "unit"` in a run stands for. Runs that
    do not have the field were all trained so.
    """
    return images.astype(np.float32) / np.float32(255 if images.dtype == np.uint8 else 1)


def check_pixels(images: NDArray[Any], found: str) -> None:
    """Whether it is certain what is black and what is white. `found`: what was given, to begin the message with."""
    if images.dtype != np.uint8 and images.dtype.kind != "f":
        raise DataError(f"{found}. Expected uint8 from 0 to 255, or fractions from 0 to 1.")
    if images.dtype.kind == "f" and images.size and not (images.min() >= 0 and images.max() <= 1):
        raise DataError(
            f"{found}, from {images.min():g} to {images.max():g}. Expected uint8 from 0 to 255, or fractions from 0 to "
            "1: images / images.max()."
        )


def read_images(path: str | Path) -> ImageExamples:
    path = Path(path)
    images, labels = read_array(path, "images"), read_array(path, "labels")
    _check_images(images, path)
    if labels.ndim != 1 or len(labels) != len(images) or labels.dtype.kind not in "iuU":
        raise DataError(
            f"{path}: the labels are {labels.dtype} {list(labels.shape)}. Expected [{len(images)}], a whole number or "
            "a string for each image."
        )
    if not len(images):
        raise DataError(f"{path} is empty. A corpus needs at least one image.")
    return ImageExamples(images[:, None] if images.ndim == 3 else images, labels)


def read_array(path: Path, name: str) -> NDArray[Any]:
    """One array of a .npz file. Nothing in it is unpickled."""
    if not path.is_file():
        raise DataError(f"there is no file {str(path)!r} (looked in {Path.cwd()}).")
    if not zipfile.is_zipfile(path):  # else numpy would take it for a pickle
        raise DataError(f"{path} is no .npz file, or not a whole one. {HOW}.")
    try:
        with np.load(path, allow_pickle=False) as file:
            if name not in file:
                raise DataError(f"{path} holds {', '.join(file) or 'nothing'}, but no {name}. {HOW}.")
            return file[name]
    except ValueError as error:
        if isinstance(error, DataError):
            raise
        if "pickle" in str(error):
            raise DataError(
                f"{path}: {name} holds Python objects, which would have to be unpickled, and that can run any code. "
                f"Make it an array of numbers{' or strings' if name == 'labels' else ''} first. {HOW}."
            ) from None
        raise DataError(f"{path} cannot be read: {error}. {HOW}.") from None
    except (OSError, EOFError, zipfile.BadZipFile) as error:
        raise DataError(f"{path} is not a whole .npz file: {error}. {HOW}.") from None


def _check_images(images: NDArray[Any], path: Path) -> None:
    found = f"{path}: the images are {images.dtype} {list(images.shape)}"
    if images.ndim not in (3, 4):
        raise DataError(f"{found}. Expected [N, H, W] or [N, C, H, W].")
    if images.ndim == 4 and images.shape[1] > 4 >= images.shape[3]:
        raise DataError(f"{found}: the channels come last. Expected [N, C, H, W]: images.transpose(0, 3, 1, 2).")
    check_pixels(images, found)
