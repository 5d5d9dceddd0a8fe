"""Position schemes: how a model that sees a bag of tokens learns their order.

A scheme may act at three places, and overrides the one that it needs:

    embed     on the embedded tokens, once                 sinusoidal, learned
    rotate    on queries and keys, in every layer          rope
    bias      on the scores, in every layer                alibi, relative_bias (T5), relative (Shaw)

All take explicit integer positions rather than counting by themselves, so that decoding with a cache, where one
token comes at a time, is right by construction.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Stretch = Callable[[Tensor], Tensor]  # how fast each pair turns -> how fast it is to turn


class Position(nn.Module):
    """The interface, with neutral defaults. By itself it is the scheme "none": order is not told at all.

    (A causal decoder can learn order even so, from how many tokens it may see; an encoder cannot.)
    """

    max_length: int
    per_layer = False  # True: every layer has one of its own, rather than all sharing one
    has_values = False  # True: `values` adds to the output of attention, for which the weights must be at hand

    def __init__(self, max_length: int):
        super().__init__()
        self.max_length = max_length

    @property
    def rotates(self) -> bool:
        """Whether it has anything to do with queries and keys."""
        return type(self).rotate is not Position.rotate

    @property
    def biases(self) -> bool:
        """... and with the scores."""
        return type(self).bias is not Position.bias or self.has_values

    @property
    def acts_inside(self) -> bool:
        """Whether it has anything to do inside attention."""
        return self.rotates or self.biases

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        """Called once, on the embedded tokens. x [B,T,D], positions [T] -> [B,T,D]"""
        return x

    def rotate(self, x: Tensor, positions: Tensor) -> Tensor:
        """Called on the queries and on the keys of self-attention. x [B,H,T,E], positions [T] -> [B,H,T,E]"""
        return x

    def bias(self, q: Tensor, query: Tensor, key: Tensor) -> Tensor | None:
        """What is added to the scores. q [B,H,Q,E], positions [Q] and [K] -> broadcastable to [B,H,Q,K]"""
        return None

    def values(self, weights: Tensor, query: Tensor, key: Tensor) -> Tensor:
        """With `has_values`: what is added to the output. weights [B,H,Q,K], positions [Q], [K] -> [B,H,Q,E]"""
        raise NotImplementedError


class SinusoidalPosition(Position):
    """PE(pos, 2i) = sin(pos / 10000^(2i/D)),  PE(pos, 2i+1) = cos(pos / 10000^(2i/D))     (the paper, section 3.5)

    The table is a buffer: it moves with the model from device to device, but it is no parameter. Nothing
    trains it, and since it can always be computed again, no checkpoint stores it.
    """

    table: Tensor

    def __init__(self, d_model: int, max_length: int):
        super().__init__(max_length)
        self.register_buffer("table", sinusoids(max_length, d_model), persistent=False)

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        return x + F.embedding(positions, self.table)


class LearnedPosition(Position):
    """A vector for each position, found by training: x + P[pos]. What lies beyond the last one, it cannot know."""

    def __init__(self, d_model: int, max_length: int):
        super().__init__(max_length)
        self.table = nn.Parameter(torch.zeros(max_length, d_model))

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        return x + F.embedding(positions, self.table)


class RotaryPosition(Position):
    """Turn each pair of numbers of a query or key by an angle that grows with its position (RoPE, Su et al. 2021).

        (x₂ᵢ, x₂ᵢ₊₁) ─▶ (x₂ᵢ cos θ - x₂ᵢ₊₁ sin θ,  x₂ᵢ sin θ + x₂ᵢ₊₁ cos θ),    θ = pos · base^(-2i/E)

    A dot product of two turned vectors depends on the *difference* of their angles, so attention sees distances.
    `stretch` changes how fast each pair turns, for texts that are longer than those of the first training.
    """

    cos: Tensor
    sin: Tensor

    def __init__(self, d_head: int, max_length: int, base: float = 10_000.0, stretch: Stretch | None = None):
        super().__init__(max_length)
        speed_P = speeds(d_head, base)
        angle_TP = at_each_position(max_length, speed_P if stretch is None else stretch(speed_P))
        self.register_buffer("cos", angle_TP.cos().to(torch.get_default_dtype()), persistent=False)
        self.register_buffer("sin", angle_TP.sin().to(torch.get_default_dtype()), persistent=False)

    def rotate(self, x: Tensor, positions: Tensor) -> Tensor:
        even, odd = x[..., 0::2], x[..., 1::2]
        cos, sin = self.cos[positions], self.sin[positions]
        return torch.stack([even * cos - odd * sin, even * sin + odd * cos], dim=-1).flatten(-2)


class AlibiPosition(Position):
    """score(i, j) - m_h · |i - j|: attention fades with distance, in each head at its own rate (Press et al. 2022).

    Nothing is learned, and nothing ends: the line goes on beyond the longest text seen in training. It was made for
    decoders; an encoder, which looks both ways, cannot tell left from right by a distance without a sign.
    """

    slopes: Tensor

    def __init__(self, n_heads: int, max_length: int):
        super().__init__(max_length)
        self.register_buffer("slopes", torch.tensor(alibi_slopes(n_heads)), persistent=False)

    def bias(self, q: Tensor, query: Tensor, key: Tensor) -> Tensor | None:
        distance_QK = (query[:, None] - key[None, :]).abs()
        return -self.slopes[:, None, None] * distance_QK


class RelativeBiasPosition(Position):
    """score(i, j) + b_h[bucket(j - i)]: a learned number for each distance, in buckets (T5, Raffel et al. 2020).

    Near distances have a bucket each, far ones share: the buckets widen like a logarithm up to `max_distance`.
    A table serves all layers of a stack; a decoder, which only looks back, spends all buckets on the past.
    """

    bucket: Tensor  # of each distance from -max_distance to max_distance; all beyond are in the outermost ones

    def __init__(self, n_heads: int, max_length: int, buckets: int = 32, max_distance: int = 128, causal: bool = False):
        super().__init__(max_length)
        self.max_distance, self.causal = max_distance, causal
        self.table = nn.Parameter(torch.zeros(buckets, n_heads))
        distances = torch.arange(-max_distance, max_distance + 1)
        self.register_buffer("bucket", t5_bucket(distances, buckets, max_distance, causal), persistent=False)

    def bias(self, q: Tensor, query: Tensor, key: Tensor) -> Tensor | None:
        distance_QK = (key[None, :] - query[:, None]).clamp(-self.max_distance, self.max_distance)
        bucket_QK = self.bucket[distance_QK + self.max_distance]
        return self.table[bucket_QK].permute(2, 0, 1)


class RelativePosition(Position):
    """A learned vector for each distance, added to keys and to values (Shaw et al. 2018, equations 3 and 4).

        score(i, j) = q_i · (k_j + a^K[j - i]) / sqrt(E),    output_i = Σ_j weight(i, j) · (v_j + a^V[j - i])

    Distances beyond `clip` share one vector. The sum over j needs the weights, which no fused kernel gives away.
    """

    per_layer = True
    has_values = True

    def __init__(self, d_head: int, max_length: int, clip: int = 16):
        super().__init__(max_length)
        self.clip = clip
        self.for_keys = nn.Parameter(torch.zeros(2 * clip + 1, d_head))
        self.for_values = nn.Parameter(torch.zeros(2 * clip + 1, d_head))

    def bias(self, q: Tensor, query: Tensor, key: Tensor) -> Tensor | None:
        scores_BHQR = q @ self.for_keys.mT / math.sqrt(q.size(-1))  # one for each distance, then dealt out to the keys
        index_QK = self.index(query, key)
        return scores_BHQR.gather(-1, index_QK.expand(*q.shape[:-1], -1))

    def values(self, weights: Tensor, query: Tensor, key: Tensor) -> Tensor:
        by_distance_BHQR = weights.new_zeros(*weights.shape[:-1], self.for_values.size(0))
        by_distance_BHQR = by_distance_BHQR.scatter_add(-1, self.index(query, key).expand_as(weights), weights)
        return by_distance_BHQR @ self.for_values

    def index(self, query: Tensor, key: Tensor) -> Tensor:
        return (key[None, :] - query[:, None]).clamp(-self.clip, self.clip) + self.clip


def sinusoids(length: int, d_model: int) -> Tensor:
    """The table of the paper's sinusoids: sines in even columns, cosines in odd ones. -> [length, D]"""
    angle_TP = angles(length, d_model)
    table = torch.stack([angle_TP.sin(), angle_TP.cos()], dim=-1).flatten(1)
    return table.to(torch.get_default_dtype())


