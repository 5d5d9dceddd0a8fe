"""The step function that every search drives, and the model behind it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from torch import Tensor

from cutaway.models.decoder import DecoderOnly
from cutaway.models.encoder_decoder import EncoderDecoder


class Stepper(Protocol):
    """A model in the middle of writing several texts, a row each. What it remembers is its own business."""

    def step(self, tokens: Tensor) -> Tensor:
        """The token just written in each row [N] -> logits [N, V] for the one to come."""
        ...

    def keep(self, rows: Tensor) -> None:
        """Row i goes on from what row rows[i] has written: rows are dropped, repeated, reordered."""
        ...


class TranslationStepper:
    """An EncoderDecoder writing translations of `source` [B, S]: encodes once, then a cached step a token."""

    def __init__(self, model: EncoderDecoder, source: Tensor, source_mask: Tensor | None = None):
        self.model = model
        self.memory, self.source_mask = model.encode(source, source_mask), source_mask
        self.cache = model.new_cache()

    def step(self, tokens: Tensor) -> Tensor:
        x_N1D = self.model.decode(tokens[:, None], self.memory, self.source_mask, cache=self.cache)
        return self.model.head(x_N1D)[:, 0]

    def keep(self, rows: Tensor) -> None:
        self.cache.reorder(rows)
        self.memory = self.memory[rows]
        self.source_mask = None if self.source_mask is None else self.source_mask[rows]


class TextStepper:
    """A DecoderOnly going on with prompts [B, T], all of one length: reads them at once, then a cached step a token.

    Only the last token of the prompts is left for the first step, which the search makes.
    """

    def __init__(self, model: DecoderOnly, prompts: Tensor):
        self.model, self.cache = model, model.new_cache()
        if prompts.size(1) > 1:
            model.decode(prompts[:, :-1], cache=self.cache)

    def step(self, tokens: Tensor) -> Tensor:
        return self.model.head(self.model.decode(tokens[:, None], cache=self.cache))[:, 0]

    def keep(self, rows: Tensor) -> None:
        self.cache.reorder(rows)


class Without:
    """A stepper for which some tokens do not exist: their logits are -inf, and the others share what they had."""

    def __init__(self, stepper: Stepper, suppressed: Sequence[int]):
        self.stepper, self.suppressed = stepper, list(suppressed)

    def step(self, tokens: Tensor) -> Tensor:
        logits_NV = self.stepper.step(tokens).clone()
        logits_NV[:, self.suppressed] = float("-inf")
        return logits_NV

    def keep(self, rows: Tensor) -> None:
        self.stepper.keep(rows)
