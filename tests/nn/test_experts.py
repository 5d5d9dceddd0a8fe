"""A mixture of experts against loops over the tokens; probes of the router; gradients."""

import numpy as np
import pytest
import torch
from helpers import max_difference, random_ids, tiny_model
from hypothesis import given
from hypothesis import strategies as st

from cutaway.nn.experts import Experts, balance_loss
from cutaway.nn.feedforward import FeedForward
from cutaway.nn.recording import record_activations


def make_mixture(n=5, k=2, seed=0, **options):
    torch.manual_seed(seed)
    return Experts([FeedForward(6, 10, torch.nn.functional.gelu) for _ in range(n)], 6, k, **options).eval()


def set_preference(mixture, *likes):
    """Make the router prefer experts in this order for all tokens whose first number is positive."""
    with torch.no_grad():
        mixture.route.weight.zero_()
        for rank, expert in enumerate(likes):
            mixture.route.weight[expert, 0] = 100.0 * (len(likes) - rank)
    return mixture


def by_loops(mixture, x):
    """Token by token: the k largest logits, their softmax, the weighted sum of these k experts."""
    out = torch.zeros_like(x)
    for b, t in np.ndindex(*x.shape[:2]):
        logits = mixture.route.weight.detach().numpy() @ x[b, t].numpy()
        chosen = sorted(range(len(logits)), key=lambda i: -logits[i])[: mixture.experts_per_token]
        exps = np.exp(logits[chosen] - logits[chosen].max())
        for p, i in zip(exps / exps.sum(), chosen, strict=True):
            out[b, t] += p * mixture.experts[i](x[b, t]).detach()
    return out


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("k", [1, 2, 3, 5])
def test_routing_equals_the_loops(k):
    mixture, x = make_mixture(k=k), torch.randn(3, 7, 6)
    assert max_difference(mixture(x), by_loops(mixture, x)) < 1e-10


@given(st.integers(0, 1000))
@pytest.mark.usefixtures("double")
def test_batch_equals_one_by_one(seed):
    mixture, x = make_mixture(seed=seed), torch.randn(4, 3, 6)
    out = mixture(x)
    for b, t in np.ndindex(4, 3):
        assert max_difference(out[b : b + 1, t : t + 1], mixture(x[b : b + 1, t : t + 1])) < 1e-12


@pytest.mark.usefixtures("double")
def test_padding_changes_nothing():
    mixture, x = make_mixture(), torch.randn(2, 4, 6)
    is_token = torch.tensor([[True] * 4, [True, True, False, False]])
    assert max_difference(mixture(x, is_token)[is_token], mixture(x)[is_token]) < 1e-12


# balance


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("k", [1, 2])
def test_probes_equal_their_formulas_without_padding(k):
    """Fedus et al. 2021, equations 4 to 6; with k experts per token, shares are relative to k · tokens."""
    mixture, x = make_mixture(n=4, k=k), torch.randn(2, 5, 6)
    is_token = torch.tensor([[True] * 5, [True, True, False, False, False]])
    with record_activations(mixture, "router", "load", "balance") as seen:
        mixture(x, is_token)
    counts, sums, tokens = np.zeros(4), np.zeros(4), 0
    for b, t in np.ndindex(2, 5):
        logits = mixture.route.weight.detach().numpy() @ x[b, t].numpy()
        p = np.exp(logits) / np.exp(logits).sum()
        assert np.abs(seen["router"][b, t].numpy() - p).max() < 1e-10
        if is_token[b, t]:
            tokens += 1
            sums += p
            for i in np.argsort(-logits)[:k]:
                counts[i] += 1
    share, mean_p = counts / (k * tokens), sums / tokens
    assert np.abs(seen["load"].numpy() - share).max() < 1e-10
    assert abs(seen["balance"].item() - 4 * sum(f * p for f, p in zip(share, mean_p, strict=True))) < 1e-10
    assert abs(seen["load"].sum().item() - 1) < 1e-10


def test_balance_is_one_when_even_and_n_when_one_expert_gets_all():
    even, one = torch.full((8,), 1 / 8), torch.eye(8)[3]
    assert balance_loss(even, even).item() == 1.0
    assert balance_loss(one, one).item() == 8.0
    mixture = set_preference(make_mixture(n=4, k=1), 2)
    with record_activations(mixture, "load", "balance") as seen:
        mixture(torch.rand(2, 3, 6) + 1)
    assert seen["load"].tolist() == [0, 0, 1, 0]
    assert abs(seen["balance"].item() - 4) < 1e-5


