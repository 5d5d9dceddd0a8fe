"""LoRA: fine-tuning adds a low-rank matrix to a fixed one (Hu et al. 2021).

    y = x Wᵀ + b + α/r · (x Aᵀ) Bᵀ        W [out,in] is fixed;  A = down [r,in] and B = up [out,r] are trained

                ┌────────── W ──────────┐
    x [.., in] ─┤                       +──▶ y [.., out]
                └──▶ A ──▶ [.., r] ──▶ B┘

B starts with zeros, so training starts from the base model. After training, W + α/r · B A can replace W; then inference
costs nothing more.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cutaway.config import FinetuneConfig
from cutaway.finetune.patterns import find_modules, match_names, replace_module
from cutaway.nn.dropout import Dropout

DEFAULT_MODULES = ("*_attention.query", "*_attention.value")  # the choice of the LoRA paper (section 4.2)


class LoRALinear(nn.Linear):
    """A linear map with two low-rank matrices. It uses the weight and bias of `linear`, under the same names."""

    def __init__(self, linear: nn.Linear, rank: int, alpha: float, dropout: float = 0.0):
        super().__init__(linear.in_features, linear.out_features, linear.bias is not None, device="meta")
        self.weight, self.bias = linear.weight, linear.bias
        self.down = nn.Parameter(linear.weight.new_empty(rank, linear.in_features))
        self.up = nn.Parameter(linear.weight.new_zeros(linear.out_features, rank))
        nn.init.uniform_(self.down, -1 / math.sqrt(linear.in_features), 1 / math.sqrt(linear.in_features))
        self.scale, self.dropout = alpha / rank, Dropout(dropout)
        self.unmerged_weight: Tensor | None = None  # while the low-rank matrices are merged into `weight`

    def forward(self, x: Tensor) -> Tensor:
        y = F.linear(x, self.weight, self.bias)
        if self.unmerged_weight is not None:
            return y
        return y + self.scale * F.linear(F.linear(self.dropout(x), self.down), self.up)

    @torch.no_grad()
    def merge(self) -> None:
        """Add the low-rank matrices to the weight."""
        if self.unmerged_weight is None:
            self.unmerged_weight = self.weight.clone()
            self.weight += self.scale * (self.up @ self.down)

    @torch.no_grad()
    def unmerge(self) -> None:
        """Restore the weight exactly. (Subtracting would leave a rounding error.)"""
        if self.unmerged_weight is not None:
            self.weight.copy_(self.unmerged_weight)
            self.unmerged_weight = None


def add_lora(model: nn.Module, finetune: FinetuneConfig) -> list[str]:
    """Replace each linear map that `target_modules` matches by a LoRALinear. Return their names."""
    chosen = match_names(
        finetune.target_modules or DEFAULT_MODULES, find_modules(model, nn.Linear), "finetune.target_modules"
    )
    for name in chosen:
        linear = model.get_submodule(name)
        assert isinstance(linear, nn.Linear)
        replace_module(model, name, LoRALinear(linear, finetune.rank, finetune.alpha, finetune.dropout))
    return chosen


def merge(model: nn.Module) -> None:
    for part in model.modules():
        if isinstance(part, LoRALinear):
            part.merge()


def unmerge(model: nn.Module) -> None:
    for part in model.modules():
        if isinstance(part, LoRALinear):
            part.unmerge()
