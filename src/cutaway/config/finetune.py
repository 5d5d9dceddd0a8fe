"""[finetune]: the run that a training starts from, and which weights are trained."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Literal

from cutaway.config.checks import check_types, refuse_unread, require


@dataclass(frozen=True)
class FinetuneConfig:
    """The run that a training starts from, and which weights are trained. Without a base, all start at random."""

    base: str = ""  # The run to start from: its folder, or the name of a recipe whose run is in runs/.
    # "full" trains the weights themselves; the others freeze them and train an adapter (finetune/).
    method: Literal["full", "lora", "prefix", "prompt"] = "full"
    # Name patterns of the modules that get an adapter; empty: the method's default.
    target_modules: tuple[str, ...] = ()
    rank: int = 8  # lora: the rank of the added matrices.
    alpha: float = 16.0  # lora: the added matrices are multiplied by alpha / rank.
    dropout: float = 0.0  # lora: dropout on the input of the added matrices.
    prompt_length: int = 16  # prefix, prompt: the number of learned vectors before the text.
    freeze: tuple[str, ...] = ()  # full: name patterns of the weights that are not trained.
    # lora, prefix, prompt: name patterns of weights that are trained in addition to the adapter.
    also_train: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_types(self)
        for name in ("rank", "prompt_length"):
            require(getattr(self, name) >= 1, self, name, "must be at least 1")
        require(self.alpha > 0, self, "alpha", "must be positive")
        require(0 <= self.dropout < 1, self, "dropout", "must be at least 0 and below 1")
        if not self.base:
            others = [f.name for f in dataclasses.fields(self) if f.name != "base"]
            refuse_unread(self, others, "finetune.base names no run to start from")
        unread = {
            "full": ("target_modules", "rank", "alpha", "dropout", "prompt_length", "also_train"),
            "lora": ("freeze", "prompt_length"),
        }
        why = f"finetune.method = {self.method!r} does not use it"
        refuse_unread(self, unread.get(self.method, ("freeze", "rank", "alpha", "dropout")), why)

    @property
    def is_adapter(self) -> bool:
        """Whether the base is not changed, and only the adapter is saved."""
        return self.method != "full"
