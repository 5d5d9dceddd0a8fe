"""The exact kernel against the formula in NumPy, the fused one against the exact one, and rows without allowed keys."""

import numpy as np
import pytest
import torch
from helpers import max_difference
from hypothesis import given
from hypothesis import strategies as st

from cutaway.errors import ConfigError
from cutaway.models.build import KERNELS
from cutaway.nn.kernels import attend_exact, attend_fused, soft_cap


def random_qkv(seed, B=2, H=3, Q=4, K=5, E=6):
    g = torch.Generator().manual_seed(seed)
    return [torch.randn(B, H, n, E, generator=g, dtype=torch.float64, requires_grad=True) for n in (Q, K, K)]


def attention_in_numpy(q, k, v, mask, bias=None, cap=0.0):
    """softmax(QKᵀ/sqrt(d)) V, one query at a time, from the paper; scores are capped, then biased."""
    out = np.zeros((*q.shape[:-1], v.shape[-1]))
    for b, h, i in np.ndindex(q.shape[:-1]):
        allowed = [j for j in range(k.shape[2]) if mask[b, h, i, j]]
        if allowed:
            scores = np.array([q[b, h, i] @ k[b, h, j] / np.sqrt(q.shape[-1]) for j in allowed])
            scores = cap * np.tanh(scores / cap) if cap else scores
            scores = scores if bias is None else scores + bias[b, h, i, allowed]
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
def test_a_row_without_allowed_keys_gives_zeros_and_no_gradient(kernel, dtype):
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
def test_no_keys_at_all(kernel):
    q, k, v = random_qkv(0)
    out = kernel(q, k, v, torch.zeros(4, 5, dtype=torch.bool))
    out.sum().backward()
    assert (out == 0).all()
    assert all((x.grad == 0).all() for x in (q, k, v))


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
def test_dropout_keeps_the_mean(kernel):
    torch.manual_seed(0)
    q, k, v = (x.detach() for x in random_qkv(1))
    mean = torch.stack([kernel(q, k, v, dropout=0.3) for _ in range(4000)]).mean(0)
    assert max_difference(mean, kernel(q, k, v)) < 0.15
    assert max_difference(kernel(q, k, v, dropout=0.3), kernel(q, k, v)) > 0.01


@given(st.integers(0, 10**6), st.booleans())
@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
def test_bias_is_added_to_the_scores(kernel, seed, masked):
    q, k, v = random_qkv(seed)
    torch.manual_seed(seed)
    bias, mask = torch.randn(2, 3, 4, 5, dtype=torch.float64), torch.rand(2, 3, 4, 5) < 0.5
    mask = mask if masked else torch.ones_like(mask)
    expected = attention_in_numpy(*(x.detach().numpy() for x in (q, k, v)), mask.numpy(), bias.numpy())
    assert max_difference(kernel(q, k, v, mask if masked else None, bias), torch.from_numpy(expected)) < 1e-10


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
def test_a_biased_row_without_allowed_keys_gives_zeros_and_no_gradient(kernel):
    q, k, v = random_qkv(0)
    bias = torch.randn(3, 4, 5, dtype=torch.float64, requires_grad=True)
    mask = torch.ones(2, 3, 4, 5, dtype=torch.bool)
    mask[:, :, 2] = False
    out = kernel(q, k, v, mask, bias)
    (7.0 * out).sum().backward()
    assert (out[:, :, 2] == 0).all()
    assert (q.grad[:, :, 2] == 0).all()
    assert (bias.grad[:, 2] == 0).all()
    assert all(x.grad.isfinite().all() for x in (q, k, v, bias))


@given(st.integers(0, 10**6), st.sampled_from([0.5, 2.0, 50.0]))
def test_cap_equals_formula(seed, cap):
    q, k, v = random_qkv(seed)
    q = 20 * q  # so that the cap has an effect
    bias, mask = torch.randn(2, 3, 4, 5, dtype=torch.float64), torch.ones(2, 3, 4, 5, dtype=torch.bool)
    expected = attention_in_numpy(*(x.detach().numpy() for x in (q, k, v)), mask.numpy(), bias.numpy(), cap)
    assert max_difference(attend_exact(q, k, v, None, bias, cap=cap), torch.from_numpy(expected)) < 1e-10


def test_soft_cap_bounds_large_scores_and_keeps_small_ones():
    assert soft_cap(torch.tensor([-1e6, 1e6]), 50.0).tolist() == [-50.0, 50.0]
    small = torch.linspace(-0.01, 0.01, 9, dtype=torch.float64)
    assert max_difference(soft_cap(small, 50.0), small) < 1e-9


@pytest.mark.parametrize("G", [1, 2, 3])
@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
def test_grouped_heads_equal_repeated_heads(kernel, G):
    """Head h uses key-value head h // (H/G); the gradients of heads that share are summed."""
    q, k, v = random_qkv(3, H=6)
    shared = [x.detach()[:, :G].clone().requires_grad_() for x in (k, v)]
    full = [torch.stack([x[:, h // (6 // G)] for h in range(6)], dim=1).detach().requires_grad_() for x in shared]
    grouped, repeated = kernel(q, *shared), kernel(q, *full)
    assert max_difference(grouped, repeated) < 1e-10
    (grouped.pow(2).sum() + repeated.pow(2).sum()).backward()
    for few, many in zip(shared, full, strict=True):
        assert max_difference(few.grad, many.grad.unflatten(1, (G, -1)).sum(2)) < 1e-10


def test_relative_values_are_computed_from_the_weights():
    q, k, v = random_qkv(4)
    seen = {}
    out = attend_exact(
        q, k, v, relative_values=lambda w: 3 * w @ v, probe_weights=lambda w: seen.setdefault("weights", w)
    )
    assert max_difference(out, 4 * seen["weights"] @ v) < 1e-10


@pytest.mark.parametrize("option", [{"cap": 1.0}, {"relative_values": lambda w: w}])
def test_the_fused_kernel_refuses_unsupported_options(option):
    with pytest.raises(ConfigError, match="cannot cap scores or add relative values. Use attend_exact"):
        attend_fused(*random_qkv(0), **option)
