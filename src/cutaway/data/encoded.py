"""What an example is once it is ids: one small type for each task. No torch here."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

NO_TAG = -1  # at a token that is no first token of a word: the model is not asked about it


class EncodedPair(NamedTuple):
    source: list[int]
    target: list[int]

    @property
    def lengths(self) -> tuple[int, ...]:
        return len(self.target) + 1, len(self.source) + 1  # <s> or </s> comes on top


class EncodedChunk(NamedTuple):
    """A piece of a long text, and the token that comes after it."""

    ids: list[int]

    @property
    def lengths(self) -> tuple[int, ...]:
        return (len(self.ids) - 1,)


class EncodedText(NamedTuple):
    ids: list[int]

    @property
    def lengths(self) -> tuple[int, ...]:
        return (len(self.ids),)


class EncodedLabelledText(NamedTuple):
    ids: list[int]
    label: int

    @property
    def lengths(self) -> tuple[int, ...]:
        return (len(self.ids),)


class EncodedTaggedText(NamedTuple):
    ids: list[int]
    tags: list[int]  # one for each id; NO_TAG where none is asked for

    @property
    def lengths(self) -> tuple[int, ...]:
        return (len(self.ids),)


class EncodedImage(NamedTuple):
    pixels: NDArray[np.float32]
    label: int

    @property
    def lengths(self) -> tuple[int, ...]:
        return (1,)  # a batch of images is counted in images


Encoded = EncodedPair | EncodedChunk | EncodedText | EncodedLabelledText | EncodedTaggedText | EncodedImage
