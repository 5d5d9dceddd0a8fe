import torch

from cutaway.nn.masks import causal_mask, join_masks, padding_mask


def test_true_means_may_attend():
    assert causal_mask(torch.arange(3), torch.arange(3)).tolist() == [
        [True, False, False],
        [True, True, False],
        [True, True, True],
    ]
    assert padding_mask(torch.tensor([[True, False]])).tolist() == [[[[True, False]]]]


def test_a_cached_step_is_the_last_row():
    whole = causal_mask(torch.arange(6), torch.arange(6))
    assert torch.equal(causal_mask(torch.tensor([5]), torch.arange(6)), whole[5:])


def test_masks_are_joined_with_and():
    a, b = torch.tensor([True, True, False]), torch.tensor([True, False, False])
    assert torch.equal(join_masks(a, None, b), a & b)
    assert join_masks(None, None) is None
