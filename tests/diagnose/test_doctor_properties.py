"""The doctor on synthetic curves: it finds problems of every kind and size, and none in healthy runs."""

import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from observing import CLASSES, FACTS, LANGUAGE, make_observations

from cutaway.config import ModelConfig
from cutaway.data.builtin import load_builtin
from cutaway.diagnose.curve_checks import repeats_itself, repetition
from cutaway.diagnose.doctor import diagnose

MODELS = {"translator": ModelConfig(vocab_size=1000), "text generator": LANGUAGE, "classifier": CLASSES}
ANY_MODEL = st.sampled_from(list(MODELS.values()))
SEEDS = st.integers(0, 10**6)


def found(observed) -> dict[str, str]:
    return {finding.check: finding.severity for finding in diagnose(observed).findings}


def noisy(curve, noise, seed):
    """Add relative noise to each value."""
    return (np.asarray(curve) * np.exp(noise * np.random.default_rng(seed).standard_normal(len(curve)))).tolist()


def falling(start, end, rows, pace=5.0):
    """Fall from `start` to `end` and stay there, like a healthy training."""
    return end + (start - end) * np.exp(-pace * np.linspace(0, 1, rows) * 2)


@given(ANY_MODEL, st.floats(0.005, 1), st.floats(1.3, 20), st.integers(4, 40), st.floats(0.15, 0.7), SEEDS)
def test_a_validation_loss_that_rises_is_overfitting(model, scale, factor, validations, turn, seed):
    best = scale * 3 * make_observations(model=model).chance_loss / 7  # 0.02 to 3 nats; less for classes
    before = max(1, round(turn * validations) - 1)
    down, up = falling(5 * best, best, before + 1)[:-1], np.linspace(best, factor * best, validations - before)
    train = falling(5 * best, 0.1 * best, 30)
    observed = make_observations(noisy(train, 0.01, seed), noisy([*down, *up], 0.005, seed), model=model)
    if len(up) > 2:
        assert found(observed).get("overfitting") in ("warning", "problem"), diagnose(observed)
    else:  # one validation after the best may be noise, but the check must not pass
        assert "no overfitting" not in diagnose(observed).in_order


@given(ANY_MODEL, st.floats(0.35, 1), st.floats(0, 0.2), st.integers(1, 20))
def test_a_training_loss_far_below_the_validation_loss_is_overfitting(model, share, left, validations):
    chance_loss = make_observations(model=model).chance_loss
    valid = falling(chance_loss, share * chance_loss, validations) if validations > 1 else [share * chance_loss]
    observed = make_observations([*falling(chance_loss, left * share * chance_loss, 20)], [*valid], model=model)
    assert found(observed)["overfitting"] == "problem"


@given(ANY_MODEL, st.floats(0.002, 0.38), st.floats(0, 0.015), st.integers(3, 60), st.floats(0.7, 1.5), SEEDS)
def test_a_healthy_training_has_no_findings(model, share, noise, validations, beside, seed):
    """For any final loss and any number of validations."""
    chance_loss = make_observations(model=model).chance_loss
    valid = noisy(falling(chance_loss, share * chance_loss, validations), noise, seed)
    train = noisy(falling(chance_loss, beside * share * chance_loss, 40), 2 * noise, seed + 1)
    problems = {"overfitting", "rate_too_high", "stuck", "not_a_number", "warmup", "samples"}
    findings = found(make_observations(train, valid, model=model, data=None))
    assert not problems & findings.keys(), findings


