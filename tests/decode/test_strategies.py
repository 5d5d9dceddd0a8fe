"""Every strategy and setting, on both engines, against exhaustive search and exact distributions."""

import collections
import dataclasses
import itertools
import math

import numpy as np
import pytest
from helpers import is_close
from hypothesis import given, settings
from hypothesis import strategies as st
from searching import BOS, BOTH, EOS, Fake, every_text, search_for, with_rules

from cutaway.errors import ConfigError, DataError
from cutaway.search.choices import OneOf

VOCAB = 5
both = pytest.mark.parametrize("find", BOTH.values(), ids=BOTH)
seeds = st.integers(0, 10**6)
tokens = st.integers(2, VOCAB - 1)

SETTINGS = [
    {},
    {"length_penalty": 0.0},
    {"length_penalty": 2.0},
    {"coverage_penalty": 0.4},
    {"coverage_penalty": 3.0, "length_penalty": 1.0},
    {"min_length": 2},
    {"repetition_penalty": 1.7},
    {"repetition_penalty": 0.6, "length_penalty": 1.0},
    {"no_repeat_ngram": 1},
    {"no_repeat_ngram": 2},
    {"suppress": (3,)},
    {"repetition_penalty": 1.3, "no_repeat_ngram": 2, "min_length": 1, "coverage_penalty": 0.2, "suppress": (2,)},
]


LENGTHS = (4, 3)  # of the sources
some = st.lists(tokens, max_size=2)
two_prefixes = st.tuples(some, some)
prompt = st.lists(tokens, min_size=1, max_size=3)
two_prompts = st.none() | st.tuples(prompt, prompt)  # none: a translation


def same(found, expected):
    assert len(found) == len(expected)
    for hypothesis, (score, text, log_p) in zip(found, expected, strict=True):
        assert hypothesis.tokens == text
        assert is_close(hypothesis.score, score)
        assert is_close(hypothesis.log_probability, log_p)
        assert is_close(sum(hypothesis.gains), log_p)
        assert len(hypothesis.gains) == len(text) + hypothesis.finished


@both
@pytest.mark.parametrize("setting", SETTINGS, ids=str)
@settings(max_examples=6)
@given(seeds, st.tuples(st.integers(1, 3), st.integers(1, 3)), two_prefixes, two_prompts)
def test_a_beam_as_wide_as_the_live_prefixes_finds_the_best_there_is(find, setting, seed, limits, prefixes, prompts):
    """Two texts side by side, each with its own limit, prefix, and (of a generator) prompt."""
    lengths = LENGTHS if setting.get("coverage_penalty") else ()
    prompts = None if lengths else prompts
    search = search_for(limits, 3, prefixes, beam_size=VOCAB**3, **setting)
    expected = [every_text(search, VOCAB, seed, row, prompts, lengths)[:3] for row in range(2)]
    if all(expected):
        for found, best in zip(find(search, VOCAB, seed, prompts, lengths=lengths), expected, strict=True):
            same(found, best)
    else:
        with pytest.raises(DataError, match="no token may come next"):
            find(search, VOCAB, seed, prompts, lengths=lengths)


@both
@pytest.mark.parametrize("strategy", ["greedy", "beam", "sample"])
@given(seeds, st.lists(st.lists(tokens, max_size=3), min_size=1, max_size=4))
@settings(max_examples=20)
def test_an_answer_is_one_of_the_choices_and_the_best_of_them(find, strategy, seed, choices):
    one_of = OneOf(choices, EOS)
    search = search_for([one_of.longest], 2, allowed=one_of, strategy=strategy, beam_size=VOCAB**3)
    found = find(search, VOCAB, seed)[0]
    assert all(hypothesis.tokens in choices and hypothesis.finished for hypothesis in found)
    if strategy == "beam":
        same(found, every_text(search, VOCAB, seed)[:2])


@both
@given(seeds, st.sampled_from(SETTINGS), two_prefixes, st.integers(1, 6))
@settings(max_examples=40)
def test_the_search_ends_early_only_when_nothing_better_can_come(find, seed, setting, prefixes, size):
    """Running on to the greatest length finds the same best text."""
    lengths = LENGTHS if setting.get("coverage_penalty") else ()
    search = search_for([7, 6], 1, prefixes, beam_size=size, **setting)
    patient = search._replace(n_best=10**6)
    if size == 1:  # then the search is greedy, and takes the first text that it finds
        return
    for [ended], [best, *_] in zip(
        find(search, 9, seed, lengths=lengths), find(patient, 9, seed, lengths=lengths), strict=True
    ):
        assert (ended.tokens, ended.score) == (best.tokens, best.score)


