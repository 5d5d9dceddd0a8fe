"""Norms against their formulas in NumPy."""

import numpy as np
import pytest
import torch
from torch.nn import LayerNorm, RMSNorm

from cutaway.models.build import NORMS


def layer_norm(x, weight, bias, epsilon):
    mean = sum(x) / len(x)
    variance = sum((n - mean) ** 2 for n in x) / len(x)
    return (x - mean) / np.sqrt(variance + epsilon) * weight + bias


def rms_norm(x, weight, epsilon):
    """Zhang & Sennrich 2019, equation 4."""
    return x / np.sqrt(sum(n**2 for n in x) / len(x) + epsilon) * weight


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("epsilon", [1e-5, 1e-12, 0.5])
def test_norms_equal_their_formulas(epsilon):
    torch.manual_seed(0)
    x = 3 * torch.randn(2, 3, 8) + 1
    layer, rms = LayerNorm(8, epsilon), RMSNorm(8, epsilon)
    for parameter in (layer.weight, layer.bias, rms.weight):
        torch.nn.init.normal_(parameter)
    w, b, r = (p.detach().numpy() for p in (layer.weight, layer.bias, rms.weight))
    for i, j in np.ndindex(2, 3):
        assert np.abs(layer(x)[i, j].detach().numpy() - layer_norm(x[i, j].numpy(), w, b, epsilon)).max() < 1e-10
        assert np.abs(rms(x)[i, j].detach().numpy() - rms_norm(x[i, j].numpy(), r, epsilon)).max() < 1e-10


@pytest.mark.usefixtures("double")
def test_invariance_of_each_norm():
    """Both ignore the scale; only LayerNorm also ignores the mean."""
    x = torch.randn(5, 8)
    layer, rms = LayerNorm(8, 1e-12), RMSNorm(8, 1e-12)
    assert torch.allclose(layer(7 * x + 3), layer(x))
    assert torch.allclose(rms(7 * x), rms(x))
    assert not torch.allclose(rms(x + 3), rms(x))


@pytest.mark.parametrize("norm", NORMS.values(), ids=NORMS)
def test_no_division_by_zero_for_a_token_of_zeros(norm):
    x = torch.zeros(1, 1, 4, requires_grad=True)
    norm(4, 1e-5)(x).sum().backward()
    assert x.grad.isfinite().all()
