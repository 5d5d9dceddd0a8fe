"""Masks: who may attend to whom.

One meaning everywhere: **True = may attend**. A mask broadcasts to [B, H, Q, K], and masks are joined with `&`.
"""

from __future__ import annotations

import torch
from torch import Tensor


def padding_mask(is_token: Tensor) -> Tensor:
    """Every query may attend to every key that is a token and not padding. [B, K] -> [B, 1, 1, K]."""
    return is_token[:, None, None, :]


def causal_mask(query_positions: Tensor, key_positions: Tensor) -> Tensor:
    """A query may attend to itself and to what came before it. [Q], [K] -> [Q, K].

        keys →   a  b  c  d
    query  a     ■  ·  ·  ·
           b     ■  ■  ·  ·
           c     ■  ■  ■  ·
           d     ■  ■  ■  ■

    Explicit positions make a cached step right by construction: the query d alone is the last row.
    """
    return key_positions[None, :] <= query_positions[:, None]


def join_masks(*masks: Tensor | None) -> Tensor | None:
    """May attend only where every mask allows it; None allows everything."""
    joined: Tensor | None = None
    for mask in masks:
        if mask is not None:
            joined = mask if joined is None else joined & mask
    return joined


def positions_from(start: int, length: int, device: torch.device) -> Tensor:
    """The positions start, start+1, ... of `length` consecutive tokens."""
    return torch.arange(start, start + length, device=device)
