"""What training makes small."""

from __future__ import annotations

from torch import Tensor


def smoothed_cross_entropy(logits: Tensor, target: Tensor, epsilon: float) -> tuple[Tensor, Tensor]:
    """Cross-entropy against the smoothed target q = (1-ε)·one-hot + ε/V, and the plain one, summed over tokens.

        H(q, p) = -Σ q log p = (1-ε)·(-log p[target]) + ε·(mean over V of -log p)

    Every token in `target` counts: who calls leaves padding out.    logits [N, V], target [N] -> two numbers
    """
    log_p_NV = logits.log_softmax(dim=-1)
    plain = -log_p_NV.gather(1, target[:, None]).sum()
    if epsilon == 0:
        return plain, plain
    return (1 - epsilon) * plain - epsilon * log_p_NV.mean(dim=-1).sum(), plain
