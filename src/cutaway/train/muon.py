"""Muon (Jordan et al. 2024): an optimizer that makes every update of a matrix orthogonal.

A gradient consists mostly of a few strong directions, which hide rare ones. If U S Vᵀ is the singular value
decomposition of the gradient, Muon steps along U Vᵀ: the same directions, all with the same strength.

torch.optim has a Muon too, and a test compares the two. It computes in bfloat16, for which most CPUs have no
instructions (it took twenty times as long as the rest of a step), and one matrix at a time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

A, B, C = 3.4445, -4.7750, 2.0315  # chosen so that small singular values grow fast; they end near 1, not at 1
ROUNDS = 5
EPSILON = 1e-7

MapRows = Callable[[Callable[[Tensor], Tensor], Tensor], Tensor]


def map_rows_locally(function: Callable[[Tensor], Tensor], matrices: Tensor) -> Tensor:
    return function(matrices)


def orthogonalize(matrices_NAB: Tensor) -> Tensor:
    """Approximate U Vᵀ for each matrix U S Vᵀ by Newton-Schulz: X ← a X + b (X Xᵀ) X + c (X Xᵀ)² X, five times.

    Each round applies the same polynomial to every singular value and leaves U and V as they are. It needs matrix
    products only, no decomposition.
    """
    is_tall = matrices_NAB.size(1) > matrices_NAB.size(2)
    x = matrices_NAB.mT if is_tall else matrices_NAB
    x = x.to(torch.bfloat16) if x.is_cuda else x
    x = x / x.norm(dim=(1, 2), keepdim=True).clamp(min=EPSILON)  # now no singular value is above 1
    for _ in range(ROUNDS):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=B, alpha=C), x, beta=A)
    return (x.mT if is_tall else x).to(matrices_NAB.dtype)


class Muon(torch.optim.Optimizer):
    """Momentum, made orthogonal. An update is as large as AdamW's, so both can use the same learning rate
    (Liu et al. 2025) and weight decay."""

    def __init__(
        self,
        matrices: Iterable[nn.Parameter],
        lr: float,
        momentum: float,
        weight_decay: float,
        map_rows: MapRows = map_rows_locally,
    ):
        """`map_rows` can divide the work between processes that have the same matrices (train/distributed.py)."""
        super().__init__(matrices, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})
        self.map_rows = map_rows

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
        """Update matrices of one shape together."""
        gradients = [matrix.grad for matrix in matrices if matrix.grad is not None]
        momenta = [self.momentum_of(matrix) for matrix in matrices]
        torch._foreach_lerp_(momenta, gradients, 1 - group["momentum"])
        nesterov = torch._foreach_lerp(gradients, momenta, group["momentum"])
        updates = self.map_rows(orthogonalize, torch.stack(list(nesterov))).unbind()
        torch._foreach_mul_(matrices, 1 - group["lr"] * group["weight_decay"])
        torch._foreach_add_(matrices, updates, alpha=-group["lr"] * 0.2 * math.sqrt(max(matrices[0].shape)))

    def momentum_of(self, matrix: Tensor) -> Tensor:
        state = self.state[matrix]
        if not state:
            state["momentum_buffer"] = torch.zeros_like(matrix)
        momentum: Tensor = state["momentum_buffer"]
        return momentum