@pytest.mark.parametrize("strategy", ["greedy", "beam", "sample"])
@given(seeds, st.sampled_from(SETTINGS), two_prefixes, two_prompts, st.booleans())
@settings(max_examples=40)
def test_both_engines_find_the_same_and_so_does_each_text_alone(strategy, seed, setting, prefixes, prompts, aligned):
    lengths = LENGTHS if setting.get("coverage_penalty") or aligned else ()
    prompts = None if lengths else prompts
    limits, n_best = [6, 4], 2 if strategy == "beam" else 1
    search = search_for(limits, n_best, prefixes, strategy=strategy, beam_size=3, aligned=aligned, **setting)

    def alone(find, row):
        one = search._replace(limits=limits[row:][:1], numbers=[row], prefixes=[prefixes[row]])
        return find(one, 9, seed, prompts and [prompts[row]], sentences=[row], lengths=lengths)[0]

    together = {name: find(search, 9, seed, prompts, lengths=lengths) for name, find in BOTH.items()}
    for row in range(2):
        texts = [together["torch"][row], together["numpy"][row], *(alone(find, row) for find in BOTH.values())]
        for others in texts[1:]:
            for one, other in zip(texts[0], others, strict=True):
                assert (one.tokens, one.finished) == (other.tokens, other.finished)
                assert is_close(one.score, other.score)
                assert np.allclose(one.gains, other.gains, atol=1e-9)
                assert (one.alignment is None) == (other.alignment is None) == (not aligned)
                assert not aligned or np.allclose(one.alignment, other.alignment, atol=1e-9)


@both
@pytest.mark.parametrize("strategy", ["greedy", "beam", "sample"])
def test_an_alignment_says_where_the_model_looked_for_each_token(find, strategy):
    search = search_for([5, 5], 1, [[2], [3, 4]], strategy=strategy, aligned=True)
    for row, [found] in enumerate(find(search, 6, 3, lengths=LENGTHS)):
        model, read = Fake(6, 3, (row,), LENGTHS), (BOS, *search.prefixes[row])
        expected = [model.look(row, (*read, *found.tokens[:n]))[: LENGTHS[row]] for n in range(len(found.gains))]
        assert np.allclose(found.alignment, expected, atol=1e-12)


@both
def test_a_prefix_counts_for_nothing(find):
    """As if the model had begun there, with its log-probabilities from there on."""
    for strategy in ("greedy", "beam", "sample"):
        [[led]] = find(search_for([4], 1, [[3, 4]], strategy=strategy), VOCAB, 8)
        [[begun]] = find(search_for([4], 1, strategy=strategy), VOCAB, 8, [[BOS, 3, 4]])
        assert led == begun


def test_coverage_and_alignments_are_refused_where_there_is_no_source():
    for asked in ({"coverage_penalty": 0.2}, {"aligned": True}):
        with pytest.raises(ConfigError, match="needs a source to look at"):
            search_for([3], strategy="beam", **asked).check(has_source=False)
    search_for([3], strategy="greedy", coverage_penalty=0.2).check(has_source=False)  # which greedy search never reads


@both
@pytest.mark.parametrize("strategy", ["greedy", "sample"])
def test_what_is_heard_is_what_is_written_and_may_end_it(find, strategy):
    for seed in range(10):
        plain = find(search_for([6, 6], strategy=strategy, prefixes=[[2], []]), VOCAB, seed)
        told = [[], []]

        def heard(row, token, log_p, told=told):
            told[row].append((token, log_p))
            return row == 1 or len(told[row]) < 2

        heard_of = find(search_for([6, 6], strategy=strategy, prefixes=[[2], []], heard=heard), VOCAB, seed)
        assert heard_of[1] == plain[1]
        [ended], [whole] = heard_of[0], plain[0]
        assert ended.tokens == whole.tokens[:2]
        assert ended.finished == (whole.finished and len(whole.tokens) < 2)
        for row, [found] in enumerate(heard_of):
            assert told[row] == list(zip(found.tokens, found.gains, strict=False))
    with pytest.raises(ConfigError, match="beam search follows several texts"):
        search_for([3], strategy="beam", heard=heard).check(has_source=True)


@both
@pytest.mark.parametrize("strategy", ["greedy", "beam", "sample"])
def test_where_nothing_is_allowed_the_error_says_what_to_do(find, strategy):
    with pytest.raises(DataError, match="no token may come next.*Loosen"):
        find(search_for([4], strategy=strategy, allowed=lambda row, tokens: []), VOCAB, 1)
    with pytest.raises(DataError, match="no token may come next"):
        find(search_for([9], strategy=strategy, no_repeat_ngram=1, min_length=8), VOCAB, 1)


