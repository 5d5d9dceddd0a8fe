"""Attention over long texts in memory that grows with their length, not with its square.

The queries are worked in chunks. Each chunk looks only at the keys that its rules reach, and its piece of the mask
is spelled out for the moment alone:

    Window(3) & Causal()          keys a chunk reaches
      ■ · · · · · · ·       ┐
      ■ ■ · · · · · ·       ┘     a b
      ■ ■ ■ · · · · ·       ┐
      · ■ ■ ■ · · · ·       ┘     a b c d
      · · ■ ■ ■ · · ·       ┐
      · · · ■ ■ ■ · ·       ┘         c d e f

In the backward pass every chunk is computed once more, so that nothing of its size [Q,K] is ever kept. A bias on the
scores (alibi, relative_bias, relative) is a matrix [Q,K] in itself: such schemes are for texts of moderate length.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from cutaway.nn.masks import Mask, Span

CHUNK = 32  # queries that are computed together: fewer reach fewer keys, more keep the processor busy

Attend = Callable[[Tensor, Tensor, Tensor, Tensor | None], Tensor]


def attend_in_chunks(attend: Attend, q: Tensor, k: Tensor, v: Tensor, mask: Mask) -> Tensor:
    """`attend` for chunk after chunk of queries. q [B,H,Q,E], k and v [B,G,K,E] -> [B,H,Q,E]"""
    heads: Tensor = ChunkedAttention.apply(attend, mask, q, k, v)
    return heads


class ChunkedAttention(torch.autograd.Function):
    """Forward keeps nothing but its inputs; backward computes each chunk again and adds up what it gives."""

    @staticmethod
    def forward(ctx: Any, attend: Attend, mask: Mask, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        ctx.attend, ctx.mask = attend, mask
        ctx.random = random_state(q.device)  # for the same dropout in the second computation
        ctx.save_for_backward(q, k, v)
        heads = torch.empty_like(q)
        for start, chunk in split_queries(mask):
            heads[:, :, start : start + CHUNK] = attend_chunk(attend, chunk, q[:, :, start : start + CHUNK], k, v)
        return heads

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_heads: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v = ctx.saved_tensors
        d_q, d_k, d_v = torch.empty_like(q), torch.zeros_like(k), torch.zeros_like(v)
        with torch.random.fork_rng([q.device] if q.is_cuda else []), torch.enable_grad():
            set_random_state(q.device, ctx.random)
            for start, chunk in split_queries(ctx.mask):
                rows = slice(start, start + CHUNK)
                chosen = reachable_keys(chunk, q.device)
                inputs = [
                    x.detach().requires_grad_() for x in (q[:, :, rows], select_keys(k, chosen), select_keys(v, chosen))
                ]
                heads = ctx.attend(*inputs, chunk.dense(q.device, chosen))
                d_queries, d_keys, d_values = torch.autograd.grad(heads, inputs, d_heads[:, :, rows])
                d_q[:, :, rows] = d_queries
                add_to_keys(d_k, chosen, d_keys)
                add_to_keys(d_v, chosen, d_values)
        return None, None, d_q, d_k, d_v


def attend_chunk(attend: Attend, chunk: Mask, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    chosen = reachable_keys(chunk, q.device)
    return attend(q, select_keys(k, chosen), select_keys(v, chosen), chunk.dense(q.device, chosen))


def split_queries(mask: Mask) -> list[tuple[int, Mask]]:
    """Where each chunk of queries begins, and its mask."""
    first, end = mask.queries.start, mask.queries.stop
    return [
        (start - first, replace(mask, queries=Span(start, min(start + CHUNK, end))))
        for start in range(first, end, CHUNK)
    ]


def reachable_keys(mask: Mask, device: torch.device) -> Tensor | None:
    """Indices of the keys that any of the queries may attend to; None: all."""
    key = mask.keys.tensor(device)
    reached = None
    for rule in mask.active_rules:
        allowed = rule.reaches(mask.queries.start, mask.queries.stop - 1, key)
        reached = allowed if reached is None else reached & allowed
    return None if reached is None else reached.nonzero()[:, 0]


def select_keys(x: Tensor, chosen: Tensor | None) -> Tensor:
    return x if chosen is None else x.index_select(2, chosen)


def add_to_keys(total: Tensor, chosen: Tensor | None, part: Tensor) -> None:
    if chosen is None:
        total.add_(part)
    else:
        total.index_add_(2, chosen, part)


def random_state(device: torch.device) -> Tensor:
    return torch.cuda.get_rng_state(device) if device.type == "cuda" else torch.get_rng_state()


def set_random_state(device: torch.device, state: Tensor) -> None:
    if device.type == "cuda":
        torch.cuda.set_rng_state(state, device)
    else:
        torch.set_rng_state(state)
