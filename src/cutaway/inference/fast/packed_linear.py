"""Linear layers whose weights have a memory layout that is fast on a CPU.

    y = x Wᵀ,  one row x      W [out, in] row-major:      one dot product for each output
                              W [out, in] column-major:   each column is scaled by a number of x, and added

Column-major order reads memory sequentially, and is up to three times as fast for a large W. For several rows, such as
those of a beam, a third layout is faster: oneDNN packs W into tiles that fit the processor's registers.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cutaway.nn.probe import is_hooked

MAX_COLUMN_MAJOR_ROWS = 2  # largest number of rows of x for which column-major is the fastest


class LinearProduct:
    """x Wᵀ + b, in the layout that is fastest for the number of rows. Layouts of W are cached until W changes.

    `may_pack`: whether a packed copy of W may be kept in memory.
    """

    def __init__(self, may_pack: bool = True):
        self.may_pack = may_pack
        self.layouts: WeightLayouts | None = None

    def __deepcopy__(self, memo: Any) -> LinearProduct:
        return LinearProduct(self.may_pack)

    def __call__(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        if torch.is_grad_enabled():
            return F.linear(x, weight, bias)
        layouts = self.layouts
        if layouts is None or not layouts.match(weight):
            layouts = self.layouts = WeightLayouts(weight)
        if x.numel() > MAX_COLUMN_MAJOR_ROWS * layouts.width and self.may_pack and layouts.can_pack:
            y: Tensor = layouts.multiply(x, layouts.packed, bias, "none", [], "")
            return y
        return F.linear(x, layouts.column_major, bias)


class WeightLayouts:
    """One matrix in other memory layouts, each computed at its first use."""

    def __init__(self, weight: Tensor):
        self.weight, self.width = weight.detach(), weight.size(1)
        # torch increases the version when values change in place, except for inference tensors
        self.version = None if weight.is_inference() else weight._version
        self.address = weight.data_ptr()  # self.weight keeps the memory alive, so no other matrix gets this address
        is_cpu_float32 = weight.dtype == torch.float32 and weight.device.type == "cpu"
        self.can_pack = is_cpu_float32 and torch.backends.mkldnn.is_available()
        if self.can_pack:
            self.multiply = raw_operator(torch.ops.mkldnn._linear_pointwise.default)

    def match(self, weight: Tensor) -> bool:
        return self.address == weight.data_ptr() and (self.version is None or self.version == weight._version)

    @cached_property
    def column_major(self) -> Tensor:
        return self.weight if self.weight.stride(0) == 1 else to_column_major(self.weight)

    @cached_property
    def packed(self) -> Tensor:
        packed: Tensor = torch.ops.mkldnn._reorder_linear_weight(self.weight.contiguous(), 16)  # typical number of rows
        return packed


class PackedLinear(nn.Linear):
    """A linear layer with the weights of another one, in a memory layout for CPUs."""

    def __init__(self, linear: nn.Linear, may_pack: bool = True):
        nn.Module.__init__(self)
        self.in_features, self.out_features = linear.in_features, linear.out_features
        weight = linear.weight.detach() if linear.weight.stride(0) == 1 else to_column_major(linear.weight)
        self.weight, self.bias = nn.Parameter(weight, linear.weight.requires_grad), linear.bias
        self.product = LinearProduct(may_pack)

    def __call__(self, x: Tensor) -> Tensor:
        return super().__call__(x) if is_hooked(self) else self.product(x, self.weight, self.bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.product(x, self.weight, self.bias)


def to_column_major(weight: Tensor) -> Tensor:
    """The same matrix [out, in], stored column by column."""
    return weight.detach().t().contiguous().t()


def raw_operator(operator: Any) -> Any:
    """The operator without torch's Python wrapper, which takes as long as a small product."""
    return getattr(operator, "_op", operator)
