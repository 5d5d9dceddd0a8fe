"""The greatest few of each row, against torch's own ways."""

import pytest
import torch

from cutaway.decode.topk import FEW, argmax, topk

INF = float("inf")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("k", [1, 2, 5, FEW, FEW + 1])
def test_the_greatest_are_those_of_torch_and_nothing_is_changed(dtype, k):
    x = torch.randn(7, 40, generator=torch.Generator().manual_seed(k)).to(dtype)
    x = torch.argsort(torch.argsort(x)).to(dtype)  # all different
    before = x.clone()
    values, places = topk(x, k)
    assert torch.equal(values, x.topk(k).values)
    assert torch.equal(places, x.topk(k).indices)
    assert torch.equal(argmax(x), x.argmax(dim=-1))
    assert torch.equal(x, before)


def test_of_equals_the_first_comes_first():
    x = torch.tensor([[1.0, 3.0, 3.0, 2.0, 3.0]])
    assert argmax(x).tolist() == [1]
    assert topk(x, 4)[1].tolist() == [[1, 2, 4, 3]]


def test_what_is_not_there_is_minus_infinity():
    x = torch.tensor([[-INF, 5.0, -INF, 2.0], [-INF] * 4])
    before = x.clone()
    assert topk(x, 3)[0].tolist() == [[5, 2, -INF], [-INF] * 3]
    assert torch.equal(x, before)


def test_what_is_no_number_is_found_as_torch_finds_it():
    x = torch.tensor([[1.0, float("nan"), 3.0]])
    assert argmax(x).tolist() == x.argmax(dim=-1).tolist() == [1]
    assert topk(x, 2)[0][0, 0].isnan()
    assert topk(x, 2)[0][0, 1] == 3
