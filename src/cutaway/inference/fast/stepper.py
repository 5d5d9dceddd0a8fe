"""Faster translation: the rows of a beam share a memory; on a CPU, texts of similar length are encoded together."""

from __future__ import annotations

import torch
from torch import Tensor

from cutaway.decode.stepper import TranslationStepper
from cutaway.inference.fast.attention import SharedMemoryAttention
from cutaway.models.encoder_decoder import EncoderDecoder

GROUP_SIZE = 16  # texts that are encoded together
MAX_TOKEN_SHARE = 0.8  # with more tokens (less padding) than this, all texts are encoded together


class FastTranslationStepper(TranslationStepper):
    """`memory_of[row]` is the index of the memory of that row. Several rows can share one memory."""

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
        """The memory [B, S, D] of all texts. With much padding, encode groups of texts of similar length.

        source   ■ ■ ■ ■ ■ ■         ■ ■ ■ ■ ■ ■      ■ ■
                 ■ ■ · · · ·   ──▶   ■ ■ ■ ■ ■ ·      ■ ■
                 ■ ■ ■ ■ ■ ·
                 ■ ■ · · · ·
        """
        if source_mask is None or len(source) <= GROUP_SIZE or source.device.type != "cpu":
            return self.model.encode(source, source_mask)
        lengths_B = source_mask.sum(dim=1)
        if lengths_B.sum() > MAX_TOKEN_SHARE * source.numel():
            return self.model.encode(source, source_mask)
        memory_BSD = torch.empty(0)
        for rows in lengths_B.argsort(descending=True).split(GROUP_SIZE):
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
        needed = [self.memory_of[row] for row in kept]
        if needed == self.memory_of:
            return None
        memories, self.memory_of = share_memory(needed)
        if memories != list(range(len(self.memory))):
            chosen = torch.tensor(memories, dtype=torch.long, device=rows.device)
            for layer in self.cache.layers:
                layer.cross_attention.reorder(chosen)
            self.memory = self.memory[chosen]
            self.source_mask = None if self.source_mask is None else self.source_mask[chosen]
        return None


def share_memory(needed: list[int]) -> tuple[list[int], list[int]]:
    """Which memories to keep, and the index among them for each row. `needed`: the memory of each row.

    One memory for each beam, if all beams have the same width and are in order, as in beam search. Otherwise one for
    each row.
    """
    memories = list(dict.fromkeys(needed))
    width = len(needed) // max(len(memories), 1)
    if needed == [memory for memory in memories for _ in range(width)]:
        return memories, [i for i in range(len(memories)) for _ in range(width)]
    return needed, list(range(len(needed)))
