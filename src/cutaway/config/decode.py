"""[decode]: how text is searched for."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Literal

from cutaway.config.checks import check_types, require


@dataclass(frozen=True)
class DecodeConfig:
    """How text comes out of a trained model."""

    # "auto": "sample" of a language model, whose likeliest text goes round in circles; "beam" of a translator
    strategy: Literal["auto", "greedy", "beam", "sample"] = "auto"
    beam_size: int = 4
    length_penalty: float = 0.6
    coverage_penalty: float = 0.0  # beam, of translations: how much it costs to leave a source token unlooked at
    temperature: float = 0.8  # sample: below 1 safer, above 1 bolder; 1: the model's own distribution
    top_k: int = 0  # sample: from the k likeliest tokens; 0: from all
    top_p: float = 0.95  # sample: from the likeliest tokens that make up p; 1: from all
    min_p: float = 0.0  # tokens that are less likely than this share of the likeliest are not drawn; 0: all
    seed: int = 0
    repetition_penalty: float = 1.0  # above 1: tokens that were written become less likely
    no_repeat_ngram: int = 0  # no n tokens in a row are written twice; 0: they may be
    suppress: tuple[int, ...] = ()  # ids of tokens that are never written
    min_length: int = 0  # tokens, </s> not counted, before </s> may come
    max_length: int = 0  # tokens a translation may have; 0: 50 more than its source, as in the paper
    batch_size: int = 64  # sentences decoded together

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
        """The same, with the strategy that "auto" stands for in this task."""
        if self.strategy != "auto":
            return self
        return dataclasses.replace(self, strategy="sample" if task == "language_model" else "beam")
