"""Weights laid in memory as a CPU reads them: the same numbers, sooner at hand.

    y = x Wᵀ,  one row x      W [out, in], a row after the other:     out dot products
                              a column after the other:               each column is scaled by a number of x, and added

The second way reads memory from its beginning to its end, and is up to three times as fast for a large W. For several
rows, such as those of a beam, there is a third: as oneDNN packs it, in blocks that fit the processor's registers.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cutaway.nn.probe import is_hooked

FEW = 2  # rows for which columns side by side are the quickest


class LinearProduct:
    """x Wᵀ + b, in whichever way is quickest for so many rows. What it makes of W, it keeps until W changes.

    `may_pack`: whether a packed copy may be kept beside W.
    """

    def __init__(self, may_pack: bool = True):
        self.may_pack = may_pack
        self.forms: WeightLayouts | None = None

    def __deepcopy__(self, memo: Any) -> LinearProduct:
        return LinearProduct(self.may_pack)

    def __call__(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        if torch.is_grad_enabled():
            return F.linear(x, weight, bias)
        forms = self.forms
        if forms is None or not forms.are_of(weight):
            forms = self.forms = WeightLayouts(weight)
        if x.numel() > FEW * forms.width and self.may_pack and forms.can_pack:
            y: Tensor = forms.multiply(x, forms.packed, bias, "none", [], "")
            return y
        return F.linear(x, forms.by_columns, bias)


class WeightLayouts:
    """One matrix, in other orders. Each is made when it is first of use."""

    def __init__(self, weight: Tensor):
        self.weight, self.width = weight.detach(), weight.size(1)
        # it changes when other numbers are put there, but in inference mode nobody counts
        self.version = None if weight.is_inference() else weight._version
        self.place = weight.data_ptr()  # of its own: as long as this is here, no other matrix is put there
        is_usual = weight.dtype == torch.float32 and weight.device.type == "cpu"
        self.can_pack = is_usual and torch.backends.mkldnn.is_available()
        if self.can_pack:
            self.multiply = direct(torch.ops.mkldnn._linear_pointwise.default)

    def are_of(self, weight: Tensor) -> bool:
        return self.place == weight.data_ptr() and (self.version is None or self.version == weight._version)

    @cached_property
    def by_columns(self) -> Tensor:
        return self.weight if self.weight.stride(0) == 1 else columns_together(self.weight)

    @cached_property
    def packed(self) -> Tensor:
        packed: Tensor = torch.ops.mkldnn._reorder_linear_weight(self.weight.contiguous(), 16)  # rows, about
        return packed


class PackedLinear(nn.Linear):
    """A linear layer over the weights of another, laid for a CPU."""

    def __init__(self, linear: nn.Linear, may_pack: bool = True):
        nn.Module.__init__(self)
        self.in_features, self.out_features = linear.in_features, linear.out_features
        weight = linear.weight.detach() if linear.weight.stride(0) == 1 else columns_together(linear.weight)
        self.weight, self.bias = nn.Parameter(weight, linear.weight.requires_grad), linear.bias
        self.product = LinearProduct(may_pack)

    def __call__(self, x: Tensor) -> Tensor:
        return super().__call__(x) if is_hooked(self) else self.product(x, self.weight, self.bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.product(x, self.weight, self.bias)


def columns_together(weight: Tensor) -> Tensor:
    """The same matrix [out, in], whose columns lie side by side in memory instead of its rows."""
    return weight.detach().t().contiguous().t()


def direct(operator: Any) -> Any:
    """The operator without what torch does in Python at each call, which takes as long as a small product."""
    return getattr(operator, "_op", operator)
