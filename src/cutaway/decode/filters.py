"""Filters: logits in, logits out. They shape the distribution that sampling draws from.

All take and give [N, V]; a token that may not be drawn gets -inf.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

Filter = Callable[[Tensor], Tensor]


def temperature(t: float) -> Filter:
    """logits / t: below 1 sharpens towards the likeliest token, above 1 flattens towards chance."""
    return lambda logits: logits / t


def top_k(k: int) -> Filter:
    """Only the k likeliest tokens may be drawn (and those exactly as likely as the k-th)."""

    def keep_best(logits: Tensor) -> Tensor:
        kth_N1 = logits.topk(min(k, logits.size(-1))).values[:, -1:]
        return logits.masked_fill(logits < kth_N1, float("-inf"))

    return keep_best


def top_p(p: float) -> Filter:
    """Only the nucleus may be drawn: the fewest likeliest tokens whose probabilities reach p (Holtzman et al. 2020)."""

    def keep_nucleus(logits: Tensor) -> Tensor:
        sorted_NV, order_NV = logits.sort(dim=-1, descending=True)
        p_NV = sorted_NV.softmax(dim=-1)
        # a token is in the nucleus if those before it have not reached p; the first one always is
        outside_NV = p_NV.cumsum(dim=-1) - p_NV >= p
        return logits.masked_fill(outside_NV.scatter(1, order_NV, outside_NV), float("-inf"))

    return keep_nucleus
