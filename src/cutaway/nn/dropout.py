"""Dropout: set random numbers to 0 in training and scale up the others (the paper, section 5.4)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

LEVELS = 2**15  # p is rounded to a multiple of 1 / LEVELS


class Dropout(nn.Module):
    """In training, each number becomes 0 with probability p, otherwise x / (1 - p). So the mean does not change."""

    def __init__(self, p: float):
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        return drop(x, self.p) if self.training else x

    def extra_repr(self) -> str:
        return f"p={self.p}"


def drop(x: Tensor, p: float) -> Tensor:
    """torch's dropout, but faster on a CPU, where most of the time is spent on random numbers.

    torch generates 53 random bits for each element. Here, one number of 64 bits serves four elements.
    """
    if p == 0 or x.device.type != "cpu":
        return F.dropout(x, p)
    dropped = min(round(p * LEVELS), LEVELS - 1)
    n = x.numel()
    # `random_` leaves the highest bit 0. Doubling makes that the lowest bit, which the even threshold below ignores.
    bits = torch.empty((n + 3) // 4, dtype=torch.int64, device=x.device).random_().mul_(2).view(torch.int16)[:n]
    keep = torch.empty_like(x, memory_format=torch.contiguous_format, requires_grad=False)
    torch.ge(bits.view(x.shape), 2 * dropped - LEVELS, out=keep)  # 16 bits are -LEVELS ... LEVELS - 1
    return x * keep.mul_(LEVELS / (LEVELS - dropped))
