"""Images to classify -> pixels [C, H, W], as in training.

    an array [H, W], [N, H, W], [C, H, W] or [N, C, H, W]     uint8, or floats from 0 to 1
    a Pillow image, or the path of an image file              converted to the model's channels and image size
    the path of a .npy or .npz file                           its array; the array `images` of a .npz file
    a list of these, one image each

`unit_pixels` in images.py scales the pixels, also in training.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cutaway.config import ModelConfig
from cutaway.data.images import check_pixels, read_array, unit_pixels
from cutaway.errors import DataError, MissingExtra

MODES = {1: "L", 3: "RGB", 4: "RGBA"}  # channels -> Pillow mode
ARRAY_SUFFIXES = (".npy", ".npz")


def split_images(images: Any, model: ModelConfig) -> Sequence[Any]:
    """A list of single images for `pixels_of`: arrays, Pillow images or paths of image files."""
    if is_path(images) and Path(images).suffix in ARRAY_SUFFIXES:
        return split_array(read_arrays(Path(images)), model)
    if is_path(images) or is_pillow(images):
        return [images]
    if hasattr(images, "ndim"):
        return split_array(images, model)
    return [one for image in images for one in (split_images(image, model) if is_path(image) else [image])]


def split_array(images: Any, model: ModelConfig) -> Sequence[Any]:
    """Three dimensions are one image with channels, or several grey images. The model's channels decide."""
    is_single = images.ndim == 2 or (images.ndim == 3 and model.channels > 1)
    return [images] if is_single else list(images)


def pixels_of(image: Any, model: ModelConfig) -> NDArray[np.float32]:
    """The model input for one image: [C, H, W], from 0 (black) to 1 (white)."""
    if is_path(image):
        image = open_image(Path(image))
    if is_pillow(image):
        image = pillow_to_array(image, model)
    array = np.asarray(image.cpu() if hasattr(image, "cpu") else image)
    expected = [model.channels, model.image_size, model.image_size]
    found = f"the image is {array.dtype} {list(array.shape)}"
    array = array[None] if array.ndim == 2 else array
    if list(array.shape) == [*expected[1:], model.channels] != expected:
        raise DataError(f"{found}: the channels are last. Expected {expected}: image.transpose(2, 0, 1).")
    if list(array.shape) != expected:
        raise DataError(
            f"{found}, but this model reads {expected}. Scale it to that size first, or give an image file."
        )
    check_pixels(array, found)
    return unit_pixels(array)


def is_path(image: Any) -> bool:
    return isinstance(image, str | os.PathLike)


def is_pillow(image: Any) -> bool:
    return hasattr(image, "getbands")


def read_arrays(path: Path) -> NDArray[Any]:
    if path.suffix == ".npz":
        images = read_array(path, "images")
    else:
        try:
            images = np.load(path, allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            raise DataError(f"{path} is not a readable array ({error}). Save it with numpy.save.") from None
    found = f"{path} contains images of {images.dtype} {list(images.shape)}"
    if images.ndim not in (2, 3, 4):
        raise DataError(f"{found}. Expected [N, H, W] or [N, C, H, W].")
    check_pixels(images, found)
    return images


def open_image(path: Path) -> Any:
    """Read an image file of any format that Pillow supports."""
    if not path.is_file():
        raise DataError(f"there is no image file {str(path)!r} (looked in {Path.cwd()}). This model classifies images.")
    try:
        from PIL import Image
    except ImportError:
        raise MissingExtra("Pillow", "show", f"reading {path}", " (or pip install pillow)") from None
    try:
        with Image.open(path) as image:
            image.load()
            return image
    except Exception as error:  # Pillow raises many types of errors for damaged files
        raise DataError(
            f"{path} cannot be read as an image ({error}). Give a PNG or JPEG file, or an array as .npy or .npz."
        ) from None


def pillow_to_array(image: Any, model: ModelConfig) -> NDArray[np.uint8]:
    """uint8 [C, H, W]: rotated by EXIF, converted to the model's channels and scaled to its image size."""
    from PIL import Image, ImageOps

    if model.channels not in MODES:
        raise DataError(
            f"this model reads {model.channels} channels, but image files have {', '.join(map(str, MODES))}. Give an "
            "array [C, H, W]."
        )
    image = ImageOps.exif_transpose(image)
    if image.mode.startswith("I;16"):  # Pillow would clip values at 255
        image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    if image.mode in ("I", "F"):
        raise DataError(
            f"the image has 32-bit pixels (mode {image.mode!r}), so the value of white is not known. "
            "Save it with 8 bits."
        )
    image, size = image.convert(MODES[model.channels]), (model.image_size, model.image_size)
    if image.size != size:
        image = image.resize(size, Image.Resampling[model.resize.upper()])
    pixels = np.asarray(image)
    return pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)
