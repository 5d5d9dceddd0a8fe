"""One decoding step of a model: the interface that every search of the twin uses, and its two implementations.

`step` takes the last token of each row and returns the logits of the next one. `keep` drops, repeats or reorders rows.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Protocol

import numpy as np

from cutaway.twin.model import DecoderOnly, EncoderDecoder
from cutaway.twin.modules import Variable
from cutaway.twin.ops import Array

PROBE_LOCK = threading.Lock()  # a probe has one callback, and several threads may use the same model


class Stepper(Protocol):
    def step(self, tokens: Array) -> Array: ...
    def keep(self, rows: Array) -> None: ...


class TranslationStepper:
    """Translate source [B,S] with an EncoderDecoder: encode once, then one cached step for each token.

    With `record_source_weights`, `source_weights` [N,S] are the cross-attention weights of the last step: last layer,
    mean over heads.
    """

    def __init__(
        self, model: EncoderDecoder, source: Array, source_mask: Array | None, record_source_weights: bool = False
    ):
        self.model, self.source_mask, self.cache = model, source_mask, model.new_cache()
        self.memory = Variable(model.encode(source, source_mask, forward_only=True)[0])
        self.text_of_row = np.arange(len(source))
        self.record_source_weights = record_source_weights
        self.source_weights: Array | None = None

    def step(self, tokens: Array) -> Array:
        with self.recording() if self.record_source_weights else nullcontext():
            x_N1D, _ = self.model.decode(tokens[:, None], self.memory, self.source_mask, cache=self.cache)
        return self.model.head(x_N1D[:, 0])[0]

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Store the cross-attention weights of the last layer in `source_weights`."""
        attention, thread = self.model.decoder.layers[-1].cross_attention, threading.get_ident()
        assert attention is not None, "a translation model has cross-attention"

        def store(kind: str, weights_NHQS: Array) -> None:
            if threading.get_ident() == thread:
                self.source_weights = weights_NHQS.mean(axis=1)[:, 0]

        with PROBE_LOCK:
            attention.weights.callback = store
            try:
                yield
            finally:
                attention.weights.callback = None

    def keep(self, rows: Array) -> None:
        before, self.text_of_row = self.text_of_row, self.text_of_row[rows]
        same_texts = np.array_equal(before, self.text_of_row)  # then each row keeps its source
        self.cache.reorder(rows, cross=not same_texts)
        if self.source_mask is not None and not same_texts:
            self.source_mask = self.source_mask[rows]


class TextStepper:
    """Continue prompts [B,T] with a DecoderOnly. The first step reads the last token of each prompt."""

    def __init__(self, model: DecoderOnly, prompts: Array):
        self.model, self.cache = model, model.new_cache()
        if prompts.shape[1] > 1:
            model.decode(prompts[:, :-1], cache=self.cache)

    def step(self, tokens: Array) -> Array:
        return self.model.head(self.model.decode(tokens[:, None], cache=self.cache)[0][:, 0])[0]

    def keep(self, rows: Array) -> None:
        self.cache.reorder(rows)
