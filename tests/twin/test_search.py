"""Edge cases of search in both engines. tests/decode/test_strategies.py compares their results."""

import numpy as np
import pytest
import torch
from helpers import TableModel

from cutaway.config import DecodeConfig
from cutaway.errors import DataError
from cutaway.inference.engines.numpy_engine import run_search as numpy_search
from cutaway.inference.engines.torch_engine import run_search as torch_search
from cutaway.search.request import Search, Start

BOS, EOS = 0, 1


class Table(TableModel):
    """TableModel with arrays instead of tensors."""

    def step(self, tokens):
        assert tokens.ndim == 1
        return super().step(torch.from_numpy(tokens)).numpy()

    def keep(self, rows):
        super().keep(torch.from_numpy(rows))


def search(limits, n_best=1, **settings):
    return Search(
        DecodeConfig(**{"strategy": "beam", "temperature": 1.0, "top_p": 1.0, **settings}),
        limits,
        range(len(limits)),
        BOS,
        EOS,
        n_best,
    )


def by_numpy(model, request):
    return numpy_search(model, start_of(request), request)


def by_torch(model, request):
    return torch_search(model, start_of(request), request)


def start_of(request):
    return Start.of([[BOS]] * len(request.limits), request.prefixes, is_history=False)


def by_definition(logits, temperature=1.0, top_k=0, top_p=1.0):
    """The sampling probabilities by definition: tokens from most to least probable, one at a time."""
    p = np.exp(logits / temperature) / np.exp(logits / temperature).sum()
    order = sorted(range(len(p)), key=lambda t: -p[t])[: top_k or None]
    total, kept, so_far = sum(p[t] for t in order), [], 0.0
    for t in order:
        if so_far < top_p * total:
            kept.append(t)
        so_far += p[t]
    return np.array([p[t] / sum(p[k] for k in kept) if t in kept else 0.0 for t in range(len(p))])


@pytest.mark.parametrize("search_by", [by_numpy, by_torch])
def test_sampling_from_nan_logits_is_an_error(search_by):
    class Broken(Table if search_by is by_numpy else TableModel):
        def logits(self, sentence, prefix):
            return torch.full((self.vocab,), float("nan"), dtype=torch.float64)

    with pytest.raises(DataError, match="the model's logits are not finite"):
        search_by(Broken(5, 1), search([3], strategy="sample"))


@pytest.mark.parametrize("search_by", [by_numpy, by_torch])
def test_sampling_at_a_tiny_temperature_is_greedy(search_by):
    make = Table if search_by is by_numpy else TableModel
    sampled = search_by(make(6, 2), search([8], strategy="sample", temperature=1e-300))
    greedy = search_by(make(6, 2), search([8], strategy="greedy"))
    assert sampled[0][0].tokens == greedy[0][0].tokens


class ConstantGenerator:
    """A random generator that always returns u."""

    def __init__(self, u):
        self.u = u

    def random(self):
        return self.u


@pytest.mark.parametrize("u", [0.0, np.nextafter(1.0, 0)])
@pytest.mark.parametrize("search_by", [by_numpy, by_torch])
def test_a_draw_at_either_end_of_the_interval_is_an_allowed_token(search_by, u, monkeypatch):
    monkeypatch.setattr(Search, "generators", lambda self: [ConstantGenerator(u)])
    make = Table if search_by is by_numpy else TableModel
    for seed in range(30):
        allowed = by_definition(Table(6, seed).logits(0, (BOS,)).numpy(), top_k=2)
        [[drawn]] = search_by(make(6, seed), search([1], strategy="sample", top_k=2))
        assert allowed[drawn.tokens[0] if drawn.tokens else EOS] > 0
