"""[decode]: how a trained model generates text."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Literal

from cutaway.config.checks import check_types, require


@dataclass(frozen=True)
class DecodeConfig:
    """How a trained model generates text."""

    # The search; "auto": "sample" for a language model, "beam" for a translator.
    strategy: Literal["auto", "greedy", "beam", "sample"] = "auto"
    beam_size: int = 4  # beam: the number of hypotheses.
    length_penalty: float = 0.6  # beam: the exponent of the length penalty; 0: none.
    coverage_penalty: float = 0.0  # beam, translation: the cost of source tokens that get little attention.
    temperature: float = 0.8  # sample: the divisor of the logits; 1: the model's own distribution.
    top_k: int = 0  # sample: only the k most likely tokens; 0: all.
    top_p: float = 0.95  # sample: only the most likely tokens whose probabilities add up to p; 1: all.
    min_p: float = 0.0  # sample: only tokens at least this fraction as likely as the most likely one; 0: all.
    seed: int = 0  # sample: the seed.
    repetition_penalty: float = 1.0  # Above 1: tokens that were already generated become less likely.
    no_repeat_ngram: int = 0  # Above 0: no sequence of this number of tokens is generated twice.
    suppress: tuple[int, ...] = ()  # Token ids that are never generated.
    min_length: int = 0  # The number of tokens before </s> is allowed.
    max_length: int = 0  # The longest translation in tokens; 0: 50 more than its source, as in the paper.
    batch_size: int = 64  # The number of texts decoded together.

    def __post_init__(self) -> None:
        check_types(self)
        for name in ("beam_size", "batch_size"):
            require(getattr(self, name) >= 1, self, name, "must be at least 1")
        require(self.beam_size <= 1_000, self, "beam_size", "is above the limit of 1,000")
        for name in (
            "length_penalty", "coverage_penalty", "top_k", "no_repeat_ngram", "min_length", "max_length", "seed",
        ):  # fmt: skip
            require(getattr(self, name) >= 0, self, name, "must not be negative")
        for name in ("length_penalty", "coverage_penalty", "temperature", "repetition_penalty"):
            require(math.isfinite(getattr(self, name)), self, name, "must be a finite number")
        require(self.repetition_penalty > 0, self, "repetition_penalty", "must be positive; 1 changes nothing")
        require(0 <= self.min_p <= 1, self, "min_p", "must be between 0 and 1")
        require(all(id >= 0 for id in self.suppress), self, "suppress", "must be ids of tokens, counted from 0")
        require(self.temperature > 0, self, "temperature", "must be positive; for no randomness use greedy")
        require(0 < self.top_p <= 1, self, "top_p", "must be above 0 and at most 1")

    def for_task(self, task: str) -> DecodeConfig:
        """A copy in which the strategy "auto" is replaced by the task's default."""
        if self.strategy != "auto":
            return self
        return dataclasses.replace(self, strategy="sample" if task == "language_model" else "beam")
