"""Position schemes that add a bias to the scores, depending on the distance between query and key."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from cutaway.nn.masks import Span
from cutaway.nn.positions import Position, as_tensor


class RelativeScores(Position):
    """Base class: `bias` is added to the scores."""

    acts_in_attention = True

    def bias(self, q: Tensor, query: Span | Tensor, key: Span | Tensor) -> Tensor:
        """q [B,H,Q,E], Q and K positions -> broadcastable to [B,H,Q,K]"""
        raise NotImplementedError

    def kernel_arguments(self, q: Tensor, query: Span | Tensor, key: Span | Tensor) -> dict[str, Any]:
        return {"bias": self.bias(q, query, key)}


class AlibiPosition(RelativeScores):
    """score(i, j) - m_h · |i - j|: attention falls with distance, with a slope m_h for each head (Press et al. 2022).

    It has no parameters and works for texts longer than those in training. It was designed for decoders: an encoder
    cannot distinguish left from right, because |i - j| has no sign.
    """

    slopes: Tensor

    def __init__(self, n_heads: int, max_length: int):
        super().__init__(max_length)
        self.register_buffer("slopes", torch.tensor(alibi_slopes(n_heads)), persistent=False)

    def bias(self, q: Tensor, query: Span | Tensor, key: Span | Tensor) -> Tensor:
        distance_QK = distances(query, key, q.device).abs()
        return -self.slopes[:, None, None] * distance_QK


class RelativeBiasPosition(RelativeScores):
    """score(i, j) + b_h[bucket(j - i)]: a learned number for each bucket of distances (T5, Raffel et al. 2020).

    Each short distance has its own bucket. Longer distances share buckets that widen logarithmically up to
    `max_distance`. All layers of a stack share one table. A decoder uses all buckets for the past.
    """

    bucket: Tensor  # for distances -max_distance ... max_distance; longer ones use the first and last

    def __init__(self, n_heads: int, max_length: int, buckets: int = 32, max_distance: int = 128, causal: bool = False):
        super().__init__(max_length)
        self.max_distance, self.causal = max_distance, causal
        self.table = nn.Parameter(torch.zeros(buckets, n_heads))
        distances = torch.arange(-max_distance, max_distance + 1)
        self.register_buffer("bucket", t5_bucket(distances, buckets, max_distance, causal), persistent=False)

    def bias(self, q: Tensor, query: Span | Tensor, key: Span | Tensor) -> Tensor:
        distance_QK = distances(query, key, q.device).clamp(-self.max_distance, self.max_distance)
        bucket_QK = self.bucket[distance_QK + self.max_distance]
        return self.table[bucket_QK].permute(2, 0, 1)


class RelativePosition(RelativeScores):
    """A learned vector for each distance, added to keys and to values (Shaw et al. 2018, equations 3 and 4).

        score(i, j) = q_i · (k_j + a^K[j - i]) / sqrt(E),    output_i = Σ_j weight(i, j) · (v_j + a^V[j - i])

    Distances beyond `clip` share one vector. The sum over j needs the weights, which a fused kernel does not return.
    """

    per_layer = True

    def __init__(self, d_head: int, max_length: int, clip: int = 16):
        super().__init__(max_length)
        self.clip = clip
        self.for_keys = nn.Parameter(torch.zeros(2 * clip + 1, d_head))
        self.for_values = nn.Parameter(torch.zeros(2 * clip + 1, d_head))

    def bias(self, q: Tensor, query: Span | Tensor, key: Span | Tensor) -> Tensor:
        scores_BHQR = q @ self.for_keys.mT / math.sqrt(q.size(-1))  # R: one score for each distance
        index_QK = self.index(query, key)
        return scores_BHQR.gather(-1, index_QK.expand(*q.shape[:-1], -1))

    def kernel_arguments(self, q: Tensor, query: Span | Tensor, key: Span | Tensor) -> dict[str, Any]:
        values = partial(self.values, query=query, key=key)
        return {"bias": self.bias(q, query, key), "relative_values": values}

    def values(self, weights: Tensor, query: Span | Tensor, key: Span | Tensor) -> Tensor:
        """The term added to the output. weights [B,H,Q,K], Q and K positions -> [B,H,Q,E]"""
        by_distance_BHQR = weights.new_zeros(*weights.shape[:-1], self.for_values.size(0))
        by_distance_BHQR = by_distance_BHQR.scatter_add(-1, self.index(query, key).expand_as(weights), weights)
        return by_distance_BHQR @ self.for_values

    def index(self, query: Span | Tensor, key: Span | Tensor) -> Tensor:
        return distances(query, key, self.for_keys.device).clamp(-self.clip, self.clip) + self.clip


def distances(query: Span | Tensor, key: Span | Tensor, device: torch.device) -> Tensor:
    """key - query: Q and K positions -> [Q,K]"""
    return as_tensor(key, device)[None, :] - as_tensor(query, device)[:, None]


def alibi_slopes(n_heads: int) -> list[float]:
    """2^(-8/n), 2^(-16/n), ... if n is a power of 2.

    Otherwise: the slopes of the next lower power, then every second slope of the next higher one.
    """
    power = 2 ** math.floor(math.log2(n_heads))
    slopes = [2.0 ** (-8 * (h + 1) / power) for h in range(power)]
    return slopes if power == n_heads else slopes + alibi_slopes(2 * power)[0::2][: n_heads - power]


def t5_bucket(distance: Tensor, buckets: int, max_distance: int, causal: bool) -> Tensor:
    """The bucket of each distance (key minus query). Half of the buckets hold one distance each, half hold ranges.

    Without `causal`, half of all buckets are for the future and half for the past.
    """
    if causal:
        offset, distance = torch.zeros_like(distance), (-distance).clamp(min=0)
    else:
        buckets //= 2
        offset, distance = (distance > 0) * buckets, distance.abs()
    exact = buckets // 2
    starts = torch.tensor(range_starts(exact, buckets, max_distance), dtype=torch.long, device=distance.device)
    far = exact + torch.bucketize(distance, starts, right=True)
    return offset + torch.where(distance < exact, distance, far)


def range_starts(exact: int, buckets: int, max_distance: int) -> list[int]:
    """Where each range bucket starts, except the first one, which starts at `exact`.

    The k-th of n starts at exact · (max_distance / exact)^(k/n). Computed in integers, because rounding the logarithm
    puts some distances into the wrong bucket, and different ones in single and double precision.
    """
    n = buckets - exact
    starts = []
    for k in range(1, n):
        d = math.ceil(exact * (max_distance / exact) ** (k / n)) - 1
        while d**n * exact**k < max_distance**k * exact**n:
            d += 1
        starts.append(d)
    return starts
