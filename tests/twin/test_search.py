"""The twin's own small search, against exhaustive search, exact distributions and the search of decode/."""

import collections
from itertools import chain

import numpy as np
import pytest
import torch
from helpers import TableModel, exhaustive_search, is_close
from hypothesis import given
from hypothesis import strategies as st

from cutaway.config import DecodeConfig
from cutaway.decode.request import Search
from cutaway.errors import DataError
from cutaway.torch_engine import found
from cutaway.twin.run import written

BOS, EOS = 0, 1
alphas = st.sampled_from([0.0, 0.6, 1.0, 2.0])
seeds = st.integers(0, 10**6)


class Table(TableModel):
    """The 20-line model of the other tests, with arrays."""

    def step(self, tokens):
        assert tokens.ndim == 1
        return super().step(torch.from_numpy(tokens)).numpy()

    def keep(self, rows):
        super().keep(torch.from_numpy(rows))


def search(limits, n_best=1, **settings):
    return Search(DecodeConfig(**settings), limits, range(len(limits)), BOS, EOS, n_best)


def by_numpy(model, request):
    return written(model, [BOS] * len(request.limits), request)


def by_torch(model, request):
    return found(model, torch.full((len(request.limits),), BOS), request)


@given(seeds, alphas, st.integers(1, 5))
def test_a_beam_as_wide_as_the_live_prefixes_finds_the_best_there_is(seed, alpha, limit):
    vocab = 4
    request = search([limit], n_best=3, beam_size=(vocab - 1) ** limit, length_penalty=alpha)
    expected = exhaustive_search(Table(vocab, seed), 0, BOS, EOS, limit, alpha)[:3]
    for hypothesis, (score, tokens, log_p) in zip(by_numpy(Table(vocab, seed), request)[0], expected, strict=True):
        assert hypothesis.tokens == tokens
        assert is_close(hypothesis.score, score)
        assert is_close(hypothesis.log_probability, log_p)


@given(
    seeds,
    st.sampled_from(["greedy", "beam", "sample"]),
    alphas,
    st.integers(1, 5),
    st.lists(st.integers(1, 7), min_size=1, max_size=4),
    st.integers(1, 3),
)
def test_it_finds_what_the_search_of_the_other_engine_finds(seed, strategy, alpha, size, limits, n_best):
    settings = {"beam": {"beam_size": size, "length_penalty": alpha}, "greedy": {}, "sample": {"seed": seed}}[strategy]
    request = search(limits, n_best if strategy == "beam" else 1, strategy=strategy, **settings)
    ours = by_numpy(Table(6, seed, len(limits)), request)
    theirs = by_torch(TableModel(6, seed, len(limits)), request)
    assert [[h.tokens for h in text] for text in ours] == [[h.tokens for h in text] for text in theirs]
    for one, other in zip(chain(*ours), chain(*theirs), strict=True):
        assert one.finished == other.finished
        assert is_close(one.score, other.score, 1e-9)
        assert is_close(one.log_probability, other.log_probability, 1e-9)


FILTERS = [{}, {"temperature": 0.5}, {"temperature": 2.0}, {"top_k": 2}, {"top_p": 0.7}]
FILTERS += [{"temperature": 0.7, "top_k": 3, "top_p": 0.8}, {"top_k": 99}]


@pytest.mark.parametrize("filters", FILTERS, ids=str)
def test_sampling_draws_from_the_exact_distribution(filters):
    """A chi-squared test of the first token."""
    n, vocab = 4000, 6
    request = search([1] * n, strategy="sample", **filters)
    model = Table(vocab, seed=3, rows=n, sharpness=1.0)
    model.sentence = [0] * n
    drawn = by_numpy(model, request)
    counts = collections.Counter(h.tokens[0] if h.tokens else EOS for [h] in drawn)
    expected = by_definition(Table(vocab, seed=3, sharpness=1.0).logits(0, (BOS,)).numpy(), **filters)
    assert set(counts) <= set(np.flatnonzero(expected))
    chi2 = sum((counts[t] - n * expected[t]) ** 2 / (n * expected[t]) for t in np.flatnonzero(expected))
    assert chi2 < 20.5  # the 0.999 quantile of chi-squared with 5 degrees of freedom


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


def test_a_seed_draws_the_same_and_another_does_not():
    def draw(seed):
        return by_numpy(Table(9, 1, rows=5), search([6] * 5, strategy="sample", seed=seed))

    assert draw(1) == draw(1)
    assert draw(1) != draw(2)


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
