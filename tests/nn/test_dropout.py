"""Dropout against its definition: share of zeros, mean, independence."""

import pytest
import torch
import torch.nn.functional as F

from cutaway.nn.dropout import LEVELS, Dropout, drop


@pytest.mark.parametrize("p", [0.1, 0.3, 0.5])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_share_of_zeros_and_the_mean(p, dtype):
    torch.manual_seed(0)
    dropped = drop(torch.ones(400, 1_001, dtype=dtype), p)
    rate = round(p * LEVELS) / LEVELS
    assert abs((dropped == 0).double().mean().item() - rate) < 4 * (p * (1 - p) / dropped.numel()) ** 0.5
    kept = dropped[dropped != 0].unique()
    assert kept.tolist() == pytest.approx([1 / (1 - rate)])
    assert abs(rate - p) < 2e-5


def test_neighbours_are_independent():
    """Four elements share a random number, but every pattern of four must be as frequent as with independent ones."""
    torch.manual_seed(0)
    p, n = 0.3, 200_000
    zero = (drop(torch.ones(n, 4), p) == 0).long()
    found = torch.bincount(zero @ torch.tensor([8, 4, 2, 1]), minlength=16).double()
    ones = torch.tensor([bin(i).count("1") for i in range(16)])
    expected = n * p**ones * (1 - p) ** (4 - ones)
    assert ((found - expected) ** 2 / expected).sum() < 37.7  # chi-squared, 15 degrees of freedom, 1 in 1,000


def test_gradients_are_zero_where_numbers_were_dropped():
    x = torch.randn(7, 5, 3, requires_grad=True)
    out = drop(x, 0.5)
    out.sum().backward()
    assert torch.equal(x.grad == 0, out == 0)
    assert torch.allclose(x.grad * x, out)


def test_it_depends_on_the_seed_and_does_nothing_in_eval_mode():
    x, layer = torch.randn(2, 3), Dropout(0.5)
    outs = []
    for _ in range(2):
        torch.manual_seed(3)
        outs.append(layer(x))
    assert torch.equal(*outs)
    assert torch.equal(layer.eval()(x), x)
    assert torch.equal(drop(x, 0.0), F.dropout(x, 0.0))


def test_any_memory_layout():
    x = torch.randn(4, 6).T
    assert drop(x, 0.5).shape == (6, 4)
    assert drop(x[:0], 0.5).shape == (0, 4)
