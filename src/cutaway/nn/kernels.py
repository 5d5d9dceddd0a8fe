"""The attention function, in a readable and in a fast version with the same signature.

    Attention(Q, K, V) = softmax(Q Kᵀ / sqrt(d_k)) V                                (the paper, equation 1)

`attend_exact` computes the equation step by step, so every value can be recorded. `attend_fused` calls PyTorch's fused
kernel, which never stores the weights. A test compares the two.

A query that may not attend to any key gets zeros as weights, output and gradient, and never NaN.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from cutaway.errors import ConfigError
from cutaway.nn.chunked_attention import attend_in_chunks
from cutaway.nn.dropout import drop
from cutaway.nn.masks import Causal, Mask, is_statically_true

# q [B,H,Q,E], k and v [B,G,K,E] -> [B,H,Q,E]. Each of the G key-value heads serves H/G query heads. Options:
#   mask              broadcastable to [B,H,Q,K]: True = may attend
#   bias              broadcastable to [B,H,Q,K]: added to the scores (relative positions)
#   relative_values   a function of the weights [B,H,Q,K] -> [B,H,Q,E], added to the output (Shaw et al.)
#   cap               above 0: keeps scores between -cap and cap
AttentionKernel = Callable[..., Tensor]

MAX_DENSE_ENTRIES = 1024 * 1024  # up to this size, a mask becomes a matrix, which is faster for short texts


def attend_exact(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None = None,
    bias: Tensor | None = None,
    relative_values: Callable[[Tensor], Tensor] | None = None,
    cap: float = 0.0,
    dropout: float = 0.0,
    probe_scores: Callable[[Tensor], Tensor] = lambda value: value,
    probe_weights: Callable[[Tensor], Tensor] = lambda value: value,
) -> Tensor:
    """The equation, line by line. The two probes can record or change scores and weights."""
    k, v = repeat_heads(k, q.size(1)), repeat_heads(v, q.size(1))
    scores_BHQK = q @ k.mT / math.sqrt(q.size(-1))
    if cap:
        scores_BHQK = soft_cap(scores_BHQK, cap)
    if bias is not None:
        scores_BHQK = scores_BHQK + bias
    scores_BHQK = probe_scores(scores_BHQK)
    if mask is not None:
        # The lowest finite number instead of -inf, because the softmax of a row of -inf is NaN.
        scores_BHQK = scores_BHQK.masked_fill(~mask, lowest(scores_BHQK))
    weights_BHQK = scores_BHQK.softmax(dim=-1)
    if mask is not None:
        weights_BHQK = weights_BHQK.masked_fill(~mask, 0.0)
    weights_BHQK = probe_weights(weights_BHQK)
    if dropout:
        weights_BHQK = drop(weights_BHQK, dropout)
    heads_BHQE = weights_BHQK @ v
    return heads_BHQE if relative_values is None else heads_BHQE + relative_values(weights_BHQK)


def attend_fused(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None = None,
    bias: Tensor | None = None,
    relative_values: Callable[[Tensor], Tensor] | None = None,
    cap: float = 0.0,
    dropout: float = 0.0,
    causal: bool = False,
) -> Tensor:
    """The same with PyTorch's fused kernel. `causal`: use its built-in causal mask, for a whole text."""
    if cap or relative_values is not None:
        raise ConfigError("the fused kernel cannot cap scores or add relative values. Use attend_exact.")
    if dropout and not causal and q.device.type == "cpu":  # torch's kernel stores all weights in this case, too
        return attend_exact(q, k, v, mask, bias, dropout=dropout)
    added = mask if bias is None else bias if mask is None else bias.masked_fill(~mask, lowest(bias))
    grouped = k.size(1) != q.size(1)
    heads_BHQE = F.scaled_dot_product_attention(
        q, k, v, attn_mask=added, dropout_p=dropout, is_causal=causal, enable_gqa=grouped
    )
    if bias is not None and mask is not None:
        heads_BHQE = heads_BHQE.masked_fill(~mask.any(dim=-1, keepdim=True), 0.0)
    return heads_BHQE


def attend_masked(attend: AttentionKernel, q: Tensor, k: Tensor, v: Tensor, mask: Mask, **options: Any) -> Tensor:
    """Attention with a Mask: without a matrix if possible, with a matrix if it is small, otherwise in chunks."""
    rules, has_bias = mask.active_rules, options.get("bias") is not None
    if not rules and mask.is_token is None:  # every key is allowed, as in a cached step
        return attend(q, k, v, None, **options)
    is_fused = attend is attend_fused and not options.get("dropout")
    if is_fused and not has_bias and rules == (Causal(),) and mask.is_token is None and mask.queries == mask.keys:
        return attend_fused(q, k, v, causal=True, **options)
    padding_only = is_fused and not rules  # one row for all queries, so the matrix is small
    if padding_only or has_bias or not is_statically_true(mask.queries.size * mask.keys.size > MAX_DENSE_ENTRIES):
        return attend(q, k, v, mask.dense(q.device), **options)
    return attend_in_chunks(lambda q, k, v, dense: attend(q, k, v, dense, **options), q, k, v, mask)


def soft_cap(scores: Tensor, cap: float) -> Tensor:
    """cap · tanh(scores / cap): almost unchanged if small, always between -cap and cap (Gemma 2, 2024)."""
    return cap * torch.tanh(scores / cap)


def repeat_heads(x_BGKE: Tensor, n_heads: int) -> Tensor:
    """Repeat each key-value head for the query heads that share it: [B,G,K,E] -> [B,H,K,E].

    G = 2, H = 6      k₀ k₁  ──▶  k₀ k₀ k₀ k₁ k₁ k₁      (Ainslie et al. 2023; G = 1 is Shazeer 2019)
    """
    G = x_BGKE.size(1)
    return x_BGKE if n_heads == G else x_BGKE.repeat_interleave(n_heads // G, dim=1)


def lowest(x: Tensor) -> float:
    return torch.finfo(x.dtype).min