@both
@pytest.mark.parametrize("strategy", ["greedy", "beam", "sample"])
def test_who_allows_is_asked_only_about_texts_that_are_allowed(find, strategy):
    def allowed(row, tokens):
        assert tokens[:1] == [2]  # the prefix
        assert all(b == a % 3 + 2 for a, b in itertools.pairwise(tokens)), tokens
        return [tokens[-1] % 3 + 2] if len(tokens) < 4 else [EOS]

    [[found], _] = find(search_for([6, 6], 1, [[2], [2, 4]], allowed, strategy=strategy), VOCAB, 1)
    assert found.tokens == [4, 3, 2]
    assert found.log_probability == pytest.approx(0, abs=1e-12)


FILTERS = [
    {},
    {"temperature": 0.5},
    {"temperature": 2.0},
    {"top_k": 2},
    {"top_p": 0.7},
    {"min_p": 0.2},
    {"min_p": 1.0},
    {"temperature": 0.7, "top_k": 4, "top_p": 0.85, "min_p": 0.1},
    {"repetition_penalty": 2.0},
    {"no_repeat_ngram": 1},
    {"min_length": 1},
    {"suppress": (3, 4)},
    {"repetition_penalty": 1.5, "min_length": 1, "temperature": 1.5, "top_p": 0.8, "min_p": 0.15},
]


def drawn_from(logits, history, decode):
    """The probabilities that sampling draws by, from the definitions, likeliest token first."""
    p = np.array(with_rules(logits, history, [], decode)) ** (1 / decode.temperature)
    p /= p.sum()
    order = sorted(np.flatnonzero(p), key=lambda t: -p[t])[: decode.top_k or None]
    total, so_far, kept = sum(p[t] for t in order), 0.0, []
    for t in order:
        if so_far < decode.top_p * total:
            kept.append(t)
        so_far += p[t]
    kept = [t for t in kept if p[t] >= decode.min_p * p[kept[0]]]
    return {int(t): p[t] / sum(p[k] for k in kept) for t in kept}


@pytest.mark.parametrize("find", [BOTH["torch"], pytest.param(BOTH["numpy"], marks=pytest.mark.slow)], ids=BOTH)
@pytest.mark.parametrize("setting", FILTERS, ids=str)
def test_sampling_draws_from_the_exact_distribution(find, setting):
    """A chi-squared test of the first token after a prompt of two."""
    n, vocab, seed, read = 1500, 7, 11, [2, 5]
    search = search_for([1] * n, strategy="sample", seed=4, **setting)
    found = find(search, vocab, seed, [read] * n, sentences=[0] * n)
    counts = collections.Counter(text.tokens[0] if text.tokens else EOS for [text] in found)
    logits = Fake(vocab, seed).logits(0, tuple(read)).tolist()
    expected = drawn_from(logits, read, search.decode)
    assert set(counts) <= set(expected)
    chi2 = sum((counts[t] - n * p) ** 2 / (n * p) for t, p in expected.items())
    assert chi2 < 22.5  # the 0.999 quantile of chi-squared with 6 degrees of freedom
    changed = with_rules(logits, read, [], search.decode)  # what was drawn tells the model's log-probability
    assert all(is_close(text.gains[0], math.log(changed[(*text.tokens, EOS)[0]])) for [text] in found[:50])


@both
def test_what_is_drawn_follows_from_seed_and_number(find):
    search = search_for([6] * 4, strategy="sample", numbers=[3, 7, 3, 9])
    found = find(search, 9, 1, sentences=[0] * 4)
    assert found[0] == found[2] != found[1]
    seeded = search._replace(seeds=[0, 5, 8, 5], numbers=[3, 3, 3, 3])
    again = find(seeded, 9, 1, sentences=[0] * 4)
    assert again[0] == found[0]
    assert again[1] == again[3] != again[2]


def test_settings_that_change_nothing_cost_nothing():
    plain = search_for([3])
    assert not plain.has_rules
    assert not plain.is_looking
    for field in ("repetition_penalty", "no_repeat_ngram", "min_length"):
        changed = plain._replace(decode=dataclasses.replace(plain.decode, **{field: 2}))
        assert changed.has_rules


@both
@pytest.mark.parametrize("strategy", ["greedy", "beam", "sample"])
def test_what_nobody_wants_any_more_ends_and_the_others_go_on(find, strategy):
    asked = [0, 0, 0]

    def wanted(row):
        asked[row] += 1
        return row != 1 or asked[1] < 3

    search = search_for([9, 9, 9], strategy=strategy, min_length=6, beam_size=2, length_penalty=0.0)
    alone, ended = find(search, 6, 3), find(search._replace(wanted=wanted), 6, 3)
    for row in (0, 2):
        assert [text.tokens for text in ended[row]] == [text.tokens for text in alone[row]]
    assert asked[1] == 3
    if strategy == "beam":
        assert ended[1] == []  # nothing was found until then
    else:
        assert ended[1][0].tokens == alone[1][0].tokens[:3]
        assert not ended[1][0].finished
