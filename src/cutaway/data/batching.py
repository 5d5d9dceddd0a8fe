"""From encoded examples to padded batches of about equal size, in a resumable order.

examples ──encode──▶ ids ──batches_by_tokens──▶ indices of each batch ──collate──▶ Batch
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
    """The input of one training step. Masks are True at tokens and False at padding."""

    masks: ClassVar[dict[str, str]] = {}  # tensor with a column for each token -> its padding mask
    tokens: int  # number of targets; the loss is divided by it

    def to(self, device: torch.device | str) -> Self:
        moved: dict[str, Any] = {}
        is_cuda = torch.device(device).type == "cuda"  # MPS copies wrong values without blocking (pytorch #139550)
        for f in fields(self):
            value = getattr(self, f.name)
            moved[f.name] = value.to(device, non_blocking=is_cuda) if isinstance(value, Tensor) else value
        return type(self)(**moved)

    def part(self, number: int, count: int) -> Self:
        """Part `number` of `count` parts: every `count`-th row, without columns of padding only.

        `number` must be below the number of rows. The parts have about equal size.
        """
        if count == 1:
            return self
        cut = {name: tensor[number::count] for name, tensor in self.tensors().items()}
        longest = {mask: int(cut[mask].sum(dim=1).max()) for mask in set(self.masks.values())}
        cut = {name: t[:, : longest[self.masks[name]]] if name in self.masks else t for name, t in cut.items()}
        target_mask = cut.get("target_mask")
        return type(self)(tokens=len(cut["targets"]) if target_mask is None else int(target_mask.sum()), **cut)

    def tensors(self) -> dict[str, Tensor]:
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name != "tokens"}

    @property
    def rows(self) -> int:
        return len(next(iter(self.tensors().values())))


@dataclass(frozen=True)
class PairBatch(Batch):
    """For an encoder-decoder.

    target       le   chat  dort
    target_in    <s>  le    chat  dort      input of the decoder
    target_out   le   chat  dort  </s>      the token to predict at each position
    """

    masks: ClassVar = {
        "source": "source_mask",
        "source_mask": "source_mask",
        "target_in": "target_mask",
        "target_out": "target_mask",
        "target_mask": "target_mask",
    }
    source: Tensor  # [B, S], with </s>
    target_in: Tensor  # [B, T]
    target_out: Tensor  # [B, T]
    source_mask: Tensor  # [B, S] of bool
    target_mask: Tensor  # [B, T] of bool


@dataclass(frozen=True)
class TextBatch(Batch):
    """A target for each token or for some tokens: the next token, the masked token or the tag."""

    masks: ClassVar = {"ids": "mask", "mask": "mask", "targets": "mask", "target_mask": "mask"}
    ids: Tensor  # [B, T]
    mask: Tensor  # [B, T] of bool
    targets: Tensor  # [B, T]
    target_mask: Tensor  # [B, T] of bool: True where there is a target


@dataclass(frozen=True)
class LabelBatch(Batch):
    """A target for each text."""

    masks: ClassVar = {"ids": "mask", "mask": "mask"}
    ids: Tensor  # [B, T]
    mask: Tensor  # [B, T] of bool
    targets: Tensor  # [B]


@dataclass(frozen=True)
class ImageBatch(Batch):
    images: Tensor  # [B, C, H, W]
    targets: Tensor  # [B]


Collate = Callable[[Sequence[Any], Tokenizer, np.random.Generator], Batch]


def collate_pairs(pairs: Sequence[EncodedPair], tokenizer: Tokenizer, rng: object = None) -> PairBatch:
    """Pad encoded pairs. The decoder input is the target shifted right (teacher forcing)."""
    # Masks come from the lengths, not from the ids: in some vocabularies, padding and </s> have the same id.
    target_lengths = [len(pair.target) + 1 for pair in pairs]
    return PairBatch(
        source=pad([[*pair.source, tokenizer.eos] for pair in pairs], tokenizer.pad),
        target_in=pad([[tokenizer.bos, *pair.target] for pair in pairs], tokenizer.pad),
        target_out=pad([[*pair.target, tokenizer.eos] for pair in pairs], tokenizer.pad),
        source_mask=length_mask([len(pair.source) + 1 for pair in pairs]),
        target_mask=length_mask(target_lengths),
        tokens=sum(target_lengths),
    )


def collate_chunks(chunks: Sequence[EncodedChunk], tokenizer: Tokenizer, rng: object = None) -> TextBatch:
    """The target at each token is the next token."""
    mask = length_mask([len(chunk.ids) - 1 for chunk in chunks])
    return TextBatch(
        ids=pad([chunk.ids[:-1] for chunk in chunks], tokenizer.pad),
        mask=mask,
        targets=pad([chunk.ids[1:] for chunk in chunks], tokenizer.pad),
        target_mask=mask,
        tokens=int(mask.sum()),
    )


MASKED_SHARE = 0.15  # of the tokens; 80 % of them become <mask>, 10 % a random token, 10 % stay unchanged (BERT)


def collate_masked(texts: Sequence[EncodedText], tokenizer: Tokenizer, rng: np.random.Generator) -> TextBatch:
    """Mask random tokens, at least one in a batch. The targets are the original tokens."""
    ids, mask = pad([text.ids for text in texts], tokenizer.pad), length_mask([len(text.ids) for text in texts])
    is_maskable = mask & (ids != tokenizer.bos) & (ids != tokenizer.eos)
    chance = torch.from_numpy(rng.random(ids.shape)).masked_fill(~is_maskable, 2.0)
    target_mask = chance <= max(MASKED_SHARE, chance.min().item())
    how, random_ids = (
        torch.from_numpy(rng.random(ids.shape)),
        torch.from_numpy(rng.integers(0, tokenizer.vocab_size, ids.shape)),
    )
    masked = torch.where(target_mask & (how < 0.8), torch.full_like(ids, tokenizer.mask or 0), ids)
    masked = torch.where(target_mask & (how >= 0.9), random_ids, masked)
    return TextBatch(ids=masked, mask=mask, targets=ids, target_mask=target_mask, tokens=int(target_mask.sum()))


def collate_tagged(examples: Sequence[EncodedTaggedText], tokenizer: Tokenizer, rng: object = None) -> TextBatch:
    """The target is the tag, at the first token of each word."""
    tags = pad([example.tags for example in examples], NO_TAG)
    target_mask = tags != NO_TAG
    return TextBatch(
        ids=pad([example.ids for example in examples], tokenizer.pad),
        mask=length_mask([len(example.ids) for example in examples]),
        targets=tags,
        target_mask=target_mask,
        tokens=int(target_mask.sum()),
    )


def collate_labelled(examples: Sequence[EncodedLabelledText], tokenizer: Tokenizer, rng: object = None) -> LabelBatch:
    return LabelBatch(
        ids=pad([example.ids for example in examples], tokenizer.pad),
        mask=length_mask([len(example.ids) for example in examples]),
        targets=torch.tensor([example.label for example in examples]),
        tokens=len(examples),
    )


def collate_images(examples: Sequence[EncodedImage], tokenizer: object = None, rng: object = None) -> ImageBatch:
    return ImageBatch(
        images=torch.from_numpy(np.stack([example.pixels for example in examples])).to(torch.get_default_dtype()),
        targets=torch.tensor([example.label for example in examples]),
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
    """Rows of unequal length -> one tensor [B, longest], padded with `value` on the right."""
    longest = max(len(row) for row in rows)
    return torch.tensor([[*row, *[value] * (longest - len(row))] for row in rows], dtype=torch.long)


def length_mask(lengths: Sequence[int]) -> Tensor:
    """[B, longest], True at the first lengths[i] positions of row i."""
    return torch.arange(max(lengths))[None, :] < torch.tensor(lengths)[:, None]


MAX_CACHED_TOKENS = 5_000_000  # evaluation batches with more tokens are made again each time


def evaluation_batches(
    examples: Sequence[Encoded], task: str, tokenizer: Tokenizer | None, budget: int
) -> Sequence[Batch]:
    """Batches for evaluation: every example once, in a fixed order."""
    if not examples:
        return []
    batches = EvaluationBatches(BatchStream(examples, task, tokenizer, budget, seed=0))
    return list(batches) if lengths_of(examples).sum() <= MAX_CACHED_TOKENS else batches


class EvaluationBatches(Sequence[Batch]):
    """The first epoch of a stream. Each batch is made when it is accessed."""

    def __init__(self, stream: BatchStream):
        self.stream = stream

    def __len__(self) -> int:
        return len(self.stream.order)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(index)
        self.stream.set_position({"epoch": 0, "next_batch": index % len(self)})
        return next(self.stream)


class BatchStream:
    """An endless stream of batches, epoch after epoch. Its position can be saved and restored.

    `augment` changes the examples of each batch at random.
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
        # masking and augmentation depend on the position only, so a resumed run repeats them
        rng = np.random.default_rng([self.seed, self.epoch, self.next_batch])
        examples = [self.current_epoch[1][i] for i in indices]
        if self.augment:
            examples = self.augment(examples, rng)
        return self.collate(examples, self.tokenizer, rng)  # type: ignore[arg-type]

    def __iter__(self) -> BatchStream:
        return self

    @property
    def current_epoch(self) -> tuple[int, Sequence[Encoded], BatchOrder]:
        """The number of the epoch, its examples (chunks begin at other positions in each epoch) and their order."""
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
        """The number of epochs so far, as a fraction."""
        return self.epoch + self.next_batch / len(self.order)

    def position(self) -> dict[str, int]:
        return {"epoch": self.epoch, "next_batch": self.next_batch}

    def set_position(self, position: dict[str, int]) -> None:
        self.epoch, self.next_batch = position["epoch"], position["next_batch"]
