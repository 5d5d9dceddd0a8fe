"""Attention itself, once to be read and once to be fast, behind one signature.

    Attention(Q, K, V) = softmax(Q Kᵀ / sqrt(d_k)) V                                (the paper, equation 1)

`attend_exact` spells the equation out, so every value in it can be seen; `attend_fused` hands it to PyTorch's
fused kernel, which never stores the weights. A test holds the two together.

A query that may attend to nothing gets zeros: no weights, no output, no gradient, and never a NaN.
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

# q [B,H,Q,E], k and v [B,G,K,E] -> [B,H,Q,E], where each of the G key-value heads serves H/G heads. Options:
#   mask, bias        broadcastable to [B,H,Q,K]: True = may attend; added to the scores (relative positions)
#   relative_values   a function of the weights [B,H,Q,K] -> [B,H,Q,E], added to the output (Shaw et al.)
#   cap               above 0, scores are held between -cap and cap
AttentionKernel = Callable[..., Tensor]

MAX_DENSE_ENTRIES = 1024 * 1024  # a mask with no more entries than this is spelled out: for short texts that is faster


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
    """The equation, line by line. The probes see scores and weights, and may change them."""
    k, v = repeat_heads(k, q.size(1)), repeat_heads(v, q.size(1))
    scores_BHQK = q @ k.mT / math.sqrt(q.size(-1))
    if cap:
        scores_BHQK = soft_cap(scores_BHQK, cap)
    if bias is not None:
        scores_BHQK = scores_BHQK + bias
    scores_BHQK = probe_scores(scores_BHQK)
    if mask is not None:
        # The lowest finite number rather than -inf: a row of -inf has no softmax, forward or backward.
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
    """The same by PyTorch's fused kernel. `causal` is the causal mask of a whole text, which it has built in."""
    if cap or relative_values is not None:
        raise ConfigError("the fused kernel can neither cap scores nor add relative values. Use attend_exact.")
    if dropout and not causal and q.device.type == "cpu":  # there torch's kernel would store all weights as well
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
    """Attention under a Mask: without a matrix if it can be, by a matrix if that is small, else in chunks."""
    rules, biased = mask.active_rules, options.get("bias") is not None
    if not rules and mask.is_token is None:  # all may be seen, as in a cached step
        return attend(q, k, v, None, **options)
    fused = attend is attend_fused and not options.get("dropout")
    if fused and not biased and rules == (Causal(),) and mask.is_token is None and mask.queries == mask.keys:
        return attend_fused(q, k, v, causal=True, **options)
    padding_only = fused and not rules  # a row for all queries: the fused kernel needs no more memory for it
    if padding_only or biased or not is_statically_true(mask.queries.size * mask.keys.size > MAX_DENSE_ENTRIES):
        return attend(q, k, v, mask.dense(q.device), **options)
    return attend_in_chunks(lambda q, k, v, dense: attend(q, k, v, dense, **options), q, k, v, mask)


def soft_cap(scores: Tensor, cap: float) -> Tensor:
    """cap · tanh(scores / cap): unchanged where small, never beyond ±cap (Gemma 2, 2024)."""
    return cap * torch.tanh(scores / cap)


def repeat_heads(x_BGKE: Tensor, n_heads: int) -> Tensor:
    """Key-value heads repeated for the heads that share them: [B,G,K,E] -> [B,H,K,E].

    G = 2, H = 6      k₀ k₁  ──▶  k₀ k₀ k₀ k₁ k₁ k₁      (Ainslie et al. 2023; G = 1 is Shazeer 2019)
    """
    G = x_BGKE.size(1)
    return x_BGKE if n_heads == G else x_BGKE.repeat_interleave(n_heads // G, dim=1)


def lowest(x: Tensor) -> float:
    return torch.finfo(x.dtype).min
