"""The step function that every search of the twin drives, and the model behind it.

`step` takes the token just written in each row and gives the logits of the next; `keep` drops, repeats or reorders
rows.
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

PROBE_LOCK = threading.Lock()  # a probe has one listener, and a model may be at work in several threads


class Stepper(Protocol):
    def step(self, tokens: Array) -> Array: ...
    def keep(self, rows: Array) -> None: ...


class TranslationStepper:
    """An EncoderDecoder writing translations of source [B,S]: it reads once, then takes a cached step a token.

    If asked, it tells where it looked in its last step: `source_weights` [N,S], of the last layer, averaged over the heads.
    """

    def __init__(self, model: EncoderDecoder, source: Array, source_mask: Array | None, is_looking: bool = False):
        self.model, self.source_mask, self.cache = model, source_mask, model.new_cache()
        self.memory = Variable(model.encode(source, source_mask, forward_only=True)[0])
        self.text_of_row = np.arange(len(source))
        self.is_looking = is_looking
        self.source_weights: Array | None = None

    def step(self, tokens: Array) -> Array:
        with self.record_source_weights() if self.is_looking else nullcontext():
            x_N1D, _ = self.model.decode(tokens[:, None], self.memory, self.source_mask, cache=self.cache)
        return self.model.head(x_N1D[:, 0])[0]

    @contextmanager
    def record_source_weights(self) -> Iterator[None]:
        attention, mine = self.model.decoder.layers[-1].cross_attention, threading.get_ident()
        assert attention is not None, "a decoder that translates looks at the source"

        def note(which: str, weights_NHQS: Array) -> None:
            if threading.get_ident() == mine:
                self.source_weights = weights_NHQS.mean(axis=1)[:, 0]

        with PROBE_LOCK:
            attention.weights.note = note
            try:
                yield
            finally:
                attention.weights.note = None

    def keep(self, rows: Array) -> None:
        before, self.text_of_row = self.text_of_row, self.text_of_row[rows]
        same_texts = np.array_equal(before, self.text_of_row)  # then every row looks at the source that it looked at
        self.cache.keep(rows, crossed=not same_texts)
        if self.source_mask is not None and not same_texts:
            self.source_mask = self.source_mask[rows]


class TextStepper:
    """A DecoderOnly going on with prompts [B,T]; their last token is left for the first step."""

    def __init__(self, model: DecoderOnly, prompts: Array):
        self.model, self.cache = model, model.new_cache()
        if prompts.shape[1] > 1:
            model.decode(prompts[:, :-1], cache=self.cache)

    def step(self, tokens: Array) -> Array:
        return self.model.head(self.model.decode(tokens[:, None], cache=self.cache)[0][:, 0])[0]

    def keep(self, rows: Array) -> None:
        self.cache.keep(rows)
