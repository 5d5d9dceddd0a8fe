"""Muon (Jordan et al. 2024): every update of a matrix is made orthogonal, so that all directions are learned alike.

A gradient is mostly a few strong directions; what is rare, and often what is new, drowns in them. If U S Vᵀ is the
gradient's singular value decomposition, Muon takes a step along U Vᵀ: the same directions, all equally strong.

torch.optim has a Muon, too, and a test holds the two together. That one computes in bfloat16, for which most CPUs have
no instructions (there it took twenty times as long as the rest of a step), and matrix by matrix.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

A, B, C = 3.4445, -4.7750, 2.0315  # chosen so that small singular values grow fast; they end near 1, not at it
ROUNDS = 5
EPSILON = 1e-7

Divided = Callable[[Callable[[Tensor], Tensor], Tensor], Tensor]


def undivided(function: Callable[[Tensor], Tensor], matrices: Tensor) -> Tensor:
    return function(matrices)


def orthogonal(matrices_NAB: Tensor) -> Tensor:
    """For each matrix U S Vᵀ about U Vᵀ, by Newton-Schulz: X ← a X + b (X Xᵀ) X + c (X Xᵀ)² X, five times.

    Each round puts every singular value through the same polynomial and leaves U and V as they are. No decomposition
    is needed, only products.
    """
    tall = matrices_NAB.size(1) > matrices_NAB.size(2)
    x = matrices_NAB.mT if tall else matrices_NAB
    x = x.to(torch.bfloat16) if x.is_cuda else x
    x = x / x.norm(dim=(1, 2), keepdim=True).clamp(min=EPSILON)  # then no singular value is above 1
    for _ in range(ROUNDS):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=B, alpha=C), x, beta=A)
    return (x.mT if tall else x).to(matrices_NAB.dtype)


class Muon(torch.optim.Optimizer):
    """Momentum, made orthogonal. An update has the size that AdamW's would have, so one learning rate serves both
    (Liu et al. 2025); weight decay is AdamW's as well."""

    def __init__(
        self,
        matrices: Iterable[nn.Parameter],
        lr: float,
        momentum: float,
        weight_decay: float,
        divided: Divided = undivided,
    ):
        """`divided` may share the work out among processes that have the same matrices (train/distributed.py)."""
        super().__init__(matrices, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})
        self.divided = divided

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            by_shape: dict[torch.Size, list[Tensor]] = {}
            for matrix in group["params"]:
                if matrix.grad is not None:
                    by_shape.setdefault(matrix.shape, []).append(matrix)
            for matrices in by_shape.values():
                self.update(matrices, group)

    def update(self, matrices: list[Tensor], group: dict[str, Any]) -> None:
        """Matrices of one shape, all at once."""
        gradients = [matrix.grad for matrix in matrices if matrix.grad is not None]
        momenta = [self.momentum_of(matrix) for matrix in matrices]
        torch._foreach_lerp_(momenta, gradients, 1 - group["momentum"])
        ahead = torch._foreach_lerp(gradients, momenta, group["momentum"])  # Nesterov: where the momentum leads
        updates = self.divided(orthogonal, torch.stack(list(ahead))).unbind()
        torch._foreach_mul_(matrices, 1 - group["lr"] * group["weight_decay"])
        torch._foreach_add_(matrices, updates, alpha=-group["lr"] * 0.2 * math.sqrt(max(matrices[0].shape)))

    def momentum_of(self, matrix: Tensor) -> Tensor:
        state = self.state[matrix]
        if not state:
            state["momentum_buffer"] = torch.zeros_like(matrix)
        momentum: Tensor = state["momentum_buffer"]
        return momentum
