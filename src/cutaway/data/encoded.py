"""Encoded examples: one type for each task. No torch here."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

NO_TAG = -1  # at a token that does not begin a word; the loss ignores it


class EncodedPair(NamedTuple):
    source: list[int]
    target: list[int]

    @property
    def lengths(self) -> tuple[int, ...]:
        return len(self.target) + 1, len(self.source) + 1  # with <s> or </s>


class EncodedChunk(NamedTuple):
    """A chunk of a long text, and the token after it."""

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
    tags: list[int]  # one for each id; NO_TAG except at the first token of a word

    @property
    def lengths(self) -> tuple[int, ...]:
        return (len(self.ids),)


class EncodedImage(NamedTuple):
    pixels: NDArray[np.float32]
    label: int

    @property
    def lengths(self) -> tuple[int, ...]:
        return (1,)  # the size of an image batch is its number of images


Encoded = EncodedPair | EncodedChunk | EncodedText | EncodedLabelledText | EncodedTaggedText | EncodedImage
