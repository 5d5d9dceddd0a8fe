"""Translating with less to read: a beam shares a memory; on a CPU, texts of similar length are encoded together."""

from __future__ import annotations

import torch
from torch import Tensor

from cutaway.decode.stepper import TranslationStepper
from cutaway.inference.fast.attention import SharedMemoryAttention
from cutaway.models.encoder_decoder import EncoderDecoder

GROUP, MOSTLY_TEXT = 16, 0.8  # texts encoded together; the share of tokens from which all are


class FastTranslationStepper(TranslationStepper):
    """`memory_of` says which memory each row looks at. They are fewer than rows if the model can share them."""

    def __init__(
        self,
        model: EncoderDecoder,
        source: Tensor,
        source_mask: Tensor | None = None,
        record_source_weights: bool = False,
    ):
        super().__init__(model, source, source_mask, record_source_weights)
        self.memory_of = list(range(len(source)))
        self.can_share = all(isinstance(layer.cross_attention, SharedMemoryAttention) for layer in model.decoder.layers)

    def encode(self, source: Tensor, source_mask: Tensor | None) -> Tensor:
        """The memory [B, S, D] of all texts. Where there is much padding, a group of texts after the other.

        source   ■ ■ ■ ■ ■ ■         ■ ■ ■ ■ ■ ■      ■ ■
                 ■ ■ · · · ·   ──▶   ■ ■ ■ ■ ■ ·      ■ ■
                 ■ ■ ■ ■ ■ ·
                 ■ ■ · · · ·
        """
        if source_mask is None or len(source) <= GROUP or source.device.type != "cpu":
            return self.model.encode(source, source_mask)
        lengths_B = source_mask.sum(dim=1)
        if lengths_B.sum() > MOSTLY_TEXT * source.numel():
            return self.model.encode(source, source_mask)
        memory_BSD = torch.empty(0)
        for rows in lengths_B.argsort(descending=True).split(GROUP):
            longest = int(lengths_B[rows[0]])
            x = self.model.encode(source[rows, :longest], source_mask[rows, :longest])
            if not memory_BSD.numel():
                memory_BSD = x.new_zeros(*source.shape, x.size(-1))
            memory_BSD[rows, :longest] = x
        return memory_BSD

    def keep(self, rows: Tensor) -> None:
        if not self.can_share:
            return super().keep(rows)
        kept = rows.tolist()
        if kept != list(range(len(self.memory_of))):
            for layer in self.cache.layers:
                layer.self_attention.reorder(rows)
        wanted = [self.memory_of[row] for row in kept]
        if wanted == self.memory_of:
            return None
        memories, self.memory_of = shared(wanted)
        if memories != list(range(len(self.memory))):
            chosen = torch.tensor(memories, dtype=torch.long, device=rows.device)
            for layer in self.cache.layers:
                layer.cross_attention.reorder(chosen)
            self.memory = self.memory[chosen]
            self.source_mask = None if self.source_mask is None else self.source_mask[chosen]
        return None


def shared(wanted: list[int]) -> tuple[list[int], list[int]]:
    """Which memories are needed for rows that want these, and which of them is each row's. As few as possible: one for
    each beam, if all are equally wide and in order, as those of beam search are; otherwise one for each row."""
    memories = list(dict.fromkeys(wanted))
    width = len(wanted) // max(len(memories), 1)
    if wanted == [memory for memory in memories for _ in range(width)]:
        return memories, [i for i in range(len(memories)) for _ in range(width)]
    return wanted, list(range(len(wanted)))
