"""The loss: cross-entropy with label smoothing."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

ROWS = 64  # computed together on a CPU: few enough to fit into its cache with a large vocabulary


def smoothed_cross_entropy(logits: Tensor, target: Tensor, epsilon: float) -> tuple[Tensor, Tensor]:
    """Cross-entropy with the smoothed target q = (1-ε)·one-hot + ε/V, and without smoothing, summed over tokens.

        H(q, p) = -Σ q log p = (1-ε)·(-log p[target]) + ε·(mean over V of -log p)

    Every row counts, so the caller leaves out padding.    logits [N, V], target [N] -> two scalars
    """
    if logits.device.type == "cpu" and logits.requires_grad:
        loss, nll = FusedCrossEntropy.apply(logits, target, epsilon)
        return loss, nll
    log_p_NV = logits.log_softmax(dim=-1)
    nll = -log_p_NV.gather(1, target[:, None]).sum()
    if epsilon == 0:
        return nll, nll
    return (1 - epsilon) * nll - epsilon * log_p_NV.mean(dim=-1).sum(), nll


class FusedCrossEntropy(torch.autograd.Function):
    """The same, a few rows at a time, with the gradient p - q computed in the same pass.

    The [N, V] matrix is the largest tensor of a step. Reading it from memory for each operation of the formula takes
    longer than the arithmetic; a few rows stay in the cache.
    """

    @staticmethod
    def forward(ctx: Any, logits: Tensor, target: Tensor, epsilon: float) -> tuple[Tensor, Tensor]:
        gradient_NV = torch.empty_like(logits)
        nll, uniform = torch.zeros((), dtype=torch.float64), torch.zeros((), dtype=torch.float64)
        for start in range(0, len(logits), ROWS):
            rows, target_R1 = slice(start, start + ROWS), target[start : start + ROWS, None]
            log_p_RV = torch.log_softmax(logits[rows], dim=-1, out=gradient_NV[rows])
            nll -= log_p_RV.gather(1, target_R1).sum()
            if epsilon:
                uniform -= log_p_RV.mean(dim=-1).sum()
            p_RV = log_p_RV.exp_()  # in place, as all that follows: these are rows of the gradient
            if epsilon:
                p_RV.sub_(epsilon / logits.size(1))
            p_RV.scatter_add_(1, target_R1, p_RV.new_full(target_R1.shape, epsilon - 1))
        ctx.save_for_backward(gradient_NV)
        ctx.mark_non_differentiable(nll)
        ctx.set_materialize_grads(False)
        loss = (1 - epsilon) * nll + epsilon * uniform
        return loss.to(logits.dtype), nll.to(logits.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_loss: Tensor, d_nll: None) -> tuple[Tensor, None, None]:
        (gradient_NV,) = ctx.saved_tensors
        return gradient_NV * d_loss, None, None
