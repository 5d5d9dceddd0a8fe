"""Batches of token ids as padded arrays: inputs, targets, and the mask of the targets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from cutaway.data.chunks import shift_for_epoch
from cutaway.data.sampler import batches_by_tokens
from cutaway.twin.ops import Array


class Batch(NamedTuple):
    inputs: tuple[Array | None, ...]  # arguments of the model
    targets: Array  # [B,T]: the correct next tokens
    target_mask: Array  # [B,T] of bool: False at padding


def pair_batch(pairs: Sequence[Any], bos: int, eos: int) -> Batch:
    """For an encoder-decoder: source, decoder input, and the decoder input shifted by one as targets."""
    source, source_mask = pad([[*pair.source, eos] for pair in pairs])
    target_in, target_mask = pad([[bos, *pair.target] for pair in pairs])
    targets, _ = pad([[*pair.target, eos] for pair in pairs])
    return Batch((source, target_in, source_mask, target_mask), targets, dense_mask(targets, target_mask))


def text_batch(chunks: Sequence[Any], bos: int, eos: int) -> Batch:
    """For a decoder-only model: the target at each token is the next token."""
    ids, mask = pad([chunk.ids[:-1] for chunk in chunks])
    targets, _ = pad([chunk.ids[1:] for chunk in chunks])
    return Batch((ids, mask), targets, dense_mask(targets, mask))


BATCHES = {"translation": pair_batch, "language_model": text_batch}


def batches(
    examples: Sequence[Any], task: str, bos: int, eos: int, budget: int, seed: int, epochs: int | None = None
) -> Iterator[Batch]:
    """Batches of at most `budget` tokens, epoch after epoch, in the same order as in the PyTorch trainer."""
    epoch = 0
    while epochs is None or epoch < epochs:
        shifted = shift_for_epoch(examples, seed, epoch)
        for indices in batches_by_tokens(shifted, budget, seed, epoch):
            yield BATCHES[task]([shifted[i] for i in indices], bos, eos)
        epoch += 1


def pad(rows: Sequence[Sequence[int]]) -> tuple[Array, Array | None]:
    """Pad rows of ids with zeros. -> ids [B,T], mask [B,T] (True at tokens; None: no padding)"""
    lengths = [len(row) for row in rows]
    ids = np.zeros((len(rows), max(lengths)), dtype=np.intp)
    for row, content in zip(ids, rows, strict=True):
        row[: len(content)] = content
    return ids, None if min(lengths) == max(lengths) else np.arange(max(lengths)) < np.array(lengths)[:, None]


def dense_mask(like: Array, mask: Array | None) -> Array:
    return np.ones_like(like, dtype=bool) if mask is None else mask
