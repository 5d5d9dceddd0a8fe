"""The step function that every search calls, and the models behind it."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from cutaway.models.decoder import DecoderOnly
from cutaway.models.encoder_decoder import EncoderDecoder
from cutaway.nn.recording import record_activations


class Stepper(Protocol):
    """A model that generates several texts, one per row, and keeps its own state between steps."""

    def step(self, tokens: Tensor) -> Tensor:
        """The latest token of each row [N] -> logits [N, V] for the next token."""
        ...

    def keep(self, rows: Tensor) -> None:
        """Row i continues from the state of row rows[i]. So rows can be dropped, repeated and reordered."""
        ...


class TranslationStepper:
    """An EncoderDecoder that translates `source` [B, S]: encode once, then one cached step per token.

    With `record_source_weights`, each step sets `source_weights` [N, S]: the cross-attention weights of the last layer,
    averaged over its heads.
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
        self.weights_probe = (
            f"decoder.layers.{len(self.cache.layers) - 1}.cross_attention.weights" if record_source_weights else ""
        )

    def encode(self, source: Tensor, source_mask: Tensor | None) -> Tensor:
        return self.model.encode(source, source_mask)

    def step(self, tokens: Tensor) -> Tensor:
        if not self.weights_probe:
            return self.next_logits(tokens)
        with record_activations(self.model, self.weights_probe) as recorded:
            logits_NV = self.next_logits(tokens)
        self.source_weights = recorded[self.weights_probe].mean(dim=1).flatten(0, 1)
        return logits_NV

    def next_logits(self, tokens: Tensor) -> Tensor:
        x_N1D = self.model.decode(tokens[:, None], self.memory, self.source_mask, cache=self.cache)
        return self.model.head(x_N1D)[:, 0]

    def keep(self, rows: Tensor) -> None:
        self.cache.reorder(rows)
        self.memory = self.memory[rows]
        self.source_mask = None if self.source_mask is None else self.source_mask[rows]


class TextStepper:
    """A DecoderOnly that continues prompts [B, T] of the same length.

    It reads all but the last token of the prompts at once. The first step of the search reads the last one.
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
