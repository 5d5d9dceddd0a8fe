"""From encoded pairs to batches: padded, masked, of about equal size, in an order that can be resumed.

pairs ──encode_pairs──▶ ids ──batches_by_tokens──▶ which pairs go together ──collate──▶ Batch
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cutaway.data.prepare import EncodedPair
from cutaway.data.tokenizer import Tokenizer

POOL = 8_192  # pairs that are sorted by length together: large enough for little padding, small enough for variety


@dataclass(frozen=True)
class Batch:
    """What one training step sees. Masks are True at tokens and False at padding.

    target       le   chat  dort
    target_in    <s>  le    chat  dort      what the decoder has read when it must say ...
    target_out   le   chat  dort  </s>      ... this
    """

    source: Tensor  # [B, S], ended by </s>
    target_in: Tensor  # [B, T]
    target_out: Tensor  # [B, T]
    source_mask: Tensor  # [B, S] of bool
    target_mask: Tensor  # [B, T] of bool
    tokens: int  # target tokens, padding not counted: what the loss is divided by

    def to(self, device: torch.device | str) -> Batch:
        moved: dict[str, Any] = {}
        for f in fields(self):
            value = getattr(self, f.name)
            moved[f.name] = value.to(device, non_blocking=True) if isinstance(value, Tensor) else value
        return Batch(**moved)


def collate(pairs: Sequence[EncodedPair], tokenizer: Tokenizer) -> Batch:
    """Pad encoded pairs to one rectangle a side, with the target shifted right for teacher forcing."""
    source = pad([[*pair.source, tokenizer.eos] for pair in pairs], tokenizer.pad)
    target_in = pad([[tokenizer.bos, *pair.target] for pair in pairs], tokenizer.pad)
    target_out = pad([[*pair.target, tokenizer.eos] for pair in pairs], tokenizer.pad)
    # Masks come from the lengths, not from the ids: some vocabularies use one id for padding and for the end.
    target_lengths = [len(pair.target) + 1 for pair in pairs]
    return Batch(
        source=source,
        target_in=target_in,
        target_out=target_out,
        source_mask=length_mask([len(pair.source) + 1 for pair in pairs]),
        target_mask=length_mask(target_lengths),
        tokens=sum(target_lengths),
    )


def pad(rows: Sequence[Sequence[int]], value: int) -> Tensor:
    """Rows of unequal length -> one tensor [B, longest], filled up with `value` on the right."""
    longest = max(len(row) for row in rows)
    return torch.tensor([[*row, *[value] * (longest - len(row))] for row in rows], dtype=torch.long)


def length_mask(lengths: Sequence[int]) -> Tensor:
    """[B, longest], True at the first lengths[i] places of row i."""
    return torch.arange(max(lengths))[None, :] < torch.tensor(lengths)[:, None]


def batches_by_tokens(pairs: Sequence[EncodedPair], budget: int, seed: int, epoch: int) -> list[list[int]]:
    """Which pairs go together in an epoch: indices, in batches of at most `budget` target tokens with padding.

    The pairs are shuffled, cut into pools, sorted by length within each pool (so that a batch needs little
    padding), packed, and the batches shuffled. All of it follows from the seed and the epoch alone.
    """
    draw = np.random.default_rng([seed, epoch])
    order = draw.permutation(len(pairs))
    batches: list[list[int]] = []
    for start in range(0, len(order), POOL):
        pool = order[start : start + POOL].tolist()
        pool.sort(key=lambda i: (len(pairs[i].target), len(pairs[i].source)))
        batches.extend(_pack(pool, [len(pair.target) + 1 for pair in (pairs[i] for i in pool)], budget))
    return [batches[i] for i in draw.permutation(len(batches))]


def _pack(indices: Sequence[int], lengths: Sequence[int], budget: int) -> Iterator[list[int]]:
    """Cut a row of indices, sorted by length, into batches whose padded size stays within the budget."""
    batch: list[int] = []
    for index, length in zip(indices, lengths, strict=True):
        if batch and (len(batch) + 1) * length > budget:
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch


def plain_batches(encoded: Sequence[EncodedPair], tokenizer: Tokenizer, budget: int) -> list[Batch]:
    """Batches for measuring: every pair once, in an order that never changes."""
    order = batches_by_tokens(encoded, budget, seed=0, epoch=0)
    return [collate([encoded[i] for i in indices], tokenizer) for indices in order]


class BatchStream:
    """Batches without end, epoch after epoch, from a position that can be saved and set."""

    def __init__(self, pairs: Sequence[EncodedPair], tokenizer: Tokenizer, budget: int, seed: int):
        self.pairs, self.tokenizer, self.budget, self.seed = pairs, tokenizer, budget, seed
        self.epoch, self.next_batch = 0, 0
        self._order: tuple[int, list[list[int]]] | None = None

    def __next__(self) -> Batch:
        if self.next_batch == len(self.order):
            self.epoch, self.next_batch = self.epoch + 1, 0
        indices = self.order[self.next_batch]
        self.next_batch += 1
        return collate([self.pairs[i] for i in indices], self.tokenizer)

    def __iter__(self) -> BatchStream:
        return self

    @property
    def order(self) -> list[list[int]]:
        if self._order is None or self._order[0] != self.epoch:
            self._order = (self.epoch, batches_by_tokens(self.pairs, self.budget, self.seed, self.epoch))
        return self._order[1]

    def position(self) -> dict[str, int]:
        return {"epoch": self.epoch, "next_batch": self.next_batch}

    def set_position(self, position: dict[str, int]) -> None:
        self.epoch, self.next_batch = position["epoch"], position["next_batch"]