@given(ANY_MODEL, st.floats(0.01, 0.4), st.floats(1.5, 4), st.integers(6, 60), SEEDS)
def test_a_rising_training_loss_is_found(model, share, factor, rows, seed):
    chance_loss = make_observations(model=model).chance_loss
    low = share * chance_loss
    curve = [*falling(chance_loss, low, rows // 2), *np.linspace(low, factor * low, rows - rows // 2)[1:], factor * low]
    assert found(make_observations(noisy(curve, 0.01, seed), [], model=model))["rate_too_high"] == "problem"


@given(ANY_MODEL, st.floats(0.02, 0.3), st.floats(0.12, 0.5), st.integers(4, 28), SEEDS)
def test_a_jump_is_found_wherever_it_is(model, share, height, place, seed):
    chance_loss = make_observations(model=model).chance_loss
    curve = noisy(falling(chance_loss, share * chance_loss, 30), 0.01, seed)
    curve[place] = 1.6 * curve[place - 3] + height * chance_loss
    assert "rate_too_high" in found(make_observations(curve, model=model))


@given(st.sampled_from([0.03, 0.2, 0.69, 1.3]), st.floats(0.98, 1.02), st.floats(0.2, 0.7), SEEDS)
def test_knowing_only_frequencies_is_found_however_uneven_they_are(entropy, level, better, seed):
    facts = replace(FACTS, answer_entropy=entropy, majority=None)
    flat = noisy(falling(1.39, entropy * level, 20), 0.001, seed)
    assert found(make_observations(flat, model=CLASSES, data=facts))["stuck"] == "problem"
    assert "stuck" not in found(make_observations([*falling(1.39, entropy * better, 20)], model=CLASSES, data=facts))


@given(st.integers(1, 5000), st.integers(1, 5000))
def test_a_warmup_is_compared_with_the_steps(steps, warmup):
    observed = make_observations(train={"steps": steps, "warmup": warmup})
    severity = found(observed).get("warmup")
    assert severity == ("problem" if warmup >= steps else "warning" if 2 * warmup > steps else None)
    titles = [finding.title for finding in diagnose(observed).findings if finding.check == "warmup"]
    assert ("longer" in "".join(titles)) == (warmup > steps)


# ---- Repetitive texts ----------------------------------------------------------------------------

VOCABULARY = [f"{a}{b}" for a in "bcdfglmnprst" for b in ("ain", "ol", "er", "ume", "ot")]


def words(count, seed):
    return random.Random(seed).sample(VOCABULARY, count)


@given(st.integers(1, 25), st.integers(3, 12), SEEDS)
def test_a_repeated_unit_of_any_length_is_found(unit, times, seed):
    unit_words = words(unit, seed)
    times = max(times, 6 // unit)
    assert repeats_itself(" ".join(unit_words * times), "a sentence without repetition")
    assert repeats_itself(
        " ".join([*unit_words * times, *unit_words[: unit // 2]]), ""
    )  # cut off in the last repetition
    if unit >= 8:
        assert repeats_itself(" ".join(words(unit, seed) * 2), "")


@given(st.integers(5, 12), st.integers(4, 9), SEEDS)
def test_a_repeated_unit_with_a_changing_number_is_found(unit, times, seed):
    """As in 'item 1 of the list, item 2 of the list, ...'"""
    parts = words(unit, seed)
    assert repeats_itself(" ".join(" ".join([str(n), *parts]) for n in range(times)), "")


@pytest.mark.parametrize("unit", ["ha", "foo(", "日本語です", "na-na ", "=+", "x"])
def test_units_within_a_word_are_found(unit):
    assert repeats_itself(unit * 8, "")
    assert repeats_itself(f"well , then he said {unit * 30} and left", "well , then he said it and left")


@given(st.integers(0, 60), SEEDS)
def test_different_words_are_not_repetition(count, seed):
    assert repetition(" ".join(words(count, seed))) == 0.0


def test_ordinary_sentences_do_not_repeat():
    for pair in load_builtin("tinyworld:en-de", "test", size=100):
        assert not repeats_itself(pair.target, pair.source)


def test_programs_rarely_repeat():
    texts = load_builtin("python", "test", size=5)
    pieces = [text[start : start + 240] for text in texts for start in range(0, min(len(text), 24_000), 240)]
    assert len(pieces) > 100
    repeating = [piece for piece in pieces if repeats_itself(piece, "")]
    assert len(repeating) < 0.03 * len(pieces), repeating


def test_a_text_may_repeat_like_its_reference():
    assert not repeats_itself("one two three " * 9, "one two three " * 8)
    assert repeats_itself("one two three " * 9, "one two three four")
