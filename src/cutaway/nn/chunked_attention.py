"""Attention for long texts, with memory linear in the length instead of quadratic.

Queries are processed in chunks. Each chunk uses only the keys that the mask rules can reach, and only its rows of the
mask matrix exist at a time:

    SlidingWindow(3) & Causal()   keys that a chunk reaches
      ■ · · · · · · ·       ┐
      ■ ■ · · · · · ·       ┘     a b
      ■ ■ ■ · · · · ·       ┐
      · ■ ■ ■ · · · ·       ┘     a b c d
      · · ■ ■ ■ · · ·       ┐
      · · · ■ ■ ■ · ·       ┘         c d e f

The backward pass computes each chunk again, so no tensor of size [Q,K] is kept. A bias on the scores (alibi,
relative_bias, relative) is itself a matrix [Q,K], so these position schemes do not save memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from cutaway.nn.masks import Mask, Span

CHUNK = 32  # queries computed together. Smaller chunks reach fewer keys; larger chunks use the processor better

Attend = Callable[[Tensor, Tensor, Tensor, Tensor | None], Tensor]


def attend_in_chunks(attend: Attend, q: Tensor, k: Tensor, v: Tensor, mask: Mask) -> Tensor:
    """Call `attend` for each chunk of queries. q [B,H,Q,E], k and v [B,G,K,E] -> [B,H,Q,E]"""
    heads: Tensor = ChunkedAttention.apply(attend, mask, q, k, v)
    return heads


class ChunkedAttention(torch.autograd.Function):
    """Forward saves only its inputs. Backward computes each chunk again and sums the gradients."""

    @staticmethod
    def forward(ctx: Any, attend: Attend, mask: Mask, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        ctx.attend, ctx.mask = attend, mask
        ctx.random = random_state(q.device)  # for the same dropout in backward
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
        with keep_random_state(q.device), torch.enable_grad():
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
    """The start of each chunk of queries, and its mask."""
    first, end = mask.queries.start, mask.queries.stop
    return [
        (start - first, replace(mask, queries=Span(start, min(start + CHUNK, end))))
        for start in range(first, end, CHUNK)
    ]


def reachable_keys(mask: Mask, device: torch.device) -> Tensor | None:
    """The indices of the keys that at least one query may attend to; None: all."""
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


@contextmanager
def keep_random_state(device: torch.device) -> Iterator[None]:
    """Restore the state of the random generator after the block. (`torch.random.fork_rng` does not support MPS.)"""
    state = random_state(device)
    try:
        yield
    finally:
        set_random_state(device, state)


def random_state(device: torch.device) -> Tensor:
    if device.type == "mps":
        return torch.mps.get_rng_state()
    return torch.cuda.get_rng_state(device) if device.type == "cuda" else torch.get_rng_state()


def set_random_state(device: torch.device, state: Tensor) -> None:
    if device.type == "cuda":
        torch.cuda.set_rng_state(state, device)
    elif device.type == "mps":
        torch.mps.set_rng_state(state)
    else:
        torch.set_rng_state(state)
