"""What both searches do at the edges. That they find the same, and the right thing: tests/decode/test_strategies.py."""

import numpy as np
import pytest
import torch
from helpers import TableModel

from cutaway.config import DecodeConfig
from cutaway.errors import DataError
from cutaway.inference.engines.numpy_engine import written
from cutaway.inference.engines.torch_engine import found
from cutaway.search.request import Search, Start

BOS, EOS = 0, 1


class Table(TableModel):
    """The 20-line model of the other tests, with arrays."""

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
    return written(model, start_of(request), request)


def by_torch(model, request):
    return found(model, start_of(request), request)


def start_of(request):
    return Start.of([[BOS]] * len(request.limits), request.prefixes, is_history=False)


def by_definition(logits, temperature=1.0, top_k=0, top_p=1.0):
    """Probabilities one token at a time, from the likeliest down, as one would with pencil and paper."""
    p = np.exp(logits / temperature) / np.exp(logits / temperature).sum()
    order = sorted(range(len(p)), key=lambda t: -p[t])[: top_k or None]
    total, kept, so_far = sum(p[t] for t in order), [], 0.0
    for t in order:
        if so_far < top_p * total:
            kept.append(t)
        so_far += p[t]
    return np.array([p[t] / sum(p[k] for k in kept) if t in kept else 0.0 for t in range(len(p))])


@pytest.mark.parametrize("search_by", [by_numpy, by_torch])
def test_logits_that_are_no_numbers_are_refused_and_not_drawn_from(search_by):
    class Broken(Table if search_by is by_numpy else TableModel):
        def logits(self, sentence, prefix):
            return torch.full((self.vocab,), float("nan"), dtype=torch.float64)

    with pytest.raises(DataError, match="the model's logits are not finite numbers"):
        search_by(Broken(5, 1), search([3], strategy="sample"))


@pytest.mark.parametrize("search_by", [by_numpy, by_torch])
def test_the_coldest_sampling_is_greedy(search_by):
    make = Table if search_by is by_numpy else TableModel
    coldest = search_by(make(6, 2), search([8], strategy="sample", temperature=1e-300))
    greedy = search_by(make(6, 2), search([8], strategy="greedy"))
    assert coldest[0][0].tokens == greedy[0][0].tokens


class Always:
    """Chance, not left to chance."""

    def __init__(self, u):
        self.u = u

    def random(self):
        return self.u


@pytest.mark.parametrize("u", [0.0, np.nextafter(1.0, 0)])
@pytest.mark.parametrize("search_by", [by_numpy, by_torch])
def test_a_draw_at_either_end_falls_on_a_token_that_may_be_drawn(search_by, u, monkeypatch):
    monkeypatch.setattr(Search, "draws", lambda self: [Always(u)])
    make = Table if search_by is by_numpy else TableModel
    for seed in range(30):
        allowed = by_definition(Table(6, seed).logits(0, (BOS,)).numpy(), top_k=2)
        [[drawn]] = search_by(make(6, seed), search([1], strategy="sample", top_k=2))
        assert allowed[drawn.tokens[0] if drawn.tokens else EOS] > 0
