"""Linear maps with 8-bit integers, for a CPU: a quarter of the memory traffic, and more products per second.

    W ≈ scale_col · W_q         a scale for each output (a row of W), W_q integers up to ±127          (computed once)
    x ≈ scale_row · q           a scale for each token (a row of x), q integers up to ±128             (in each call)

    y = x Wᵀ + b ≈ scale_row · scale_col · (q W_qᵀ) + b,    where the integer product is exact

**Outliers.** Trained models have a few channels that are 20 to 100 times larger than the others. They determine the
scale of a row, so its other numbers are rounded to one or two steps. Such a row gets a second digit r for the rest:

    x ≈ scale_row · (q + r / 127),    r integers up to ±127

**Independent rows.** The result of a row depends only on that row, so it is bit-identical alone and in any batch.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache, partial

import torch
from torch import Tensor, nn

from cutaway.inference.fast.packed_linear import raw_operator

MIN_STEPS = 6  # a row whose numbers have fewer steps than this, on average, gets a second digit
DIGIT_STEPS = 127  # steps of the second digit in one step of the first

Multiply = Callable[[Tensor], Tensor]
FBGEMM = raw_operator(torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32.default)


class Int8Product(nn.Module):
    """x [..., in] -> x Wᵀ + b [..., out], approximately. Only on a CPU.

    `outliers`: whether to check for rows that need a second digit. `bits` of q: 8, or 7 if the processor cannot add
    8-bit products exactly (None: detect).
    """

    def __init__(self, weight: Tensor, bias: Tensor | None = None, outliers: bool = True, bits: int | None = None):
        super().__init__()
        self.out_features, self.in_features = weight.shape
        self.outliers, self.steps = outliers, 2 ** ((bits or exact_bits()) - 1)
        weight = weight.detach().float()
        scale_col = weight.abs().amax(dim=1).clamp(min=1e-30) / 127
        self.multiply = make_multiply((weight / scale_col[:, None]).round(), scale_col, self.steps)
        self.bias = None if bias is None else bias.detach().float()

    def __call__(self, x: Tensor) -> Tensor:
        largest = x.abs().amax(-1, True)  # scale_row · steps
        u = x / largest  # from -1 to 1. In a row of zeros it is NaN, but `multiply` rounds it, and `largest` is 0.
        y = self.multiply(u)
        if self.outliers:
            self.add_second_digit(u, y)
        return y.mul_(largest) if self.bias is None else torch.addcmul(self.bias, y, largest)

    def add_second_digit(self, u: Tensor, y: Tensor) -> None:
        """y += scale_col · (r W_qᵀ) / 127 / steps, for coarse rows."""
        q = round_to_steps(u, self.steps)
        coarse = is_coarse(u, q)
        if coarse.any():
            rest = u[coarse] - q[coarse] / self.steps  # at most one step, 1 / self.steps
            y[coarse] += self.multiply(rest * DIGIT_STEPS) / DIGIT_STEPS

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}"


def round_to_steps(u: Tensor, steps: int) -> Tensor:
    """Round numbers from -1 to 1 to integer multiples of 1 / `steps`. With 128 steps, the maximum is 127 (8 bits)."""
    return (u * steps + steps).round_().clamp_(0, 255).sub_(steps)


def is_coarse(u: Tensor, q: Tensor, limit: int = MIN_STEPS) -> Tensor:
    """For each row, whether its numbers have few steps on average, without zeros and with large numbers clipped.

    The sums are integers, so they are exact in any order.
    """
    return q.abs().clamp_(max=4 * limit).sum(dim=-1) < limit * u.count_nonzero(dim=-1)


def has_outliers(x: Tensor) -> bool:
    """Whether a row of x is coarse or nearly coarse."""
    u = x / x.abs().amax(-1, True)
    return bool(is_coarse(u, round_to_steps(u, 128), 2 * MIN_STEPS).any())


def make_multiply(w_q: Tensor, scale_col: Tensor, steps: int) -> Multiply:
    """A function u [..., in] -> scale_col · (q W_qᵀ) / steps, with q = u rounded to steps, by the fastest kernel."""
    if not has_fbgemm():
        return partial(plain_multiply, w_q=w_q.char(), scale_col=scale_col, steps=steps)
    with warnings.catch_warnings():  # torch warns about quantized tensors; these kernels stay
        warnings.simplefilter("ignore")
        zeros = torch.zeros(len(scale_col), dtype=torch.long)
        quantized_w = torch.quantize_per_channel(w_q * scale_col[:, None], scale_col, zeros, axis=0, dtype=torch.qint8)
    packed, step = torch.ops.quantized.linear_prepack(quantized_w, None), 1 / steps
    return lambda u: FBGEMM(u, step, steps, packed)


def has_fbgemm() -> bool:
    return torch.backends.quantized.engine in ("x86", "fbgemm")


def plain_multiply(u: Tensor, w_q: Tensor, scale_col: Tensor, steps: int) -> Tensor:
    """The same result, bit for bit, on every processor. w_q [out, in] in int8"""
    q = round_to_steps(u, steps).reshape(-1, u.size(-1)).char()
    y = torch._int_mm(q, w_q.t()).float() * (scale_col / steps)
    return y.view(*u.shape[:-1], len(w_q))


@cache
def exact_bits() -> int:
    """8 if the kernel adds 8-bit products exactly, as with VNNI instructions; else 7.

    Without VNNI, it adds pairs of products in 16 bits. 2 · 255 · 127 overflows there, 2 · 128 · 127 does not.
    """
    w_q, u = torch.full((16, 64), 127.0), torch.full((4, 64), 127 / 128)
    y = make_multiply(w_q, torch.ones(16), 128)(u)
    return 8 if (y == 64 * 127 * u[0, 0]).all() else 7
