"""What training makes small."""

from __future__ import annotations

from torch import Tensor


def smoothed_cross_entropy(logits: Tensor, target: Tensor, epsilon: float) -> Tensor:
    """Cross-entropy against the smoothed target q = (1-ε)·one-hot + ε/V, summed over tokens.

        H(q, p) = -Σ q log p = (1-ε)·(-log p[target]) + ε·(mean over V of -log p)

    ε = 0 is the ordinary cross-entropy. Every token in `target` counts: who calls leaves padding out.
    logits [N, V], target [N] -> a number.
    """
    log_p_NV = logits.log_softmax(dim=-1)
    loss = -log_p_NV.gather(1, target[:, None]).sum()
    if epsilon:
        loss = (1 - epsilon) * loss - epsilon * log_p_NV.mean(dim=-1).sum()
    return loss
