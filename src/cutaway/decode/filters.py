"""Filters: logits in, logits out. They shape the distribution that sampling draws from, in this order:

    temperature, top-k, top-p, min-p

Each looks at what those before it left. All take and give [N, V]; a token that may not be drawn gets -inf.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from torch import Tensor

from cutaway.config import DecodeConfig

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


def min_p(share: float) -> Filter:
    """Only tokens that are at least `share` times as likely as the likeliest may be drawn (Nguyen et al. 2024).

    p ≥ share · p_max is logit ≥ logit_max + log(share): what the probabilities are divided by does not matter.
    """
    below = math.log(share)

    def keep_likely(logits: Tensor) -> Tensor:
        return logits.masked_fill(logits < logits.amax(dim=-1, keepdim=True) + below, float("-inf"))

    return keep_likely


def build_filters(decode: DecodeConfig) -> list[Filter]:
    """Those that change anything, in their order."""
    filters: list[Filter] = []
    if decode.temperature != 1:
        filters.append(temperature(decode.temperature))
    if decode.top_k:
        filters.append(top_k(decode.top_k))
    if decode.top_p < 1:
        filters.append(top_p(decode.top_p))
    if decode.min_p > 0:
        filters.append(min_p(decode.min_p))
    return filters