def test_the_balance_loss_moves_the_router_towards_equal_shares():
    """Its gradient flows through the probabilities, and a gradient step lowers the share of the largest expert."""
    mixture, x, losses = make_mixture(n=4, k=1), torch.rand(2, 8, 6) + 1, []
    with torch.no_grad():
        mixture.route.weight[2] += 0.3
    mixture.balance.watchers.append(losses.append)
    mixture(x)
    before = mixture.route(x).softmax(-1)[..., 2].mean()
    losses[0].backward()
    with torch.no_grad():
        mixture.route.weight -= 0.1 * mixture.route.weight.grad
    assert mixture.route(x).softmax(-1)[..., 2].mean() < before


def test_probe_values_are_not_computed_if_nobody_watches():
    mixture, x = make_mixture(), torch.randn(1, 3, 6)
    plain = mixture(x)
    with record_activations(mixture) as seen:
        assert torch.equal(mixture(x), plain)
    assert {"router", "load", "balance"} <= set(seen)


# capacity


@pytest.mark.usefixtures("double")
def test_capacity_is_off_by_default_and_off_when_not_training():
    x = torch.rand(1, 12, 6) + 1  # all use experts 1 and 3
    for mixture in (
        set_preference(make_mixture(), 1, 3).train(),
        set_preference(make_mixture(capacity=1.0), 1, 3).eval(),
    ):
        assert max_difference(mixture(x), by_loops(mixture, x)) < 1e-10


@pytest.mark.usefixtures("double")
def test_tokens_beyond_the_capacity_get_no_output():
    mixture, x = set_preference(make_mixture(n=4, k=1, capacity=1.5), 2).train(), torch.rand(2, 4, 6) + 1
    out = mixture(x).flatten(0, 1)  # 8 tokens, 4 experts: the capacity is 1.5 · 8/4 = 3
    assert max_difference(out[:3], by_loops(mixture, x).flatten(0, 1)[:3]) < 1e-10
    assert (out[3:] == 0).all()


@pytest.mark.usefixtures("double")
def test_padding_uses_no_capacity():
    mixture, x = set_preference(make_mixture(n=4, k=1, capacity=4.0), 2).train(), torch.rand(2, 4, 6) + 1
    is_token = torch.tensor([[False] * 4, [True] * 4])
    assert max_difference(mixture(x, is_token)[1], by_loops(mixture, x)[1]) < 1e-10
    mixture.capacity = 2.0  # capacity 2.0 · 4/4 = 2 of the four tokens
    out = mixture(x, is_token)[1]
    assert [bool((row != 0).any()) for row in out] == [True, True, False, False]


# gradients


@pytest.mark.usefixtures("double")
def test_only_experts_with_tokens_get_gradients():
    mixture, x = set_preference(make_mixture(), 4, 1), torch.rand(2, 3, 6) + 1
    mixture(x).pow(2).sum().backward()
    for i, expert in enumerate(mixture.experts):
        gradients = [p.grad for p in expert.parameters()]
        assert all((g is not None and g.abs().sum() > 0) if i in (4, 1) else g is None for g in gradients), i


@pytest.mark.usefixtures("double")
def test_gradients_by_finite_differences():
    mixture, x = make_mixture(), torch.randn(2, 3, 6, requires_grad=True)
    assert torch.autograd.gradcheck(mixture, (x,))
    mixture(x).pow(2).sum().backward()
    assert mixture.route.weight.grad.abs().sum() > 0  # the router learns through its weights


def test_the_probes_of_a_model_with_experts():
    model = tiny_model(experts=3)
    is_token = torch.tensor([[True] * 5, [True] * 2 + [False] * 3])
    with record_activations(model, "*.load", "*.router", "*.balance") as seen:
        model(random_ids(2, 5), random_ids(2, 4), is_token)
    assert seen["encoder.layers.1.feed_forward.router"].shape == (2, 5, 3)
    for name in (n for n in seen if n.endswith("load")):
        assert abs(seen[name].sum().item() - 1) < 1e-6
    # 7 tokens, 2 experts each: shares are multiples of 1/14, not of 1/20
    places = 14 * seen["encoder.layers.0.feed_forward.load"]
    assert max_difference(places, places.round()) < 1e-5
