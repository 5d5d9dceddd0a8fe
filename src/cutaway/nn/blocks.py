"""Attention over long texts in memory that grows with their length, not with its square.

The queries are worked in blocks. Each block looks only at the keys that its rules reach, and its piece of the mask
is spelled out for the moment alone:

    Window(3) & Causal()          keys a block reaches
      ■ · · · · · · ·       ┐
      ■ ■ · · · · · ·       ┘     a b
      ■ ■ ■ · · · · ·       ┐
      · ■ ■ ■ · · · ·       ┘     a b c d
      · · ■ ■ ■ · · ·       ┐
      · · · ■ ■ ■ · ·       ┘         c d e f

In the backward pass every block is computed once more, so that nothing of its size [Q,K] is ever kept. A bias on the
scores (alibi, relative_bias, relative) is a matrix [Q,K] in itself: such schemes are for texts of moderate length.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from cutaway.nn.kernels import AttentionKernel, attend_fused
from cutaway.nn.masks import Causal, Mask, surely

BLOCK = 32  # queries worked together: fewer reach fewer keys, more keep the processor busy
SPELLED_OUT = 1024 * 1024  # a mask with no more entries than this is spelled out: for short texts that is faster


def attend_masked(attend: AttentionKernel, q: Tensor, k: Tensor, v: Tensor, mask: Mask, **options: Any) -> Tensor:
    """Attention under a Mask, in the cheapest way that gives the same numbers."""
    rules, biased = mask.binding, options.get("bias") is not None
    if not rules and mask.is_token is None:  # all may be seen, as in a cached step
        return attend(q, k, v, None, **options)
    fused = attend is attend_fused and not options.get("dropout")
    if fused and not biased and is_whole_text(mask, rules):
        return attend_fused(q, k, v, causal=True, **options)
    native = fused and not rules  # with padding at the most the fused kernel is linear by itself
    if native or biased or not surely(mask.queries.size * mask.keys.size > SPELLED_OUT):
        return attend(q, k, v, mask.dense(q.device), **options)
    options.pop("see", None)  # nobody looks: who does gets the whole matrix
    return by_blocks(lambda q, k, v, block: attend(q, k, v, block, **options), q, k, v, mask)


def is_whole_text(mask: Mask, rules: tuple[object, ...]) -> bool:
    """Causal, nothing else, and each query has its own key: what the fused kernel calls `is_causal`."""
    return rules == (Causal(),) and mask.is_token is None and mask.queries == mask.keys


Attend = Callable[[Tensor, Tensor, Tensor, Tensor | None], Tensor]


def by_blocks(attend: Attend, q: Tensor, k: Tensor, v: Tensor, mask: Mask) -> Tensor:
    """`attend` for block after block of queries. q [B,H,Q,E], k and v [B,G,K,E] -> [B,H,Q,E]"""
    heads: Tensor = ByBlocks.apply(attend, mask, q, k, v)
    return heads


class ByBlocks(torch.autograd.Function):
    """Forward keeps nothing but its inputs; backward computes each block again and adds up what it gives."""

    @staticmethod
    def forward(ctx: Any, attend: Attend, mask: Mask, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        ctx.attend, ctx.mask = attend, mask
        ctx.random = random_state(q.device)  # for the same dropout in the second computation
        ctx.save_for_backward(q, k, v)
        heads = torch.empty_like(q)
        for start, block in blocks_of(mask):
            heads[:, :, start : start + BLOCK] = attend_block(attend, block, q[:, :, start : start + BLOCK], k, v)
        return heads

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_heads: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v = ctx.saved_tensors
        d_q, d_k, d_v = torch.empty_like(q), torch.zeros_like(k), torch.zeros_like(v)
        with torch.random.fork_rng([q.device] if q.is_cuda else []), torch.enable_grad():
            set_random_state(q.device, ctx.random)
            for start, block in blocks_of(ctx.mask):
                rows = slice(start, start + BLOCK)
                chosen = block.reach(q.device)
                inputs = [x.detach().requires_grad_() for x in (q[:, :, rows], at(k, chosen), at(v, chosen))]
                heads = ctx.attend(*inputs, block.dense(q.device, chosen))
                d_block, d_keys, d_values = torch.autograd.grad(heads, inputs, d_heads[:, :, rows])
                d_q[:, :, rows] = d_block
                add_at(d_k, chosen, d_keys)
                add_at(d_v, chosen, d_values)
        return None, None, d_q, d_k, d_v


def attend_block(attend: Attend, block: Mask, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    chosen = block.reach(q.device)
    return attend(q, at(k, chosen), at(v, chosen), block.dense(q.device, chosen))


def blocks_of(mask: Mask) -> list[tuple[int, Mask]]:
    return [(start, mask.block(start, start + BLOCK)) for start in range(0, mask.queries.size, BLOCK)]


def at(x: Tensor, chosen: Tensor | None) -> Tensor:
    return x if chosen is None else x.index_select(2, chosen)


def add_at(total: Tensor, chosen: Tensor | None, part: Tensor) -> None:
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
