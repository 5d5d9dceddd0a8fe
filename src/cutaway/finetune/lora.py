"""LoRA: what is learned is added to a matrix, and has a low rank (Hu et al. 2021).

    y = x Wᵀ + b + α/r · (x Aᵀ) Bᵀ        W [out,in] stays as it is;  A = down [r,in], B = up [out,r] are trained

                ┌────────── W ──────────┐
    x [.., in] ─┤                       +──▶ y [.., out]
                └──▶ A ──▶ [.., r] ──▶ B┘

B begins with zeros, so a training begins with the base as it is. What was learned can be added into W, and then costs
nothing more: W + α/r · B A is a matrix like any other.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cutaway.config import FinetuneConfig
from cutaway.finetune.patterns import find_modules, match_names, replace_module
from cutaway.nn.dropout import Dropout

DEFAULT_PARTS = ("*_attention.query", "*_attention.value")  # what the paper settled on (section 4.2)


class LoRALinear(nn.Linear):
    """A linear map with two thin matrices beside it. It takes over the weight and the bias, under the same names."""

    def __init__(self, linear: nn.Linear, rank: int, alpha: float, dropout: float = 0.0):
        super().__init__(linear.in_features, linear.out_features, linear.bias is not None, device="meta")
        self.weight, self.bias = linear.weight, linear.bias
        self.down = nn.Parameter(linear.weight.new_empty(rank, linear.in_features))
        self.up = nn.Parameter(linear.weight.new_zeros(linear.out_features, rank))
        nn.init.uniform_(self.down, -1 / math.sqrt(linear.in_features), 1 / math.sqrt(linear.in_features))
        self.scale, self.dropout = alpha / rank, Dropout(dropout)
        self.before: Tensor | None = None  # the weight, while what was learned is merged into it

    def forward(self, x: Tensor) -> Tensor:
        y = F.linear(x, self.weight, self.bias)
        if self.before is not None:
            return y
        return y + self.scale * F.linear(F.linear(self.dropout(x), self.down), self.up)

    @torch.no_grad()
    def merge(self) -> None:
        """Add what was learned into the weight."""
        if self.before is None:
            self.before = self.weight.clone()
            self.weight += self.scale * (self.up @ self.down)

    @torch.no_grad()
    def unmerge(self) -> None:
        """The weight as it was, to the bit: subtracting would leave a rounding error."""
        if self.before is not None:
            self.weight.copy_(self.before)
            self.before = None


def add_lora(model: nn.Module, finetune: FinetuneConfig) -> list[str]:
    """Put a LowRank in place of each linear map that is to learn. -> their names"""
    chosen = match_names(
        finetune.target_modules or DEFAULT_PARTS, find_modules(model, nn.Linear), "finetune.target_modules"
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
