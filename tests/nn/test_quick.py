"""A part that is called straight does what it did, and whoever hooks it is called."""

import copy

import pytest
import torch
from helpers import max_difference, perturbed, random_ids, tiny_of
from torch import nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from cutaway.models.inference import as_built, make_ready
from cutaway.nn.feedforward import FeedForward
from cutaway.nn.quick import Quick, built_as, make_quick, make_usual


def quick_part():
    torch.manual_seed(0)
    part = FeedForward(4, 8, torch.relu)
    make_quick(part)
    return part


def test_a_quick_part_is_still_what_it_was():
    part, x = quick_part(), torch.randn(2, 3, 4)
    assert isinstance(part, FeedForward)
    assert isinstance(part, Quick)
    assert repr(part).startswith("FeedForward(")
    assert built_as(part) is FeedForward
    again = copy.deepcopy(part)
    with torch.no_grad():
        assert torch.equal(part(x), part.forward(x))
        assert torch.equal(again(x), part(x))
    make_quick(part)  # twice is as good as once
    make_usual(part)
    assert type(part) is FeedForward
    assert type(again) is not FeedForward


def test_what_does_nothing_stays_known_as_that():
    nothing = nn.Identity()
    make_quick(nothing)
    assert type(nothing) is nn.Identity


def hooks_of(part, calls):
    note = lambda *_: calls.append(1)  # noqa: E731
    yield part.register_forward_hook(note)
    yield part.register_forward_pre_hook(note)
    yield register_module_forward_hook(lambda module, *_: note() if module is part else None)
    yield register_module_forward_pre_hook(lambda module, *_: note() if module is part else None)


@pytest.mark.parametrize("which", range(4))
def test_whoever_hooks_it_is_called_until_he_leaves(which):
    part, x, calls = quick_part(), torch.randn(2, 4), []
    with torch.no_grad():
        for number, hook in enumerate(hooks_of(part, calls)):
            if number == which:
                part(x)
                assert calls == [1]
            hook.remove()
        part(x)
    assert calls == [1]


def test_hooks_of_the_backward_pass_are_called_too():
    part, calls = quick_part(), []
    part.register_full_backward_hook(lambda *_: calls.append(1))
    part(torch.randn(2, 4, requires_grad=True)).sum().backward()
    assert calls == [1]


@pytest.mark.parametrize("family", ["encoder_decoder", "decoder"])
def test_a_ready_model_is_quick_and_as_built_it_is_not(family):
    model = perturbed(tiny_of(family))
    ids = (random_ids(2, 3), random_ids(2, 4)) if family == "encoder_decoder" else (random_ids(2, 3),)
    with torch.no_grad():
        before = model(*ids)
        make_ready(model)
        assert isinstance(model.decoder.layers[0], Quick)
        assert max_difference(model(*ids), before) < 1e-5
    assert not any(isinstance(part, Quick) for part in as_built(model).modules())
