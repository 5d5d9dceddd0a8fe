"""From encoded examples to batches: padded, masked, of about equal size, in an order that can be resumed.

examples ──encode──▶ ids ──batches_by_tokens──▶ which of them go together ──collate──▶ Batch
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from cutaway.data.augmentation import Augmentation
from cutaway.data.chunks import shift_for_epoch
from cutaway.data.encoded import (
    NO_TAG,
    Encoded,
    EncodedChunk,
    EncodedImage,
    EncodedLabelledText,
    EncodedPair,
    EncodedTaggedText,
    EncodedText,
)
from cutaway.data.lazy import lengths_of
from cutaway.data.sampler import BatchOrder, batches_by_tokens
from cutaway.data.tokenizer import Tokenizer


@dataclass(frozen=True)
class Batch:
    """What one training step sees. Masks are True at tokens and False at padding."""

    masks: ClassVar[dict[str, str]] = {}  # a tensor with a column for each token -> the mask that tells the tokens
    tokens: int  # how many answers are asked for: what the loss is divided by

    def to(self, device: torch.device | str) -> Self:
        moved: dict[str, Any] = {}
        for f in fields(self):
            value = getattr(self, f.name)
            moved[f.name] = value.to(device, non_blocking=True) if isinstance(value, Tensor) else value
        return type(self)(**moved)

    def part(self, number: int, count: int) -> Self:
        """Of the batch dealt out like cards, part `number` of `count`, which must be below the number of rows.

        Every `count`-th row, without the columns that are padding in all of them: parts of about equal size.
        """
        if count == 1:
            return self
        cut = {name: tensor[number::count] for name, tensor in self.tensors().items()}
        longest = {mask: int(cut[mask].sum(dim=1).max()) for mask in set(self.masks.values())}
        cut = {name: t[:, : longest[self.masks[name]]] if name in self.masks else t for name, t in cut.items()}
        asked = cut.get("asked", cut.get("target_mask"))
        return type(self)(tokens=len(cut["answers"]) if asked is None else int(asked.sum()), **cut)

    def tensors(self) -> dict[str, Tensor]:
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name != "tokens"}

    @property
    def rows(self) -> int:
        return len(next(iter(self.tensors().values())))


@dataclass(frozen=True)
class PairBatch(Batch):
    """For an encoder-decoder.

    target       le   chat  dort
    target_in    <s>  le    chat  dort      what the decoder has read when it must say ...
    target_out   le   chat  dort  </s>      ... this
    """

    masks: ClassVar = {
        "source": "source_mask",
        "source_mask": "source_mask",
        "target_in": "target_mask",
        "target_out": "target_mask",
        "target_mask": "target_mask",
    }
    source: Tensor  # [B, S], ended by </s>
    target_in: Tensor  # [B, T]
    target_out: Tensor  # [B, T]
    source_mask: Tensor  # [B, S] of bool
    target_mask: Tensor  # [B, T] of bool


@dataclass(frozen=True)
class TextBatch(Batch):
    """An answer for each token, or for some: the next token, the hidden one, the tag."""

    masks: ClassVar = {"ids": "mask", "mask": "mask", "answers": "mask", "asked": "mask"}
    ids: Tensor  # [B, T]
    mask: Tensor  # [B, T] of bool
    answers: Tensor  # [B, T]
    asked: Tensor  # [B, T] of bool: where there is an answer


@dataclass(frozen=True)
class LabelBatch(Batch):
    """An answer for each text."""

    masks: ClassVar = {"ids": "mask", "mask": "mask"}
    ids: Tensor  # [B, T]
    mask: Tensor  # [B, T] of bool
    answers: Tensor  # [B]


@dataclass(frozen=True)
class ImageBatch(Batch):
    images: Tensor  # [B, C, H, W]
    answers: Tensor  # [B]


Collate = Callable[[Sequence[Any], Tokenizer, np.random.Generator], Batch]


def collate_pairs(pairs: Sequence[EncodedPair], tokenizer: Tokenizer, rng: object = None) -> PairBatch:
    """Pad encoded pairs to one rectangle a side, with the target shifted right for teacher forcing."""
    # Masks come from the lengths, not from the ids: some vocabularies use one id for padding and for the end.
    target_lengths = [len(pair.target) + 1 for pair in pairs]
    return PairBatch(
        source=pad([[*pair.source, tokenizer.eos] for pair in pairs], tokenizer.pad),
        target_in=pad([[tokenizer.bos, *pair.target] for pair in pairs], tokenizer.pad),
        target_out=pad([[*pair.target, tokenizer.eos] for pair in pairs], tokenizer.pad),
        source_mask=length_mask([len(pair.source) + 1 for pair in pairs]),
        target_mask=length_mask(target_lengths),
        tokens=sum(target_lengths),
    )


def collate_chunks(pieces: Sequence[EncodedChunk], tokenizer: Tokenizer, rng: object = None) -> TextBatch:
    """At each token, the one that comes after it is asked for."""
    mask = length_mask([len(piece.ids) - 1 for piece in pieces])
    return TextBatch(
        ids=pad([piece.ids[:-1] for piece in pieces], tokenizer.pad),
        mask=mask,
        answers=pad([piece.ids[1:] for piece in pieces], tokenizer.pad),
        asked=mask,
        tokens=int(mask.sum()),
    )


HIDDEN = 0.15  # of the tokens; of these 80 % become <mask>, 10 % another token, 10 % stay as they are (BERT)


def collate_masked(texts: Sequence[EncodedText], tokenizer: Tokenizer, rng: np.random.Generator) -> TextBatch:
    """Some tokens are hidden, and asked for: at least one in a batch."""
    ids, mask = pad([text.ids for text in texts], tokenizer.pad), length_mask([len(text.ids) for text in texts])
    may_be_hidden = mask & (ids != tokenizer.bos) & (ids != tokenizer.eos)
    chance = torch.from_numpy(rng.random(ids.shape)).masked_fill(~may_be_hidden, 2.0)
    asked = chance <= max(HIDDEN, chance.min().item())
    how, other = (
        torch.from_numpy(rng.random(ids.shape)),
        torch.from_numpy(rng.integers(0, tokenizer.vocab_size, ids.shape)),
    )
    shown = torch.where(asked & (how < 0.8), torch.full_like(ids, tokenizer.mask or 0), ids)
    shown = torch.where(asked & (how >= 0.9), other, shown)
    return TextBatch(ids=shown, mask=mask, answers=ids, asked=asked, tokens=int(asked.sum()))


def collate_tagged(examples: Sequence[EncodedTaggedText], tokenizer: Tokenizer, rng: object = None) -> TextBatch:
    """The tag is asked for where a word begins."""
    tags = pad([example.tags for example in examples], NO_TAG)
    asked = tags != NO_TAG
    return TextBatch(
        ids=pad([example.ids for example in examples], tokenizer.pad),
        mask=length_mask([len(example.ids) for example in examples]),
        answers=tags,
        asked=asked,
        tokens=int(asked.sum()),
    )


def collate_labelled(examples: Sequence[EncodedLabelledText], tokenizer: Tokenizer, rng: object = None) -> LabelBatch:
    return LabelBatch(
        ids=pad([example.ids for example in examples], tokenizer.pad),
        mask=length_mask([len(example.ids) for example in examples]),
        answers=torch.tensor([example.label for example in examples]),
        tokens=len(examples),
    )


def collate_images(examples: Sequence[EncodedImage], tokenizer: object = None, rng: object = None) -> ImageBatch:
    return ImageBatch(
        images=torch.from_numpy(np.stack([example.pixels for example in examples])).to(torch.get_default_dtype()),
        answers=torch.tensor([example.label for example in examples]),
        tokens=len(examples),
    )


COLLATE: dict[str, Collate] = {
    "translation": collate_pairs,
    "language_model": collate_chunks,
    "masked_language_model": collate_masked,
    "classification": collate_labelled,
    "tagging": collate_tagged,
    "image_classification": collate_images,
}


def pad(rows: Sequence[Sequence[int]], value: int) -> Tensor:
    """Rows of unequal length -> one tensor [B, longest], filled up with `value` on the right."""
    longest = max(len(row) for row in rows)
    return torch.tensor([[*row, *[value] * (longest - len(row))] for row in rows], dtype=torch.long)


def length_mask(lengths: Sequence[int]) -> Tensor:
    """[B, longest], True at the first lengths[i] places of row i."""
    return torch.arange(max(lengths))[None, :] < torch.tensor(lengths)[:, None]


KEPT = 5_000_000  # tokens of batches for measuring that are kept, rather than made again each time


def evaluation_batches(
    examples: Sequence[Encoded], task: str, tokenizer: Tokenizer | None, budget: int
) -> Sequence[Batch]:
    """Batches for measuring: every example once, in an order that never changes."""
    if not examples:
        return []
    batches = EvaluationBatches(BatchStream(examples, task, tokenizer, budget, seed=0))
    return list(batches) if lengths_of(examples).sum() <= KEPT else batches


class EvaluationBatches(Sequence[Batch]):
    """The first epoch of a stream, each batch made when it is asked for."""

    def __init__(self, stream: BatchStream):
        self.stream = stream

    def __len__(self) -> int:
        return len(self.stream.order)

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            return [self[i] for i in range(*place.indices(len(self)))]
        if not -len(self) <= place < len(self):
            raise IndexError(place)
        self.stream.set_position({"epoch": 0, "next_batch": place % len(self)})
        return next(self.stream)


class BatchStream:
    """Batches without end, epoch after epoch, from a position that can be saved and set.

    `augment` is done to the examples anew each time that they are drawn.
    """

    def __init__(
        self,
        examples: Sequence[Encoded],
        task: str,
        tokenizer: Tokenizer | None,
        budget: int,
        seed: int,
        augment: Augmentation | None = None,
    ):
        self.examples, self.tokenizer, self.budget, self.seed = examples, tokenizer, budget, seed
        self.augment = augment
        self.collate = COLLATE[task]
        self.epoch, self.next_batch = 0, 0
        self._current_epoch: tuple[int, Sequence[Encoded], BatchOrder] | None = None

    def __next__(self) -> Batch:
        if self.next_batch == len(self.order):
            self.epoch, self.next_batch = self.epoch + 1, 0
        indices = self.order[self.next_batch]
        self.next_batch += 1
        # what a batch hides or changes follows from its place, so that a resumed run does the same
        rng = np.random.default_rng([self.seed, self.epoch, self.next_batch])
        examples = [self.current_epoch[1][i] for i in indices]
        if self.augment:
            examples = self.augment(examples, rng)
        return self.collate(examples, self.tokenizer, rng)  # type: ignore[arg-type]

    def __iter__(self) -> BatchStream:
        return self

    @property
    def current_epoch(self) -> tuple[int, Sequence[Encoded], BatchOrder]:
        """The number of the epoch, its examples (pieces of texts are cut elsewhere in each) and their order."""
        if self._current_epoch is None or self._current_epoch[0] != self.epoch:
            examples = shift_for_epoch(self.examples, self.seed, self.epoch)
            self._current_epoch = (
                self.epoch,
                examples,
                batches_by_tokens(examples, self.budget, self.seed, self.epoch),
            )
        return self._current_epoch

    @property
    def order(self) -> BatchOrder:
        return self.current_epoch[2]

    @property
    def epochs(self) -> float:
        """How often the examples have been gone through."""
        return self.epoch + self.next_batch / len(self.order)

    def position(self) -> dict[str, int]:
        return {"epoch": self.epoch, "next_batch": self.next_batch}

    def set_position(self, position: dict[str, int]) -> None:
        self.epoch, self.next_batch = position["epoch"], position["next_batch"]
