"""The step function that every search drives, and the model behind it."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from cutaway.models.decoder import DecoderOnly
from cutaway.models.encoder_decoder import EncoderDecoder
from cutaway.nn.recording import record_activations


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

    With `record_source_weights`, `source_weights` [N, S] is where each row looked at its last step: the last layer's cross-attention, the
    mean of its heads.
    """

    source_weights: Tensor

    def __init__(
        self,
        model: EncoderDecoder,
        source: Tensor,
        source_mask: Tensor | None = None,
        record_source_weights: bool = False,
    ):
        self.model = model
        self.memory, self.source_mask = self.encode(source, source_mask), source_mask
        self.cache = model.new_cache()
        self.last_look = (
            f"decoder.layers.{len(self.cache.layers) - 1}.cross_attention.weights" if record_source_weights else ""
        )

    def encode(self, source: Tensor, source_mask: Tensor | None) -> Tensor:
        return self.model.encode(source, source_mask)

    def step(self, tokens: Tensor) -> Tensor:
        if not self.last_look:
            return self.next_logits(tokens)
        with record_activations(self.model, self.last_look) as seen:
            logits_NV = self.next_logits(tokens)
        self.source_weights = seen[self.last_look].mean(dim=1).flatten(0, 1)
        return logits_NV

    def next_logits(self, tokens: Tensor) -> Tensor:
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
        self.n_rows = len(prompts)
        if prompts.size(1) > 1:
            model.decode(prompts[:, :-1], cache=self.cache)

    def step(self, tokens: Tensor) -> Tensor:
        return self.model.head(self.model.decode(tokens[:, None], cache=self.cache))[:, 0]

    def keep(self, rows: Tensor) -> None:
        if rows.tolist() != list(range(self.n_rows)):
            self.cache.reorder(rows)
        self.n_rows = len(rows)
