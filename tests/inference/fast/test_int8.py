"""Products of 8-bit integers: exact sums, a scale for each row, a second digit for outliers."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from cutaway.inference.fast import int8
from cutaway.inference.fast.int8 import Int8Product, exact_bits, make_multiply, plain_multiply, round_to_steps

BITS = pytest.mark.parametrize("bits", [8, 7])
BIAS = pytest.mark.parametrize("bias", [True, False], ids=["bias", "none"])
KERNELS = pytest.mark.parametrize("kernel", ["fastest", "plain"])


def select_kernel(kernel, monkeypatch):
    if kernel == "plain":
        monkeypatch.setattr(int8, "has_fbgemm", lambda: False)


@BITS
@BIAS
@KERNELS
@pytest.mark.parametrize("shape", [(1, 16), (5, 16), (2, 3, 16), (0, 16)])
def test_the_error_of_an_int8_product_is_bounded(shape, bias, bits, kernel, monkeypatch):
    select_kernel(kernel, monkeypatch)
    torch.manual_seed(0)
    weight = torch.randn(24, 16) * torch.logspace(-2, 2, 24)[:, None]  # rows of very different sizes
    weight[7] = 0
    x, b = torch.randn(shape) * torch.logspace(-3, 3, shape[0])[:, *[None] * (len(shape) - 1)], None
    if bias:
        b = torch.randn(24)
    y, exact = Int8Product(weight, b, bits=bits)(x), F.linear(x, weight, b)
    assert y.shape == exact.shape
    if not x.numel():
        return
    # error of a weight: at most half a step, 1/127 of its row's maximum; of x: at most a step of its row's maximum
    step_x = x.abs().amax(dim=-1, keepdim=True) / 2 ** (bits - 1)
    largest = weight.abs().amax(dim=1)
    bound = x.abs().sum(dim=-1, keepdim=True) * largest / 254 + weight.abs().sum(dim=1) * step_x
    error = (y - exact).abs()
    assert (error <= 1.01 * bound + 1e-5).all()
    assert (error[..., torch.arange(24) != 7].amax(dim=-1) > 0).all()  # but it is not exact


@BITS
def test_every_kernel_computes_the_exact_integer_product(bits):
    torch.manual_seed(0)
    steps = 2 ** (bits - 1)
    for n_in, n_out in ((1, 1), (3, 5), (17, 23), (64, 48), (300, 40)):
        w_q, scale = torch.randint(-127, 128, (n_out, n_in)), torch.rand(n_out)
        u = (2 * torch.rand(9, n_in) - 1).sign() * torch.rand(9, n_in).sqrt()  # many near ±1
        u[0], u[1] = 1, -1
        q = np.rint(u.numpy().astype(np.float32) * steps + np.float32(steps)).clip(0, 255).astype(int) - steps
        exact = torch.tensor(q @ w_q.numpy().T).float() * (scale / steps)
        assert torch.equal(round_to_steps(u, steps), torch.tensor(q).float())
        assert torch.equal(plain_multiply(u, w_q.char(), scale, steps), exact)
        assert torch.equal(make_multiply(w_q.float(), scale, steps)(u), exact)


ROWS = st.lists(
    st.sampled_from(["usual", "tiny", "huge", "outlier", "zero", "sparse", "nan", "inf"]), min_size=2, max_size=40
)


@settings(max_examples=25, deadline=None)
@given(ROWS, st.sampled_from([8, 7]), st.booleans(), st.sampled_from([(8, 5), (17, 23), (64, 96), (1030, 12)]))
def test_a_row_is_the_same_alone_and_in_any_batch(kinds, bits, bias, shape):
    n_in, n_out = shape
    torch.manual_seed(0)
    x = torch.randn(len(kinds), n_in)
    for row, kind in zip(x, kinds, strict=True):
        row *= {"tiny": 1e-30, "huge": 1e30, "zero": 0.0}.get(kind, 1.0)
        if kind == "sparse":
            row[torch.rand(n_in) < 0.9] = 0
        row[3] *= {"outlier": 300.0, "nan": float("nan"), "inf": float("inf")}.get(kind, 1.0)
    product = Int8Product(torch.randn(n_out, n_in), torch.randn(n_out) if bias else None, bits=bits)
    together = product(x)
    order = torch.randperm(len(x))
    apart = torch.cat([product(row[None]) for row in x])
    for other in (
        apart,
        product(x[order])[order.argsort()],
        product(x[:, None])[:, 0],
        torch.cat([product(x[:1]), product(x[1:])]),
    ):
        assert torch.equal(other.nan_to_num(7.5), together.nan_to_num(7.5))
    finite = torch.tensor([kind not in ("nan", "inf") for kind in kinds])
    assert together[finite].isfinite().all()
    assert not together[~finite].isfinite().any()
    zero = torch.tensor([kind == "zero" for kind in kinds])
    assert (together[zero] == (product.bias if bias else 0)).all()


def test_the_number_of_threads_changes_nothing():
    torch.manual_seed(0)
    x, product = torch.randn(300, 500), Int8Product(torch.randn(333, 500), torch.randn(333))
    x[::7, 3] *= 100
    threads = torch.get_num_threads()
    try:
        found = []
        for n in (1, 2):
            torch.set_num_threads(n)
            found.append(product(x))
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(*found)


@BITS
def test_the_second_digit_reduces_the_error_of_outliers(bits):
    torch.manual_seed(0)
    x, weight = torch.randn(6, 256), torch.randint(-127, 128, (64, 256)).float()  # weights that int8 represents exactly
    weight[:, 0], weight[:, 9::64] = 127.0, 1.0
    x[:, 9::64] *= 100.0  # 4 channels of 256
    exact = F.linear(x, weight)
    error = {o: (Int8Product(weight, outliers=o, bits=bits)(x) - exact).std() / exact.std() for o in (True, False)}
    assert error[True] < 0.01
    assert error[False] > 20 * error[True]


def test_7_bits_are_used_if_8_bit_products_saturate(monkeypatch):
    """As on processors without VNNI: pairs of products are added in 16 bits, with saturation."""

    def saturating_multiply(w_q, scale_col, steps):
        def multiply(u):
            q = round_to_steps(u, steps) + steps
            pairs = (q[:, None] * w_q).unflatten(-1, (-1, 2)).sum(dim=-1).clamp(-(2**15), 2**15 - 1)
            return (pairs.sum(dim=-1) - steps * w_q.sum(dim=1)) * scale_col / steps

        return multiply

    assert exact_bits() in (7, 8)
    monkeypatch.setattr(int8, "make_multiply", saturating_multiply)
    assert exact_bits.__wrapped__() == 7
    w_q, u = torch.full((3, 64), 127.0), torch.ones(2, 64)
    assert torch.equal(saturating_multiply(w_q, torch.ones(3), 64)(u), plain_multiply(u, w_q.char(), torch.ones(3), 64))
