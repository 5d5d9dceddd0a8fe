"""Filters that change the logits before sampling, in this order:

    temperature, top-k, top-p, min-p

Each takes the output of the one before it. Shapes are [N, V] -> [N, V]; an excluded token gets -inf.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from torch import Tensor

from cutaway.config import DecodeConfig

Filter = Callable[[Tensor], Tensor]


def temperature(t: float) -> Filter:
    """logits / t: below 1 sharpens the distribution, above 1 flattens it."""
    return lambda logits: logits / t


def top_k(k: int) -> Filter:
    """Keep the k most probable tokens, and all tokens that are as probable as the k-th."""

    def keep_best(logits: Tensor) -> Tensor:
        kth_N1 = logits.topk(min(k, logits.size(-1))).values[:, -1:]
        return logits.masked_fill(logits < kth_N1, float("-inf"))

    return keep_best


def top_p(p: float) -> Filter:
    """Keep the nucleus: the fewest most probable tokens whose probabilities sum to p or more (Holtzman et al. 2020)."""

    def keep_nucleus(logits: Tensor) -> Tensor:
        sorted_NV, order_NV = logits.sort(dim=-1, descending=True)
        p_NV = sorted_NV.softmax(dim=-1)
        # a token is in the nucleus if the sum before it is below p; the first token always is
        outside_NV = p_NV.cumsum(dim=-1) - p_NV >= p
        return logits.masked_fill(outside_NV.scatter(1, order_NV, outside_NV), float("-inf"))

    return keep_nucleus


def min_p(share: float) -> Filter:
    """Keep tokens with at least `share` times the probability of the most probable one (Nguyen et al. 2024).

    p ≥ share · p_max is the same as logit ≥ logit_max + log(share), because the softmax's denominator cancels.
    """
    log_share = math.log(share)

    def keep_likely(logits: Tensor) -> Tensor:
        return logits.masked_fill(logits < logits.amax(dim=-1, keepdim=True) + log_share, float("-inf"))

    return keep_likely


def build_filters(decode: DecodeConfig) -> list[Filter]:
    """The filters that the settings switch on, in order."""
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