def angles(length: int, width: int, base: float = 10_000.0) -> Tensor:
    """pos · base^(-2i/width), for each pair i of columns. -> [length, width / 2] in double precision"""
    return at_each_position(length, speeds(width, base))


def speeds(width: int, base: float) -> Tensor:
    """base^(-2i/width): the angle by which pair i turns from one position to the next. -> [width / 2]"""
    even = torch.arange(0, width, 2, dtype=torch.float64)
    return torch.exp(-math.log(base) * even / width)


def at_each_position(length: int, speed_P: Tensor) -> Tensor:
    return torch.arange(length, dtype=torch.float64)[:, None] * speed_P


def linear_stretch(factor: float) -> Stretch:
    """Every pair turns so many times slower: positions lie closer together (Chen et al. 2023)."""
    return lambda speed_P: speed_P / factor


def llama3_stretch(factor: float, slow: float, fast: float, original_length: int) -> Stretch:
    """Only the pairs that turn slowly turn slower still, as in Llama 3.1.

    A pair that turns many times within the length of the first training tells near tokens apart, and is left alone;
    one that does not come round once has positions ahead of it that it has never seen.
    """

    def stretch(speed_P: Tensor) -> Tensor:
        turns_P = original_length * speed_P / (2 * math.pi)
        kept_P = ((turns_P - slow) / (fast - slow)).clamp(0, 1)
        return speed_P * (kept_P + (1 - kept_P) / factor)

    return stretch


