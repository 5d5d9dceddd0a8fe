"""Linear maps in integers of 8 bits, for a CPU: a quarter of the memory to read, and more products a second.

    W ≈ scale_col · W_q         a scale for each output (a row of W), W_q whole numbers up to ±127         (made once)
    x ≈ scale_row · q           a scale for each token (a row of x), q whole numbers up to ±128            (each call)

    y = x Wᵀ + b ≈ scale_row · scale_col · (q W_qᵀ) + b,    where the product is one of integers, and exact

**Outliers.** Trained models have a few channels that are 20 to 100 times larger than the others. They set the scale of
a row, and leave its other numbers one or two steps. Such a row gets a second digit, for what rounding took away:

    x ≈ scale_row · (q + r / 127),    r whole numbers up to ±127

**One row alone.** Whatever is done to a row depends on that row, and is exact or rounded number by number. Its result
is the same, bit for bit, alone and in any batch.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache, partial

import torch
from torch import Tensor, nn

from cutaway.inference.fast.packed_linear import direct

COARSE = 6  # a row whose numbers are fewer steps than this, on average, gets a second digit
DIGIT = 127  # steps of the second digit in a step of the first

Multiply = Callable[[Tensor], Tensor]
FBGEMM = direct(torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32.default)


class Int8Product(nn.Module):
    """x [..., in] -> x Wᵀ + b [..., out], approximately. Only on a CPU.

    `outliers`: whether to look for rows that need a second digit. `bits` of q: 8, or 7 where the processor cannot add
    up 8 (None: as it can).
    """

    def __init__(self, weight: Tensor, bias: Tensor | None = None, outliers: bool = True, bits: int | None = None):
        super().__init__()
        self.out_features, self.in_features = weight.shape
        self.outliers, self.steps = outliers, 2 ** ((bits or exact_bits()) - 1)
        weight = weight.detach().float()
        scale_col = weight.abs().amax(dim=1).clamp(min=1e-30) / 127
        self.multiply = multiply_by((weight / scale_col[:, None]).round(), scale_col, self.steps)
        self.bias = None if bias is None else bias.detach().float()

    def __call__(self, x: Tensor) -> Tensor:
        largest = x.abs().amax(-1, True)  # scale_row · steps
        u = x / largest  # from -1 to 1. In a row of zeros NaN, whatever becomes of it is multiplied by 0
        y = self.multiply(u)
        if self.outliers:
            self.add_second_digit(u, y)
        return y.mul_(largest) if self.bias is None else torch.addcmul(self.bias, y, largest)

    def add_second_digit(self, u: Tensor, y: Tensor) -> None:
        """y += scale_col · (r W_qᵀ) / 127 / steps, in rows that are coarse."""
        q = in_steps(u, self.steps)
        coarse = is_coarse(u, q)
        if coarse.any():
            rest = u[coarse] - q[coarse] / self.steps  # at most a step, 1 / self.steps
            y[coarse] += self.multiply(rest * DIGIT) / DIGIT

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}"


def in_steps(u: Tensor, steps: int) -> Tensor:
    """q: how many steps of 1 / `steps` numbers from -1 to 1 are. Of 128 steps, 8 bits have room for 127 above zero."""
    return (u * steps + steps).round_().clamp_(0, 255).sub_(steps)


def is_coarse(u: Tensor, q: Tensor, limit: int = COARSE) -> Tensor:
    """For each row, whether its numbers have few steps on average. Neither zeros count, nor how large the largest are.

    The sums are of whole numbers: exact, in whatever order.
    """
    return q.abs().clamp_(max=4 * limit).sum(dim=-1) < limit * u.count_nonzero(dim=-1)


def has_outliers(x: Tensor) -> bool:
    """Whether a row of x is coarse, or nearly."""
    u = x / x.abs().amax(-1, True)
    return bool(is_coarse(u, in_steps(u, 128), 2 * COARSE).any())


def multiply_by(w_q: Tensor, scale_col: Tensor, steps: int) -> Multiply:
    """What makes scale_col · (q W_qᵀ) / steps of u [..., in], where q is u in steps: the quickest kernel there is."""
    if not is_fbgemm_here():
        return partial(plain_multiply, w_q=w_q.char(), scale_col=scale_col, steps=steps)
    with warnings.catch_warnings():  # torch means to replace quantised tensors, not these kernels
        warnings.simplefilter("ignore")
        zeros = torch.zeros(len(scale_col), dtype=torch.long)
        quantised = torch.quantize_per_channel(w_q * scale_col[:, None], scale_col, zeros, axis=0, dtype=torch.qint8)
    packed, step = torch.ops.quantized.linear_prepack(quantised, None), 1 / steps
    return lambda u: FBGEMM(u, step, steps, packed)


def is_fbgemm_here() -> bool:
    return torch.backends.quantized.engine in ("x86", "fbgemm")


def plain_multiply(u: Tensor, w_q: Tensor, scale_col: Tensor, steps: int) -> Tensor:
    """The same, to the bit, on every processor. w_q [out, in] of 8 bits"""
    q = in_steps(u, steps).reshape(-1, u.size(-1)).char()
    y = torch._int_mm(q, w_q.t()).float() * (scale_col / steps)
    return y.view(*u.shape[:-1], len(w_q))


@cache
def exact_bits() -> int:
    """8 if the kernel adds up products of 8 bits exactly, as with VNNI instructions.

    Without them it adds pairs of products in 16 bits: 2 · 255 · 127 is too much for these, 2 · 128 · 127 is not.
    """
    w_q, u = torch.full((16, 64), 127.0), torch.full((4, 64), 127 / 128)
    y = multiply_by(w_q, torch.ones(16), 128)(u)
    return 8 if (y == 64 * 127 * u[0, 0]).all() else 7
