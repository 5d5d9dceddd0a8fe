"""Position schemes: one class for each. A class overrides the methods that its scheme needs.

    embed     changes the token embeddings, once         sinusoidal, learned
    rotate    rotates queries and keys, in every layer   rope
    bias      adds to the scores, in every layer         alibi, relative_bias (T5), relative (Shaw)
    values    adds to the output of attention            relative (Shaw)

Each method returns its output and a backward function. Positions are integers [T], counted from the start of the text.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from cutaway.twin.modules import Buffer, ForwardResult, Module, Parameter
from cutaway.twin.ops import Array, Backward, identity, transpose


def no_gradient(dy: Array) -> float:
    """The backward function of a bias that does not depend on the query: its gradient is 0."""
    return 0.0


RopeDivisor = Callable[[Array], Array]  # rotation speed of each pair -> the factor to divide it by


class Position(Module):
    """No position information, and the base class of all schemes."""

    per_layer = False  # True: every layer has its own parameters
    has_values = False

    def embed(self, x: Array, positions: Array) -> ForwardResult:
        """x [B,T,D] -> [B,T,D]"""
        return x, identity

    def rotate(self, x: Array, positions: Array) -> ForwardResult:
        """x [B,H,T,E] -> [B,H,T,E]"""
        return x, identity

    def bias(self, q: Array, query: Array, key: Array) -> tuple[Array | None, Backward]:
        """q [B,H,Q,E], positions [Q] and [K] -> the term added to the scores, broadcastable to [B,H,Q,K].

        backward(d_scores [B,H,Q,K]) -> the gradient of q
        """
        return None, no_gradient

    def values(self, weights: Array, query: Array, key: Array) -> ForwardResult:
        """weights [B,H,Q,K] -> the term added to the output [B,H,Q,E]"""
        raise NotImplementedError


class SinusoidalPosition(Position):
    """x + PE[pos],    PE(pos, 2i) = sin(pos / 10000^(2i/D)),    PE(pos, 2i+1) = cos(pos / 10000^(2i/D))

    PE is constant:    dx = dy
    """

    def __init__(self, d_model: int, max_length: int):
        angle_TP = angles(max_length, d_model)
        self.table = Buffer(np.stack([np.sin(angle_TP), np.cos(angle_TP)], axis=-1).reshape(max_length, d_model))

    def embed(self, x: Array, positions: Array) -> ForwardResult:
        return x + self.table.value[positions], identity


class LearnedPosition(Position):
    """x + P[pos]:    dx = dy,    dP[pos] = Σ_texts dy, because each text has each position once"""

    def __init__(self, d_model: int, max_length: int):
        self.table = Parameter(max_length, d_model)

    def embed(self, x: Array, positions: Array) -> ForwardResult:
        def backward(dy: Array) -> Array:
            d_table = np.zeros_like(self.table.value)
            d_table[positions] = dy.sum(axis=0)
            self.table.add(d_table)
            return dy

        return x + self.table.value[positions], backward


class RotaryPosition(Position):
    """Rotate each pair (x₂ᵢ, x₂ᵢ₊₁) by the angle θ = pos · base^(-2i/E).

        (y₂ᵢ, y₂ᵢ₊₁) = (x₂ᵢ cos θ - x₂ᵢ₊₁ sin θ,  x₂ᵢ sin θ + x₂ᵢ₊₁ cos θ)

    y = R x, so dx = Rᵀ dy. The transpose of a rotation is the rotation by -θ.
    """

    def __init__(self, d_head: int, max_length: int, base: float, divisor: RopeDivisor | None = None):
        angle_TP = angles(max_length, d_head, base)
        if divisor is not None:  # one factor for each pair
            angle_TP = angle_TP / divisor(base ** (-np.arange(0, d_head, 2) / d_head))
        self.cos, self.sin = Buffer(np.cos(angle_TP)), Buffer(np.sin(angle_TP))

    def rotate(self, x: Array, positions: Array) -> ForwardResult:
        cos, sin = self.cos.value[positions], self.sin.value[positions]
        return rotate_pairs(x, cos, sin), lambda dy: rotate_pairs(dy, cos, -sin)


class AlibiPosition(Position):
    """score(i, j) - m_h · |i - j|, with a slope m_h for each head. It has no parameters and no gradient."""

    def __init__(self, n_heads: int):
        self.slopes = Buffer(np.array(alibi_slopes(n_heads)))

    def bias(self, q: Array, query: Array, key: Array) -> tuple[Array, Backward]:
        return -self.slopes.value[:, None, None] * np.abs(query[:, None] - key).astype(q.dtype), no_gradient


class RelativeBiasPosition(Position):
    """score(i, j) + b_h[bucket(j - i)].    The gradient of a bias is the sum over all scores that it was added to."""

    def __init__(self, n_heads: int, buckets: int, max_distance: int, causal: bool):
        self.max_distance, self.causal = max_distance, causal
        self.table = Parameter(buckets, n_heads)

    def bias(self, q: Array, query: Array, key: Array) -> tuple[Array, Backward]:
        bucket_QK = t5_bucket(key - query[:, None], len(self.table.value), self.max_distance, self.causal)

        def backward(d_scores_BHQK: Array) -> float:
            d_table = np.zeros_like(self.table.value)
            np.add.at(d_table, bucket_QK, d_scores_BHQK.sum(axis=0).transpose(1, 2, 0))
            self.table.add(d_table)
            return 0.0

        return self.table.value[bucket_QK].transpose(2, 0, 1), backward


class RelativePosition(Position):
    """A vector for each clipped distance, one table for keys and one for values (Shaw et al. 2018).

        score(i, j) + q_i a^K[j - i]ᵀ / sqrt(E)        output_i + Σ_j weight(i, j) a^V[j - i]

    A table has R = 2·clip + 1 rows, for the distances -clip to clip. Both terms are a product with the whole table and
    an indexing step: `gather_by_distance` copies the entries of q aᵀ to the keys, `sum_by_distance` sums the weights
    by distance. Each of the two indexing steps is the transpose of the other, so each is the other's backward.
    """

    per_layer = True
    has_values = True

    def __init__(self, d_head: int, clip: int):
        self.clip = clip
        self.for_keys = Parameter(2 * clip + 1, d_head)
        self.for_values = Parameter(2 * clip + 1, d_head)

    def bias(self, q: Array, query: Array, key: Array) -> tuple[Array, Backward]:
        distance_QK, scale = self.distance(query, key), 1 / math.sqrt(q.shape[-1])
        by_distance_BHQR = q @ self.for_keys.value.T * scale

        def backward(d_scores: Array) -> Array:
            d_BHQR = sum_by_distance(distance_QK, d_scores, len(self.for_keys.value)) * scale
            self.for_keys.add((transpose(d_BHQR) @ q).sum(axis=(0, 1)))
            return d_BHQR @ self.for_keys.value

        return gather_by_distance(by_distance_BHQR, distance_QK), backward

    def values(self, weights: Array, query: Array, key: Array) -> ForwardResult:
        distance_QK = self.distance(query, key)
        by_distance_BHQR = sum_by_distance(distance_QK, weights, len(self.for_values.value))

        def backward(dy: Array) -> Array:
            self.for_values.add((transpose(by_distance_BHQR) @ dy).sum(axis=(0, 1)))
            return gather_by_distance(dy @ self.for_values.value.T, distance_QK)

        return by_distance_BHQR @ self.for_values.value, backward

    def distance(self, query: Array, key: Array) -> Array:
        return np.clip(key - query[:, None], -self.clip, self.clip) + self.clip


def gather_by_distance(by_distance_BHQR: Array, distance_QK: Array) -> Array:
    """[B,H,Q,R] -> [B,H,Q,K]: for each key, the entry of its distance."""
    return np.take_along_axis(by_distance_BHQR, distance_QK[None, None], axis=-1)


def sum_by_distance(distance_QK: Array, x_BHQK: Array, distances: int) -> Array:
    """[B,H,Q,K] -> [B,H,Q,R]: for each distance, the sum over the keys at that distance."""
    is_at_QKR = (distance_QK[..., None] == np.arange(distances)).astype(x_BHQK.dtype)
    B, H, Q, K = x_BHQK.shape
    summed_QNR = x_BHQK.reshape(B * H, Q, K).transpose(1, 0, 2) @ is_at_QKR
    return summed_QNR.transpose(1, 0, 2).reshape(B, H, Q, distances)


def rotate_pairs(x: Array, cos: Array, sin: Array) -> Array:
    even, odd = x[..., 0::2], x[..., 1::2]
    return np.stack([even * cos - odd * sin, even * sin + odd * cos], axis=-1).reshape(x.shape)


def angles(length: int, width: int, base: float = 10_000.0) -> Array:
    """pos · base^(-2i/width), for each pair i of the columns -> [length, width / 2]"""
    return np.arange(length)[:, None] * base ** (-np.arange(0, width, 2) / width)


def linear_divisor(factor: float) -> RopeDivisor:
    return lambda speed: np.full_like(speed, factor)


def llama3_divisor(factor: float, slow: float, fast: float, original_length: int) -> RopeDivisor:
    """Llama 3.1. The divisor depends on how often a pair rotates within the length of the original training:

    fewer than `slow` times   factor
    more than `fast` times    1
    between them              1 / (s + (1 - s) / factor), with s from 0 to 1
    """

    def divisor(speed: Array) -> Array:
        turns = speed * original_length / (2 * np.pi)
        s = np.clip((turns - slow) / (fast - slow), 0, 1)
        return np.asarray(1 / (s + (1 - s) / factor))

    return divisor


def alibi_slopes(n_heads: int) -> list[float]:
    """2^(-8/n), 2^(-16/n), ... for n heads.

    If n is not a power of two: the slopes of the next lower power p, then every second slope of 2p.
    """
    power = 2 ** (n_heads.bit_length() - 1)
    slopes = [2.0 ** (-8 * (h + 1) / power) for h in range(power)]
    if power == n_heads:
        return slopes
    between = alibi_slopes(2 * power)[::2]
    return slopes + between[: n_heads - power]


def t5_bucket(distance: Array, buckets: int, max_distance: int, causal: bool) -> Array:
    """The bucket of each distance d = key - query. Without a causal mask, half of the buckets are for later keys.

    Of n buckets, the first e = n/2 hold one distance each. The others grow up to max_distance; the last one holds
    everything beyond:

        e + floor(log(d / e) / log(max_distance / e) · (n - e))
    """
    if causal:
        offset, distance = np.zeros_like(distance), np.maximum(-distance, 0)
    else:
        buckets //= 2
        offset, distance = (distance > 0) * buckets, np.abs(distance)
    exact = buckets // 2
    growth = np.log(np.maximum(distance, 1) / exact) / math.log(max_distance / exact) * (buckets - exact)
    # 1e-9: a distance at the start of a bucket must not fall into the bucket before it by rounding
    far = np.minimum(exact + np.floor(growth + 1e-9).astype(np.intp), buckets - 1)
    return offset + np.where(distance < exact, distance, far)
