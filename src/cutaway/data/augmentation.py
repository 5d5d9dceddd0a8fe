"""Data augmentation: random changes of training examples, different in each epoch. No torch here.

The random generator is seeded by seed, epoch and batch number, so a resumed run makes the same changes.
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
    """The augmentation in the recipe: image distortion, BPE dropout or None."""
    if config.distortion:
        return lambda examples, rng: distort_images(examples, rng, config.distortion)
    if config.bpe_dropout and tokenizer:
        dropout = BpeDropout(tokenizer, config.bpe_dropout)
        return lambda examples, rng: [resegment(example, dropout, rng, config) for example in examples]
    return None


def distort_images(examples: Sequence[Any], rng: np.random.Generator, strength: float) -> list[Any]:
    """Rotate, stretch and shift each image a little; all channels of an image in the same way."""
    pixels_NCHW = np.stack([example.pixels for example in examples])
    seed = rng.integers(2**32)
    channels = [distort(pixels_NCHW[:, c], np.random.default_rng(seed), strength) for c in range(pixels_NCHW.shape[1])]
    return [EncodedImage(p, e.label) for p, e in zip(np.stack(channels, axis=1), examples, strict=True)]


def resegment(example: Any, dropout: BpeDropout, rng: np.random.Generator, config: DataConfig) -> Any:
    """Segment a text again with BPE dropout. If it becomes too long, truncate it if allowed, else keep the old ids."""
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
    """Segment word by word. The tag of a word stays at its first token."""
    starts = [position for position, tag in enumerate(example.tags) if tag != NO_TAG]
    ends = [*starts[1:], len(example.ids) - 1]
    ids, tags = example.ids[: starts[0]], example.tags[: starts[0]]
    for start, end in zip(starts, ends, strict=True):
        word = dropout(example.ids[start:end], rng)
        ids += word
        tags += [example.tags[start], *[NO_TAG] * (len(word) - 1)]

    return EncodedTaggedText([*ids, example.ids[-1]], [*tags, NO_TAG])
