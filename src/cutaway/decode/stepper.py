"""The step function that every search drives, and the model behind it."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from cutaway.models.decoder import DecoderOnly
from cutaway.models.encoder_decoder import EncoderDecoder
from cutaway.nn.probe import recording

GROUP, MOSTLY_TEXT = 16, 0.8  # texts read together; the share of tokens from which all are


class Stepper(Protocol):
    """A model in the middle of writing several texts, a row each. What it remembers is its own business."""

    def step(self, tokens: Tensor) -> Tensor:
        """The token just written in each row [N] -> logits [N, V] for the one to come."""
        ...

    def keep(self, rows: Tensor) -> None:
        """Row i goes on from what row rows[i] has written: rows are dropped, repeated, reordered."""
        ...


class TranslationStepper:
    """An EncoderDecoder writing translations of `source` [B, S]: encodes once, then a cached step a token.

    The rows of a beam share the memory of their source: `memory_of` says which each of them looks at. With `looking`,
    `looked` [N, S] is where each row looked at its last step: the last layer's cross-attention, the mean of its heads.
    """

    looked: Tensor

    def __init__(self, model: EncoderDecoder, source: Tensor, source_mask: Tensor | None = None, looking: bool = False):
        self.model = model
        self.memory, self.source_mask = encoded(model, source, source_mask), source_mask
        self.cache = model.new_cache()
        self.memory_of = list(range(len(source)))
        self.last_look = f"decoder.layers.{len(self.cache.layers) - 1}.cross_attention.weights" if looking else ""

    def step(self, tokens: Tensor) -> Tensor:
        if not self.last_look:
            return self.next_logits(tokens)
        with recording(self.model, self.last_look) as seen:
            logits_NV = self.next_logits(tokens)
        weights_BHKS = seen[self.last_look]
        self.looked = weights_BHKS.mean(dim=1).flatten(0, 1)
        return logits_NV

    def next_logits(self, tokens: Tensor) -> Tensor:
        x_N1D = self.model.decode(tokens[:, None], self.memory, self.source_mask, cache=self.cache)
        return self.model.head(x_N1D)[:, 0]

    def keep(self, rows: Tensor) -> None:
        kept = rows.tolist()
        if kept != list(range(len(self.memory_of))):
            self.cache.reorder(rows)
        wanted = [self.memory_of[row] for row in kept]
        if wanted == self.memory_of:
            return
        memories, self.memory_of = shared(wanted)
        if memories != list(range(len(self.memory))):
            chosen = torch.tensor(memories, dtype=torch.long, device=rows.device)
            self.cache.reorder_memory(chosen)
            self.memory = self.memory[chosen]
            self.source_mask = None if self.source_mask is None else self.source_mask[chosen]


def encoded(model: EncoderDecoder, source: Tensor, source_mask: Tensor | None) -> Tensor:
    """The memory [B, S, D] of all texts. On a CPU padding costs as much as text: where there is much of it, texts of
    similar length are read together, a group after the other.

        source   ■ ■ ■ ■ ■ ■         ■ ■ ■ ■ ■ ■      ■ ■
                 ■ ■ · · · ·   ──▶   ■ ■ ■ ■ ■ ·      ■ ■
                 ■ ■ ■ ■ ■ ·
                 ■ ■ · · · ·
    """
    if source_mask is None or len(source) <= GROUP or source.device.type != "cpu":
        return model.encode(source, source_mask)
    lengths_B = source_mask.sum(dim=1)
    if lengths_B.sum() > MOSTLY_TEXT * source.numel():
        return model.encode(source, source_mask)
    memory_BSD = torch.empty(0)
    for rows in lengths_B.argsort(descending=True).split(GROUP):
        longest = int(lengths_B[rows[0]])
        x = model.encode(source[rows, :longest], source_mask[rows, :longest])
        if not memory_BSD.numel():
            memory_BSD = x.new_zeros(*source.shape, x.size(-1))
        memory_BSD[rows, :longest] = x
    return memory_BSD


def shared(wanted: list[int]) -> tuple[list[int], list[int]]:
    """Which memories are needed for rows that want these, and which of them is each row's. As few as possible: one for
    each beam, if all are equally wide and in order, as those of beam search are; otherwise one for each row."""
    memories = list(dict.fromkeys(wanted))
    width = len(wanted) // max(len(memories), 1)
    if wanted == [memory for memory in memories for _ in range(width)]:
        return memories, [i for i in range(len(memories)) for _ in range(width)]
    return wanted, list(range(len(wanted)))


class TextStepper:
    """A DecoderOnly going on with prompts [B, T], all of one length: reads them at once, then a cached step a token.

    Only the last token of the prompts is left for the first step, which the search makes.
    """

    def __init__(self, model: DecoderOnly, prompts: Tensor):
        self.model, self.cache = model, model.new_cache()
        self.n_rows = len(prompts)
        if prompts.size(1) > 1:
            model.decode(prompts[:, :-1], cache=self.cache)

    def step(self, tokens: Tensor) -> Tensor:
        return self.model.head(self.model.decode(tokens[:, None], cache=self.cache))[:, 0]

    def keep(self, rows: Tensor) -> None:
        if rows.tolist() != list(range(self.n_rows)):
            self.cache.reorder(rows)
        self.n_rows = len(rows)
