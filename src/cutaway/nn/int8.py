"""Products with weights of 8 bits: a quarter of the memory to read, and more than twice the arithmetic a second.

    W ≈ scale ⊙ W₈,  a scale for each row, so that its largest number becomes ±127          (once, when it is made)
    x ≈ s · (x₈ - z),  one scale and one zero for all of x                                  (each time: "dynamic")

    y = x Wᵀ + b ≈ s · scale ⊙ ((x₈ - z) W₈ᵀ) + b,   where the product is one of whole numbers

Since x shares one scale, what comes out for one row depends a little on the rows beside it: a text translated in a
batch may differ from the same text alone. (On processors that add pairs of products in 16 bits, x₈ has only 7 bits.)
"""

from __future__ import annotations

import warnings

import torch
from torch import Tensor, nn

from cutaway.errors import ConfigError, DataError
from cutaway.nn.quick import quick_call

NOT_FINITE = (
    "values inside the model are not finite numbers, so they have no range to be cut into steps. Its training has "
    "diverged, or its weights are damaged: take those of an earlier checkpoint."
)

LINEAR = quick_call(torch.ops.quantized.linear_dynamic.default)


class Int8Product(nn.Module):
    """x [..., in] -> x Wᵀ + b [..., out], approximately. Only on a CPU."""

    def __init__(self, weight: Tensor, bias: Tensor | None = None):
        super().__init__()
        self.out_features, self.in_features = weight.shape
        self.packed = packed(weight.detach(), None if bias is None else bias.detach())

    def __call__(self, x: Tensor) -> Tensor:
        try:
            y: Tensor = LINEAR(x, self.packed, True)  # True: 7 bits for x
        except RuntimeError as error:
            if x.isfinite().all():
                raise
            raise DataError(NOT_FINITE) from error
        return y

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}"


def packed(weight: Tensor, bias: Tensor | None) -> object:
    """The weight in 8 bits, in the order in which the processor's kernel reads it."""
    if not any(engine != "none" for engine in torch.backends.quantized.supported_engines):
        raise ConfigError("this build of PyTorch has no products of 8-bit numbers. Use dtype 'float32'.")
    scale = weight.abs().amax(dim=1).clamp(min=1e-12).double() / 127
    with warnings.catch_warnings():  # torch means to replace quantised tensors, not these kernels
        warnings.simplefilter("ignore")
        quantised = torch.quantize_per_channel(
            weight.float(), scale, torch.zeros(len(scale), dtype=torch.long), axis=0, dtype=torch.qint8
        )
    return torch.ops.quantized.linear_prepack(quantised, None if bias is None else bias.float())
