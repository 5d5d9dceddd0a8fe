"""What is done to training examples anew each time that they are drawn: no two epochs are the same. No torch here.

A change draws from the generator of its batch, which follows from seed, epoch and place: a resumed run does the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from cutaway.config import DataConfig
from cutaway.data.bpe_dropout import BpeDropout
from cutaway.data.distort import distort
from cutaway.data.encoded import NO_TAG, EncodedImage, EncodedLabelledText, EncodedPair, EncodedTaggedText
from cutaway.data.filtering import truncate_or_split
from cutaway.data.tokenizer import Tokenizer

Augmentation = Callable[[Sequence[Any], np.random.Generator], list[Any]]


def augmentation_for(config: DataConfig, tokenizer: Tokenizer | None) -> Augmentation | None:
    """The change that a recipe asks for, if any: images are distorted, texts segmented otherwise."""
    if config.distortion:
        return lambda examples, rng: distort_images(examples, rng, config.distortion)
    if config.bpe_dropout and tokenizer:
        dropout = BpeDropout(tokenizer, config.bpe_dropout)
        return lambda examples, rng: [resegment(example, dropout, rng, config) for example in examples]
    return None


def distort_images(examples: Sequence[Any], rng: np.random.Generator, strength: float) -> list[Any]:
    """The same pictures, each of them turned, stretched and shifted a little; all channels in the same way."""
    pixels_NCHW = np.stack([example.pixels for example in examples])
    seed = rng.integers(2**32)
    channels = [distort(pixels_NCHW[:, c], np.random.default_rng(seed), strength) for c in range(pixels_NCHW.shape[1])]
    return [EncodedImage(p, e.label) for p, e in zip(np.stack(channels, axis=1), examples, strict=True)]


def resegment(example: Any, dropout: BpeDropout, rng: np.random.Generator, config: DataConfig) -> Any:
    """The same text in other pieces. If those are too many: of a text that may be cut, the first of them; else the
    text as it is."""
    if isinstance(example, EncodedPair):
        changed: Any = EncodedPair(dropout(example.source, rng), dropout(example.target, rng))
    elif isinstance(example, EncodedTaggedText):
        changed = resegment_words(example, dropout, rng)
    else:
        changed = example._replace(ids=dropout(example.ids, rng))
    if max(changed.lengths) <= config.max_tokens:
        return changed
    is_cut = isinstance(example, EncodedLabelledText) and config.long_texts("classification") == "cut"
    return truncate_or_split(changed, config.max_tokens)[0] if is_cut else example


def resegment_words(example: EncodedTaggedText, dropout: BpeDropout, rng: np.random.Generator) -> EncodedTaggedText:
    """Word by word: the tag of each stays at its first piece."""
    starts = [place for place, tag in enumerate(example.tags) if tag != NO_TAG]
    ends = [*starts[1:], len(example.ids) - 1]
    ids, tags = example.ids[: starts[0]], example.tags[: starts[0]]
    for start, end in zip(starts, ends, strict=True):
        pieces = dropout(example.ids[start:end], rng)
        ids += pieces
        tags += [example.tags[start], *[NO_TAG] * (len(pieces) - 1)]
    return EncodedTaggedText([*ids, example.ids[-1]], [*tags, NO_TAG])
