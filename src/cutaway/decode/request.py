"""What a search is asked for, and what it finds: the words that all engines share. No torch here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from cutaway.config import DecodeConfig

NO_NUMBERS = (
    "the model's logits are not finite numbers, so there is nothing to draw from. Its training has diverged, or its "
    "weights are damaged: take those of an earlier checkpoint."
)
Rows = Sequence[Sequence[int]]  # of token ids


class Search(NamedTuple):
    """What an engine is to look for, for each of some rows."""

    decode: DecodeConfig
    limits: Sequence[int]  # how many tokens each text may have, </s> counted
    numbers: Sequence[int]  # which text of the call each row is
    bos: int
    eos: int
    n_best: int = 1
    prefix: Sequence[int] = ()  # what every text begins with, whatever the model thinks of it
    watch: Callable[[Any], None] | None = None  # of beam search: shown every step

    def draws(self) -> list[np.random.Generator]:
        """A source of chance for each row. It follows from the seed and the text's number, and from nothing else:
        neither the batch that a text is in nor the engine changes what is drawn for it."""
        return [np.random.default_rng([self.decode.seed, number]) for number in self.numbers]


@dataclass(frozen=True)
class Hypothesis:
    """A text that a search has written.

    tokens            without <s> and </s>
    log_probability   the sum over its tokens, </s> included
    score             what the search ranks by: the same; in beam search with the length penalty
    finished          ended by </s>, rather than cut off at the greatest length
    """

    tokens: list[int]
    log_probability: float
    score: float
    finished: bool
