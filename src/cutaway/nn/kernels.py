"""Attention itself, once to be read and once to be fast, behind one signature.

    Attention(Q, K, V) = softmax(Q Kᵀ / sqrt(d_k)) V                                (the paper, equation 1)

`attend_exact` spells the equation out, so every value in it can be seen; `attend_fused` hands it to PyTorch's
fused kernel, which never stores the weights. A test holds the two together.

A query that may attend to nothing gets zeros: no weights, no output, no gradient, and never a NaN.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

See = Callable[[str, Tensor], Tensor]


def unseen(name: str, value: Tensor) -> Tensor:
    return value


class AttentionKernel(Protocol):
    """q [B,H,Q,E], k and v [B,H,K,E], mask broadcastable to [B,H,Q,K] with True = may attend -> [B,H,Q,E]."""

    def __call__(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Tensor | None = None,
        dropout: float = 0.0,
        see: See = unseen,
    ) -> Tensor: ...


def attend_exact(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, dropout: float = 0.0, see: See = unseen
) -> Tensor:
    """The equation, line by line. `see` is shown the scores and the weights, and may change them."""
    scores_BHQK = see("scores", q @ k.mT / math.sqrt(q.size(-1)))
    if mask is not None:
        # The lowest finite number rather than -inf: a row of -inf has no softmax, forward or backward.
        scores_BHQK = scores_BHQK.masked_fill(~mask, torch.finfo(scores_BHQK.dtype).min)
    weights_BHQK = scores_BHQK.softmax(dim=-1)
    if mask is not None:
        weights_BHQK = weights_BHQK.masked_fill(~mask, 0.0)
    weights_BHQK = see("weights", weights_BHQK)
    if dropout:
        weights_BHQK = F.dropout(weights_BHQK, dropout)
    return weights_BHQK @ v


def attend_fused(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, dropout: float = 0.0, see: See = unseen
) -> Tensor:
    """The same by PyTorch's fused kernel. There are no weights to `see`: that is what makes it fast."""
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=dropout)
