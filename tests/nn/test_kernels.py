"""The readable kernel against the formula in NumPy, the fused one against the readable one, and rows of nothing."""

import numpy as np
import pytest
import torch
from helpers import max_difference
from hypothesis import given
from hypothesis import strategies as st

from cutaway.models.build import KERNELS
from cutaway.nn.kernels import attend_exact, attend_fused


def random_qkv(seed, B=2, H=3, Q=4, K=5, E=6):
    g = torch.Generator().manual_seed(seed)
    return [torch.randn(B, H, n, E, generator=g, dtype=torch.float64, requires_grad=True) for n in (Q, K, K)]


def attention_in_numpy(q, k, v, mask):
    """softmax(QKᵀ/sqrt(d)) V, one query at a time, straight from the paper."""
    out = np.zeros((*q.shape[:-1], v.shape[-1]))
    for b, h, i in np.ndindex(q.shape[:-1]):
        allowed = [j for j in range(k.shape[2]) if mask[b, h, i, j]]
        if allowed:
            scores = np.array([q[b, h, i] @ k[b, h, j] / np.sqrt(q.shape[-1]) for j in allowed])
            weights = np.exp(scores) / np.exp(scores).sum()
            out[b, h, i] = sum(w * v[b, h, j] for w, j in zip(weights, allowed, strict=True))
    return out


@given(st.integers(0, 10**6), st.integers(1, 6), st.integers(1, 6), st.floats(0.1, 0.9))
@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
def test_kernel_equals_formula(kernel, seed, Q, K, share):
    q, k, v = random_qkv(seed, Q=Q, K=K)
    mask = torch.rand(2, 3, Q, K, generator=torch.Generator().manual_seed(seed)) < share
    expected = attention_in_numpy(*(x.detach().numpy() for x in (q, k, v)), mask.numpy())
    assert max_difference(kernel(q, k, v, mask), torch.from_numpy(expected)) < 1e-10


@given(st.integers(0, 10**6), st.sampled_from([None, (4, 5), (2, 1, 1, 5), (2, 3, 4, 5)]))
def test_fused_equals_exact_forward_and_backward(seed, mask_shape):
    mask = None if mask_shape is None else torch.rand(mask_shape, generator=torch.Generator().manual_seed(seed)) < 0.5
    results = []
    for kernel in (attend_exact, attend_fused):
        q, k, v = random_qkv(seed)
        out = kernel(q, k, v, mask)
        (out * torch.arange(out.numel()).view_as(out)).sum().backward()
        results.append((out, q.grad, k.grad, v.grad))
    for exact, fused in zip(*results, strict=True):
        assert max_difference(exact, fused) < 1e-10


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
def test_a_row_that_may_attend_to_nothing_gives_zeros_and_no_gradient(kernel, dtype):
    q, k, v = (x.detach().to(dtype).requires_grad_() for x in random_qkv(0))
    mask = torch.ones(2, 3, 4, 5, dtype=torch.bool)
    mask[0, :, 2] = False
    out = kernel(q, k, v, mask)
    out.sum().backward()
    assert (out[0, :, 2] == 0).all()
    assert (q.grad[0, :, 2] == 0).all()
    for value in (out, q.grad, k.grad, v.grad):
        assert value.isfinite().all()


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
def test_nothing_at_all_to_attend_to(kernel):
    q, k, v = random_qkv(0)
    out = kernel(q, k, v, torch.zeros(4, 5, dtype=torch.bool))
    out.sum().backward()
    assert (out == 0).all()
    assert all((x.grad == 0).all() for x in (q, k, v))


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
def test_dropout_keeps_the_mean(kernel):
    torch.manual_seed(0)
    q, k, v = (x.detach() for x in random_qkv(1))
    mean = torch.stack([kernel(q, k, v, None, 0.3) for _ in range(4000)]).mean(0)
    assert max_difference(mean, kernel(q, k, v)) < 0.15
    assert max_difference(kernel(q, k, v, None, 0.3), kernel(q, k, v)) > 0.01
