"""What training makes small."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

ROWS = 64  # worked together on a CPU: with a large vocabulary, few enough to stay in its cache


def smoothed_cross_entropy(logits: Tensor, target: Tensor, epsilon: float) -> tuple[Tensor, Tensor]:
    """Cross-entropy against the smoothed target q = (1-ε)·one-hot + ε/V, and the plain one, summed over tokens.

        H(q, p) = -Σ q log p = (1-ε)·(-log p[target]) + ε·(mean over V of -log p)

    Every token in `target` counts: who calls leaves padding out.    logits [N, V], target [N] -> two numbers
    """
    if logits.device.type == "cpu" and logits.requires_grad:
        loss, plain = InPieces.apply(logits, target, epsilon)
        return loss, plain
    log_p_NV = logits.log_softmax(dim=-1)
    plain = -log_p_NV.gather(1, target[:, None]).sum()
    if epsilon == 0:
        return plain, plain
    return (1 - epsilon) * plain - epsilon * log_p_NV.mean(dim=-1).sum(), plain


class InPieces(torch.autograd.Function):
    """The same, a few rows at a time, and the gradient p - q along with it, while they are still in the cache.

    A matrix of all tokens and the whole vocabulary is the largest thing in a step, and to go over it again for each
    operation of the formula above, forward and backward, takes longer than to compute it.
    """

    @staticmethod
    def forward(ctx: Any, logits: Tensor, target: Tensor, epsilon: float) -> tuple[Tensor, Tensor]:
        gradient_NV = torch.empty_like(logits)
        plain, spread = torch.zeros((), dtype=torch.float64), torch.zeros((), dtype=torch.float64)
        for start in range(0, len(logits), ROWS):
            rows, right = slice(start, start + ROWS), target[start : start + ROWS, None]
            piece = torch.log_softmax(logits[rows], dim=-1, out=gradient_NV[rows])
            plain -= piece.gather(1, right).sum()
            if epsilon:
                spread -= piece.mean(dim=-1).sum()
            piece.exp_()  # p
            if epsilon:
                piece.sub_(epsilon / logits.size(1))
            piece.scatter_add_(1, right, piece.new_full(right.shape, epsilon - 1))
        ctx.save_for_backward(gradient_NV)
        ctx.mark_non_differentiable(plain)
        ctx.set_materialize_grads(False)
        loss = (1 - epsilon) * plain + epsilon * spread
        return loss.to(logits.dtype), plain.to(logits.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_loss: Tensor, d_plain: None) -> tuple[Tensor, None, None]:
        (gradient_NV,) = ctx.saved_tensors
        return gradient_NV * d_loss, None, None
