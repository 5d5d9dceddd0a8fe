"""Linear attention: a feature map instead of the softmax, so that one sum over the keys serves all queries.

    softmax:   out_i = Σ_j exp(q_i·k_j) v_j / Σ_j exp(q_i·k_j)              every query with every key: O(n²)
    linear:    out_i = φ(q_i) Σ_j φ(k_j) v_jᵀ / φ(q_i) Σ_j φ(k_j)           two sums for all queries: O(n)

                              S [E,E]             z [E]                     φ(x) = elu(x) + 1

A causal model adds to S and z token by token. So S and z are the whole state during decoding, as in a recurrent network
(Katharopoulos et al. 2020, "Transformers are RNNs", equations 8 to 12 and 18 to 20).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from cutaway.errors import ConfigError
from cutaway.nn.attention import MultiHeadAttention
from cutaway.nn.cache import AttentionCache
from cutaway.nn.kernels import repeat_heads
from cutaway.nn.masks import Causal, Mask

CHUNK = 64  # tokens that are compared pairwise; earlier tokens are in the sums


class KeyValueSums(NamedTuple):
    """The state of linear attention: sums over the keys and values so far."""

    S: Tensor  # [B,H,E,E]: Σ φ(k) vᵀ
    z: Tensor  # [B,H,E]: Σ φ(k)

    def add(self, k: Tensor, v: Tensor) -> KeyValueSums:
        return KeyValueSums(self.S + k.mT @ v, self.z + k.sum(dim=2))


class LinearAttention(MultiHeadAttention):
    """Multi-head attention with the linear kernel. Its cache holds sums instead of keys and values."""

    def __init__(self, *arguments: Any, **named: Any):
        position = named.get("position")
        if position is not None and position.acts_in_attention:
            scheme = type(position).__name__
            raise ConfigError(
                f"linear attention has no scores, so it cannot use {scheme}. Use a position scheme at the input: "
                "sinusoidal or learned."
            )
        super().__init__(*arguments, **named)

    def forward(
        self,
        x: Tensor,
        memory: Tensor | None = None,
        mask: Mask | Tensor | None = None,
        cache: AttentionCache | None = None,
    ) -> Tensor:
        causal, is_token = parse_mask(mask)
        is_watched = self.scores.is_watched or self.weights.is_watched
        q = self.q(feature_map(self.query_norm(self.split(self.query(x)))))
        if memory is not None and cache is not None and cache.stored is not None and not is_watched:
            # the sums over a memory are computed at the first step
            heads = attend_to_sums(q, KeyValueSums(*cache.stored))
            return self.output(self.merge(self.heads(heads)))
        y = x if memory is None else memory
        k = self.k(feature_map(self.key_norm(self.split(self.key(y)))))
        k, v = repeat_heads(k, self.n_heads), repeat_heads(self.v(self.split(self.value(y))), self.n_heads)
        if is_watched and (cache is None or memory is not None):
            heads = self.attend_quadratic(q, k, v, mask)
        else:
            if is_token is not None:
                k = k * is_token[:, None, -k.size(2) :, None]  # padding adds nothing to the sums
            sums = KeyValueSums(*cache.stored) if cache is not None and cache.stored is not None else empty_sums(k, v)
            heads, sums = attend_causal(q, k, v, sums) if causal else attend_all(q, k, v, sums)
            if cache is not None:
                cache.stored = sums
        return self.output(self.merge(self.heads(heads)))

    def attend_quadratic(self, q: Tensor, k: Tensor, v: Tensor, mask: Mask | Tensor | None) -> Tensor:
        """The same with the whole matrix of weights, for the probes."""
        scores_BHQK = self.scores(q @ k.mT)
        allowed = mask.dense(q.device) if isinstance(mask, Mask) else mask
        if allowed is not None:
            scores_BHQK = scores_BHQK.masked_fill(~allowed, 0.0)
        weights_BHQK = self.weights(safe_divide(scores_BHQK, scores_BHQK.sum(dim=-1, keepdim=True)))
        return weights_BHQK @ v


def feature_map(x: Tensor) -> Tensor:
    """φ(x) = elu(x) + 1: always positive, so weights are positive."""
    return F.elu(x) + 1


def attend_causal(q: Tensor, k: Tensor, v: Tensor, sums: KeyValueSums) -> tuple[Tensor, KeyValueSums]:
    """Chunk by chunk: pairwise within a chunk, through the sums to all earlier tokens. q, k, v and result [B,H,T,E]

    A decoding step is the same with a chunk of one token.
    """
    parts = []
    for start in range(0, q.size(2), CHUNK):
        q_c, k_c, v_c = (x[:, :, start : start + CHUNK] for x in (q, k, v))
        weights_QK = (q_c @ k_c.mT).tril()
        numerator = weights_QK @ v_c + q_c @ sums.S
        denominator = weights_QK.sum(dim=-1, keepdim=True) + q_c @ sums.z[..., None]
        parts.append(safe_divide(numerator, denominator))
        sums = sums.add(k_c, v_c)
    return torch.cat(parts, dim=2), sums


def attend_all(q: Tensor, k: Tensor, v: Tensor, sums: KeyValueSums) -> tuple[Tensor, KeyValueSums]:
    """Every query attends to all keys."""
    sums = sums.add(k, v)
    return attend_to_sums(q, sums), sums


def attend_to_sums(q: Tensor, sums: KeyValueSums) -> Tensor:
    """The output for each query, from the sums."""
    return safe_divide(q @ sums.S, q @ sums.z[..., None])


def safe_divide(numerator: Tensor, denominator: Tensor) -> Tensor:
    """numerator / denominator; 0 where a query may not attend to any key, because then both are 0."""
    # 1.0, because dividing by a tiny number could give NaN gradients
    return numerator / denominator.masked_fill(denominator == 0, 1.0)


def empty_sums(k: Tensor, v: Tensor) -> KeyValueSums:
    B, H, _, E = k.shape
    return KeyValueSums(k.new_zeros(B, H, E, v.size(-1)), k.new_zeros(B, H, E))


def parse_mask(mask: Mask | Tensor | None) -> tuple[bool, Tensor | None]:
    """Whether the mask is causal, and which keys are tokens. Sums support no other masks."""
    if mask is None:
        return False, None
    if not isinstance(mask, Mask) or not set(mask.rules) <= {Causal()}:
        given = mask.rules if isinstance(mask, Mask) else "a matrix"
        raise ConfigError(
            f"linear attention supports only causal and padding masks; it got {given}. Use another attention."
        )
    return Causal() in mask.rules, mask.is_token
