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
from cutaway.search.choices import ChoiceTrie

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
prefix = st.lists(tokens, max_size=2)
two_prefixes = st.tuples(prefix, prefix)
prompt = st.lists(tokens, min_size=1, max_size=3)
two_prompts = st.none() | st.tuples(prompt, prompt)  # none: a translation


def assert_same(found, expected):
    assert len(found) == len(expected)
    for hypothesis, (score, text, log_p) in zip(found, expected, strict=True):
        assert hypothesis.tokens == text
        assert is_close(hypothesis.score, score)
        assert is_close(hypothesis.log_probability, log_p)
        assert is_close(sum(hypothesis.token_log_probs), log_p)
        assert len(hypothesis.token_log_probs) == len(text) + hypothesis.finished


@both
@pytest.mark.parametrize("setting", SETTINGS, ids=str)
@settings(max_examples=6)
@given(seeds, st.tuples(st.integers(1, 3), st.integers(1, 3)), two_prefixes, two_prompts)
def test_a_beam_that_holds_all_prefixes_finds_the_best_text(find, setting, seed, limits, prefixes, prompts):
    """Two texts in a batch, each with its own limit, prefix and, for a text generator, prompt."""
    lengths = LENGTHS if setting.get("coverage_penalty") else ()
    prompts = None if lengths else prompts
    search = search_for(limits, 3, prefixes, beam_size=VOCAB**3, **setting)
    expected = [every_text(search, VOCAB, seed, row, prompts, lengths)[:3] for row in range(2)]
    if all(expected):
        for found, best in zip(find(search, VOCAB, seed, prompts, lengths=lengths), expected, strict=True):
            assert_same(found, best)
    else:
        with pytest.raises(DataError, match="the settings forbid every next token"):
            find(search, VOCAB, seed, prompts, lengths=lengths)


@both
@pytest.mark.parametrize("strategy", ["greedy", "beam", "sample"])
@given(seeds, st.lists(st.lists(tokens, max_size=3), min_size=1, max_size=4))
@settings(max_examples=20)
def test_the_output_is_trie_the_choices_and_beam_search_finds_the_best(find, strategy, seed, choices):
    trie = ChoiceTrie(choices, EOS)
    search = search_for([trie.longest], 2, allowed=trie, strategy=strategy, beam_size=VOCAB**3)
    found = find(search, VOCAB, seed)[0]
    assert all(hypothesis.tokens in choices and hypothesis.finished for hypothesis in found)
    if strategy == "beam":
        assert_same(found, every_text(search, VOCAB, seed)[:2])


@both
@given(seeds, st.sampled_from(SETTINGS), two_prefixes, st.integers(1, 6))
@settings(max_examples=40)
def test_the_search_ends_early_only_if_no_better_text_is_possible(find, seed, setting, prefixes, size):
    """A search that continues to the length limit finds the same best text."""
    lengths = LENGTHS if setting.get("coverage_penalty") else ()
    search = search_for([7, 6], 1, prefixes, beam_size=size, **setting)
    patient = search._replace(n_best=10**6)
    if size == 1:  # greedy search takes the first text that it finds
        return
    for [ended], [best, *_] in zip(
        find(search, 9, seed, lengths=lengths), find(patient, 9, seed, lengths=lengths), strict=True
    ):
        assert (ended.tokens, ended.score) == (best.tokens, best.score)


@pytest.mark.parametrize("strategy", ["greedy", "beam", "sample"])
@given(seeds, st.sampled_from(SETTINGS), two_prefixes, two_prompts, st.booleans())
@settings(max_examples=40)
def test_both_engines_find_the_same_texts_in_a_batch_and_alone(
    strategy, seed, setting, prefixes, prompts, with_alignment
):
    lengths = LENGTHS if setting.get("coverage_penalty") or with_alignment else ()
    prompts = None if lengths else prompts
    limits, n_best = [6, 4], 2 if strategy == "beam" else 1
    search = search_for(
        limits, n_best, prefixes, strategy=strategy, beam_size=3, with_alignment=with_alignment, **setting
    )

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
                assert np.allclose(one.token_log_probs, other.token_log_probs, atol=1e-9)
                assert (one.alignment is None) == (other.alignment is None) == (not with_alignment)
                assert not with_alignment or np.allclose(one.alignment, other.alignment, atol=1e-9)


@both
@pytest.mark.parametrize("strategy", ["greedy", "beam", "sample"])
def test_the_alignment_has_the_attention_weights_of_each_token(find, strategy):
    search = search_for([5, 5], 1, [[2], [3, 4]], strategy=strategy, with_alignment=True)
    for row, [found] in enumerate(find(search, 6, 3, lengths=LENGTHS)):
        model, read = Fake(6, 3, (row,), LENGTHS), (BOS, *search.prefixes[row])
        expected = [
            model.attend(row, (*read, *found.tokens[:n]))[: LENGTHS[row]] for n in range(len(found.token_log_probs))
        ]
        assert np.allclose(found.alignment, expected, atol=1e-12)


@both
def test_a_prefix_does_not_count_for_the_score(find):
    """A prefix gives the same result as a prompt with the same tokens."""
    for strategy in ("greedy", "beam", "sample"):
        [[with_prefix]] = find(search_for([4], 1, [[3, 4]], strategy=strategy), VOCAB, 8)
        [[with_prompt]] = find(search_for([4], 1, strategy=strategy), VOCAB, 8, [[BOS, 3, 4]])
        assert with_prefix == with_prompt


