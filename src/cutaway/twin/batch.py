"""Rows of token ids as arrays: what a model reads, what it should say, and where it is asked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from cutaway.data.chunks import shift_for_epoch
from cutaway.data.sampler import batches_by_tokens
from cutaway.twin.ops import Array


class Batch(NamedTuple):
    inputs: tuple[Array | None, ...]  # what the model is called with
    right: Array  # [B,T]: the token that should come next
    asked: Array  # [B,T] of bool: False at padding


def pair_batch(pairs: Sequence[Any], bos: int, eos: int) -> Batch:
    """For an encoder-decoder: it reads the source, and at each place the right target so far."""
    source, source_mask = pad([[*pair.source, eos] for pair in pairs])
    target_in, target_mask = pad([[bos, *pair.target] for pair in pairs])
    right, _ = pad([[*pair.target, eos] for pair in pairs])
    return Batch((source, target_in, source_mask, target_mask), right, everywhere(right, target_mask))


def text_batch(pieces: Sequence[Any], bos: int, eos: int) -> Batch:
    """For a decoder alone: at each token, the one after it is asked for."""
    ids, mask = pad([piece.ids[:-1] for piece in pieces])
    right, _ = pad([piece.ids[1:] for piece in pieces])
    return Batch((ids, mask), right, everywhere(right, mask))


BATCHES = {"translation": pair_batch, "language_model": text_batch}


def batches(
    examples: Sequence[Any], task: str, bos: int, eos: int, budget: int, seed: int, epochs: int | None = None
) -> Iterator[Batch]:
    """Batches of at most `budget` tokens, epoch after epoch, in the order in which the PyTorch trainer has them."""
    epoch = 0
    while epochs is None or epoch < epochs:
        of_epoch = shift_for_epoch(examples, seed, epoch)
        for indices in batches_by_tokens(of_epoch, budget, seed, epoch):
            yield BATCHES[task]([of_epoch[i] for i in indices], bos, eos)
        epoch += 1


def pad(rows: Sequence[Sequence[int]]) -> tuple[Array, Array | None]:
    """Rows of ids as one rectangle, filled up with zeros, and where its tokens are (None: everywhere)."""
    lengths = [len(row) for row in rows]
    ids = np.zeros((len(rows), max(lengths)), dtype=np.intp)
    for row, content in zip(ids, rows, strict=True):
        row[: len(content)] = content
    return ids, None if min(lengths) == max(lengths) else np.arange(max(lengths)) < np.array(lengths)[:, None]


def everywhere(like: Array, mask: Array | None) -> Array:
    return np.ones_like(like, dtype=bool) if mask is None else mask
