"""What must hold of every model that build.py can build, whatever its choices."""

import pytest
import torch
from helpers import ALL_CHOICES, V, max_difference, random_ids, tiny_model
from hypothesis import given
from hypothesis import strategies as st

pytestmark = pytest.mark.usefixtures("double")
every_choice = pytest.mark.parametrize("choice", ALL_CHOICES, ids=lambda c: "-".join(c.values()))
CLOSE = 1e-10


@every_choice
def test_shape_and_gradient(choice):
    model = tiny_model(**choice).train()
    logits = model(random_ids(3, 6), random_ids(3, 5))
    assert logits.shape == (3, 5, V)
    logits.logsumexp(-1).sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name


@every_choice
@given(st.integers(0, 10**6), st.integers(1, 7))
def test_the_future_cannot_change_the_past(choice, seed, t):
    model = tiny_model(**choice)
    source, target = random_ids(2, 5, seed=seed), random_ids(2, 8, seed=seed + 1)
    changed = target.clone()
    changed[:, t:] = random_ids(2, 8 - t, seed=seed + 2)
    assert torch.equal(model(source, target)[:, :t], model(source, changed)[:, :t])


@every_choice
def test_the_past_does_change_the_future(choice):
    """The counterpart: a model that ignores its input would pass the test above."""
    model = tiny_model(**choice)
    source, target = random_ids(2, 5), random_ids(2, 8, seed=1)
    changed = target.clone()
    changed[:, 2] = 4 + (changed[:, 2] - 3) % (V - 4)
    difference = (model(source, target) - model(source, changed)).abs().amax(-1)
    assert (difference[:, :2] == 0).all()
    assert (difference[:, 2:] > 1e-6).all()


@every_choice
@given(st.integers(0, 10**6), st.lists(st.tuples(st.integers(1, 7), st.integers(1, 7)), min_size=1, max_size=4))
def test_batch_equals_one_by_one_and_padding_changes_nothing(choice, seed, lengths):
    model = tiny_model(**choice)
    S, T = max(s for s, _ in lengths) + 2, max(t for _, t in lengths) + 1
    # what stands in the padding must not matter, so it is random too
    source, target = random_ids(len(lengths), S, seed=seed), random_ids(len(lengths), T, seed=seed + 1)
    source_mask = torch.arange(S)[None] < torch.tensor([s for s, _ in lengths])[:, None]
    target_mask = torch.arange(T)[None] < torch.tensor([t for _, t in lengths])[:, None]
    together = model(source, target, source_mask, target_mask)
    for i, (s, t) in enumerate(lengths):
        alone = model(source[i : i + 1, :s], target[i : i + 1, :t])
        assert max_difference(together[i, :t], alone[0]) < CLOSE


@every_choice
@given(st.integers(0, 10**6), st.lists(st.integers(1, 5), min_size=1, max_size=4))
def test_cached_equals_uncached(choice, seed, pieces):
    model = tiny_model(**choice)
    source, target = random_ids(3, 5, seed=seed), random_ids(3, sum(pieces), seed=seed + 1)
    source_mask = torch.arange(5)[None] < torch.tensor([5, 3, 1])[:, None]
    memory = model.encode(source, source_mask)
    whole = model.decode(target, memory, source_mask)
    cache, start = model.new_cache(), 0
    for length in pieces:
        part = model.decode(target[:, start : start + length], memory, source_mask, cache=cache)
        assert max_difference(part, whole[:, start : start + length]) < CLOSE
        start += length
    assert cache.length == sum(pieces)


@every_choice
def test_order_matters(choice):
    """Attention alone sees a bag of tokens: positions must make a permuted source a different one."""
    model = tiny_model(**choice)
    source, target = torch.tensor([[4, 5, 6, 7]]), random_ids(1, 3)
    assert max_difference(model(source, target), model(source.flip(1), target)) > 1e-4