def test_coverage_and_alignment_are_refused_without_a_source():
    for setting in ({"coverage_penalty": 0.2}, {"with_alignment": True}):
        with pytest.raises(ConfigError, match="needs a source text"):
            search_for([3], strategy="beam", **setting).check(has_source=False)
    search_for([3], strategy="greedy", coverage_penalty=0.2).check(has_source=False)  # greedy search ignores it


@both
@pytest.mark.parametrize("strategy", ["greedy", "sample"])
def test_on_token_receives_each_token_and_can_end_the_text(find, strategy):
    for seed in range(10):
        plain = find(search_for([6, 6], strategy=strategy, prefixes=[[2], []]), VOCAB, seed)
        received = [[], []]

        def on_token(row, token, log_p, received=received):
            received[row].append((token, log_p))
            return row == 1 or len(received[row]) < 2

        streamed = find(search_for([6, 6], strategy=strategy, prefixes=[[2], []], on_token=on_token), VOCAB, seed)
        assert streamed[1] == plain[1]
        [ended], [whole] = streamed[0], plain[0]
        assert ended.tokens == whole.tokens[:2]
        assert ended.finished == (whole.finished and len(whole.tokens) < 2)
        for row, [found] in enumerate(streamed):
            assert received[row] == list(zip(found.tokens, found.token_log_probs, strict=False))
    with pytest.raises(ConfigError, match="beam search extends several texts"):
        search_for([3], strategy="beam", on_token=on_token).check(has_source=True)


@both
@pytest.mark.parametrize("strategy", ["greedy", "beam", "sample"])
def test_the_error_says_what_to_do_if_no_token_is_allowed(find, strategy):
    with pytest.raises(DataError, match="the settings forbid every next token.*Loosen"):
        find(search_for([4], strategy=strategy, allowed=lambda row, tokens: []), VOCAB, 1)
    with pytest.raises(DataError, match="the settings forbid every next token"):
        find(search_for([9], strategy=strategy, no_repeat_ngram=1, min_length=8), VOCAB, 1)


@both
@pytest.mark.parametrize("strategy", ["greedy", "beam", "sample"])
def test_allowed_is_called_only_with_allowed_texts(find, strategy):
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


def expected_distribution(logits, history, decode):
    """The distribution of the next token, computed from the definitions, most probable token first."""
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
def test_sampling_follows_the_exact_distribution(find, setting):
    """A chi-squared test of the first token after a prompt of two tokens."""
    n, vocab, seed, read = 1500, 7, 11, [2, 5]
    search = search_for([1] * n, strategy="sample", seed=4, **setting)
    found = find(search, vocab, seed, [read] * n, sentences=[0] * n)
    counts = collections.Counter(text.tokens[0] if text.tokens else EOS for [text] in found)
    logits = Fake(vocab, seed).logits(0, tuple(read)).tolist()
    expected = expected_distribution(logits, read, search.decode)
    assert set(counts) <= set(expected)
    chi2 = sum((counts[t] - n * p) ** 2 / (n * p) for t, p in expected.items())
    assert chi2 < 22.5  # the 0.999 quantile of chi-squared with 6 degrees of freedom
    changed = with_rules(logits, read, [], search.decode)  # log-probabilities are those before the filters
    assert all(is_close(text.token_log_probs[0], math.log(changed[(*text.tokens, EOS)[0]])) for [text] in found[:50])


@both
def test_samples_depend_only_on_seed_and_number(find):
    search = search_for([6] * 4, strategy="sample", numbers=[3, 7, 3, 9])
    found = find(search, 9, 1, sentences=[0] * 4)
    assert found[0] == found[2] != found[1]
    seeded = search._replace(seeds=[0, 5, 8, 5], numbers=[3, 3, 3, 3])
    again = find(seeded, 9, 1, sentences=[0] * 4)
    assert again[0] == found[0]
    assert again[1] == again[3] != again[2]


def test_default_settings_need_no_rules_and_no_source_weights():
    plain = search_for([3])
    assert not plain.has_rules
    assert not plain.needs_source_weights
    for field in ("repetition_penalty", "no_repeat_ngram", "min_length"):
        changed = plain._replace(decode=dataclasses.replace(plain.decode, **{field: 2}))
        assert changed.has_rules


@both
@pytest.mark.parametrize("strategy", ["greedy", "beam", "sample"])
def test_should_continue_ends_one_text_and_the_others_continue(find, strategy):
    calls = [0, 0, 0]

    def should_continue(row):
        calls[row] += 1
        return row != 1 or calls[1] < 3

    search = search_for([9, 9, 9], strategy=strategy, min_length=6, beam_size=2, length_penalty=0.0)
    alone, ended = find(search, 6, 3), find(search._replace(should_continue=should_continue), 6, 3)
    for row in (0, 2):
        assert [text.tokens for text in ended[row]] == [text.tokens for text in alone[row]]
    assert calls[1] == 3
    if strategy == "beam":
        assert ended[1] == []  # nothing was found yet
    else:
        assert ended[1][0].tokens == alone[1][0].tokens[:3]
        assert not ended[1][0].finished
