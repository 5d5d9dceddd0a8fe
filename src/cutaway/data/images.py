"""Images from .npz files: `images` [N, H, W] or [N, C, H, W], uint8 from 0 to 255 or floats from 0 to 1, and
`labels` [N], integers or strings.

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

SAVE_HINT = 'Write it with np.savez("train.npz", images=images, labels=labels)'


class ImageExamples(LazyExamples[LabelledImage]):
    """The arrays of a file as examples. An image is converted to float when it is accessed."""

    def __init__(self, images_NCHW: NDArray[Any], labels: NDArray[Any]):
        self.images_NCHW, self.labels = images_NCHW, labels

    def __len__(self) -> int:
        return len(self.labels)

    def example(self, number: int) -> LabelledImage:
        return LabelledImage(unit_pixels(self.images_NCHW[number]), str(self.labels[number]))

    def all_lengths(self) -> Lengths:
        return np.ones((len(self), 1), np.int64)


def unit_pixels(images: NDArray[Any]) -> NDArray[np.float32]:
    """Scale pixels to 0 (black) ... 1 (white): uint8 is divided by 255, floats stay unchanged.

    Training and inference both use this function. Runs record it as `model.pixels = "unit"`; runs without that field
    were trained in the same way.
    """
    return images.astype(np.float32) / np.float32(255 if images.dtype == np.uint8 else 1)


def check_pixels(images: NDArray[Any], found: str) -> None:
    """Refuse pixels with an unknown scale. `found`: what was given, the start of the error message."""
    if images.dtype != np.uint8 and images.dtype.kind != "f":
        raise DataError(f"{found}. Expected uint8 from 0 to 255, or floats from 0 to 1.")
    if images.dtype.kind == "f" and images.size and not (images.min() >= 0 and images.max() <= 1):
        raise DataError(
            f"{found}, from {images.min():g} to {images.max():g}. Expected uint8 from 0 to 255, or floats from 0 to 1: "
            "images / images.max()."
        )


def read_images(path: str | Path) -> ImageExamples:
    path = Path(path)
    images, labels = read_array(path, "images"), read_array(path, "labels")
    _check_images(images, path)
    if labels.ndim != 1 or len(labels) != len(images) or labels.dtype.kind not in "iuU":
        raise DataError(
            f"{path}: the labels are {labels.dtype} {list(labels.shape)}. Expected [{len(images)}], an integer or a "
            "string for each image."
        )
    if not len(images):
        raise DataError(f"{path} is empty. A corpus needs at least one image.")
    return ImageExamples(images[:, None] if images.ndim == 3 else images, labels)


def read_array(path: Path, name: str) -> NDArray[Any]:
    """One array of a .npz file, without unpickling."""
    if not path.is_file():
        raise DataError(f"there is no file {str(path)!r} (looked in {Path.cwd()}).")
    if not zipfile.is_zipfile(path):  # numpy would read it as a pickle
        raise DataError(f"{path} is not an .npz file, or it is incomplete. {SAVE_HINT}.")
    try:
        with np.load(path, allow_pickle=False) as file:
            if name not in file:
                raise DataError(f"{path} contains {', '.join(file) or 'nothing'}, but no {name}. {SAVE_HINT}.")
            return file[name]
    except ValueError as error:
        if isinstance(error, DataError):
            raise
        if "pickle" in str(error):
            raise DataError(
                f"{path}: {name} contains Python objects. Unpickling them can run any code, so they are refused. "
                f"Make it an array of numbers{' or strings' if name == 'labels' else ''}. {SAVE_HINT}."
            ) from None
        raise DataError(f"{path} cannot be read: {error}. {SAVE_HINT}.") from None
    except (OSError, EOFError, zipfile.BadZipFile) as error:
        raise DataError(f"{path} is a damaged .npz file: {error}. {SAVE_HINT}.") from None


def _check_images(images: NDArray[Any], path: Path) -> None:
    found = f"{path}: the images are {images.dtype} {list(images.shape)}"
    if images.ndim not in (3, 4):
        raise DataError(f"{found}. Expected [N, H, W] or [N, C, H, W].")
    if images.ndim == 4 and images.shape[1] > 4 >= images.shape[3]:
        raise DataError(f"{found}: the channels are last. Expected [N, C, H, W]: images.transpose(0, 3, 1, 2).")
    check_pixels(images, found)
