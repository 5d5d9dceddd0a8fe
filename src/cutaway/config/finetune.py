"""[finetune]: the run that a training begins with, and what of it is trained."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Literal

from cutaway.config.checks import check_types, refuse_unread, require


@dataclass(frozen=True)
class FinetuneConfig:
    """What a training begins with, and which part of it is trained. No base: everything, from nothing."""

    base: str = ""  # a run folder, or the name of a recipe, whose run is then in runs/
    # "full": the weights themselves. The others leave them as they are and train a little beside them (finetune/).
    method: Literal["full", "lora", "prefix", "prompt"] = "full"
    parts: tuple[str, ...] = ()  # patterns of names: what gets an adapter; none: what is usual for the method
    rank: int = 8  # lora: of the matrices that are added
    alpha: float = 16.0  # lora: what is added counts alpha / rank times
    dropout: float = 0.0  # lora: on what the added matrices read
    length: int = 16  # prefix, prompt: how many vectors stand before the text
    freeze: tuple[str, ...] = ()  # full: patterns of names of weights that stay as they are
    train: tuple[str, ...] = ()  # the others: patterns of names of weights that are trained beside the adapter

    def __post_init__(self) -> None:
        check_types(self)
        for name in ("rank", "length"):
            require(getattr(self, name) >= 1, self, name, "must be at least 1")
        require(self.alpha > 0, self, "alpha", "must be positive")
        require(0 <= self.dropout < 1, self, "dropout", "must be at least 0 and below 1")
        if not self.base:
            others = [f.name for f in dataclasses.fields(self) if f.name != "base"]
            refuse_unread(self, others, "finetune.base names no run to begin with")
        unread = {"full": ("parts", "rank", "alpha", "dropout", "length", "train"), "lora": ("freeze", "length")}
        of_vectors = ("freeze", "rank", "alpha", "dropout")
        why = f"finetune.method = {self.method!r} does not look at it"
        refuse_unread(self, unread.get(self.method, of_vectors), why)

    @property
    def is_adapter(self) -> bool:
        """Whether the base stays as it is, and what is trained is kept alone."""
        return self.method != "full"