def alibi_slopes(n_heads: int) -> list[float]:
    """2^(-8/n), 2^(-16/n), ... for a power of two; else those of the next lower one, and every second of the next."""
    power = 2 ** math.floor(math.log2(n_heads))
    slopes = [2.0 ** (-8 * (h + 1) / power) for h in range(power)]
    return slopes if power == n_heads else slopes + alibi_slopes(2 * power)[0::2][: n_heads - power]


def t5_bucket(distance: Tensor, buckets: int, max_distance: int, causal: bool) -> Tensor:
    """The bucket of each distance (key minus query). Half of them for exact distances, half for the far ones.

    If the future is in sight as well, one half of all buckets is for it, and the other for the past.
    """
    if causal:
        offset, distance = torch.zeros_like(distance), (-distance).clamp(min=0)
    else:
        buckets //= 2
        offset, distance = (distance > 0) * buckets, distance.abs()
    exact = buckets // 2
    wide = torch.tensor(wide_buckets(exact, buckets, max_distance), dtype=torch.long, device=distance.device)
    far = exact + torch.bucketize(distance, wide, right=True)
    return offset + torch.where(distance < exact, distance, far)


def wide_buckets(exact: int, buckets: int, max_distance: int) -> list[int]:
    """Where the buckets for far distances begin, but for the first of them, which begins at `exact`.

    The k-th of n begins at exact · (max_distance / exact)^(k/n). In whole numbers, because a rounded logarithm puts
    some distances into the wrong bucket, and not the same ones in single and in double precision.
    """
    n = buckets - exact
    begins = []
    for k in range(1, n):
        d = math.ceil(exact * (max_distance / exact) ** (k / n)) - 1
        while d**n * exact**k < max_distance**k * exact**n:
            d += 1
        begins.append(d)
    return begins
