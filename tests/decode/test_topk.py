"""argmax and topk against torch."""

import pytest
import torch

from cutaway.decode.topk import MAX_PASSES, argmax, topk

INF = float("inf")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("k", [1, 2, 5, MAX_PASSES, MAX_PASSES + 1])
def test_topk_equals_torch_and_leaves_its_input_unchanged(dtype, k):
    x = torch.randn(7, 40, generator=torch.Generator().manual_seed(k)).to(dtype)
    x = torch.argsort(torch.argsort(x)).to(dtype)  # all different
    before = x.clone()
    values, places = topk(x, k)
    assert torch.equal(values, x.topk(k).values)
    assert torch.equal(places, x.topk(k).indices)
    assert torch.equal(argmax(x), x.argmax(dim=-1))
    assert torch.equal(x, before)


def test_the_first_of_equal_numbers_comes_first():
    x = torch.tensor([[1.0, 3.0, 3.0, 2.0, 3.0]])
    assert argmax(x).tolist() == [1]
    assert topk(x, 4)[1].tolist() == [[1, 2, 4, 3]]


def test_missing_places_are_minus_infinity():
    x = torch.tensor([[-INF, 5.0, -INF, 2.0], [-INF] * 4])
    before = x.clone()
    assert topk(x, 3)[0].tolist() == [[5, 2, -INF], [-INF] * 3]
    assert torch.equal(x, before)


def test_nan_is_handled_like_in_torch():
    x = torch.tensor([[1.0, float("nan"), 3.0]])
    assert argmax(x).tolist() == x.argmax(dim=-1).tolist() == [1]
    assert topk(x, 2)[0][0, 0].isnan()
    assert topk(x, 2)[0][0, 1] == 3
