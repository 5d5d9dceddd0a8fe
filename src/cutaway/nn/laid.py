"""Weights laid in memory as a CPU reads them when there are few rows: the same numbers, sooner at hand.

    y = x Wᵀ,  one row x      W [out, in], a row after the other:     out dot products
                              a column after the other:               each column is scaled by a number of x, and added

The second way reads memory from its beginning to its end, and is up to three times as fast for a large W.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from cutaway.nn.probe import is_hooked


class LaidLinear(nn.Linear):
    """A linear layer over the weights of another, laid for a CPU."""

    def __init__(self, linear: nn.Linear):
        nn.Module.__init__(self)
        self.in_features, self.out_features = linear.in_features, linear.out_features
        weight = linear.weight.detach() if linear.weight.stride(0) == 1 else laid(linear.weight)
        self.weight, self.bias = nn.Parameter(weight, linear.weight.requires_grad), linear.bias

    def __call__(self, x: Tensor) -> Tensor:
        return super().__call__(x) if is_hooked(self) else F.linear(x, self.weight, self.bias)


def laid(weight: Tensor) -> Tensor:
    """The same matrix [out, in], whose columns lie side by side in memory instead of its rows."""
    return weight.detach().t().contiguous().t()
