"""Statistics against scipy and synthetic data, and the sentences of the verdict."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from cutaway.course.verdict import (
    MANY_VARIANTS,
    METRICS,
    compare,
    fit_power_law,
    fit_scaling,
    student_central_share,
    student_quantile,
    t_interval,
    three_digits,
    verdict,
)

LOSS, EXACT = METRICS["cross-entropy"], METRICS["exact match"]


@pytest.mark.parametrize("freedom", [1, 2, 3, 4, 5, 9, 10, 29, 100])
@pytest.mark.parametrize("p", [0.9, 0.975, 0.995])
def test_student_quantiles_agree_with_scipy(freedom, p):
    assert student_quantile(p, freedom) == pytest.approx(stats.t.ppf(p, freedom), rel=1e-9)


@given(st.floats(0, 50), st.integers(1, 40))
def test_student_central_share_agrees_with_scipy(t, freedom):
    assert student_central_share(t, freedom) == pytest.approx(2 * stats.t.cdf(t, freedom) - 1, abs=1e-9)


@given(st.lists(st.floats(-100, 100), min_size=2, max_size=8))
def test_intervals_agree_with_scipy(values):
    interval = t_interval(values)
    assert interval.count == len(values)
    spread = np.std(values, ddof=1)
    if spread > 1e-6:
        low, high = stats.t.interval(0.95, len(values) - 1, np.mean(values), stats.sem(values))
        assert interval.low == pytest.approx(low, rel=1e-6, abs=1e-6)
        assert interval.high == pytest.approx(high, rel=1e-6, abs=1e-6)


def test_the_interval_contains_the_true_mean_in_95_percent_of_samples():
    draw = np.random.default_rng(0)
    intervals = [t_interval(draw.normal(3, 2, size=3)) for _ in range(4_000)]
    share = np.mean([interval.low <= 3 <= interval.high for interval in intervals])
    assert abs(share - 0.95) < 0.012


def test_one_value_has_no_interval():
    assert t_interval([1.0]) is None


def compared(ours, theirs, metric=LOSS):
    return compare("no residual", "intact", metric, dict(enumerate(ours, 1)), dict(enumerate(theirs, 1)))


def test_better_and_worse_depend_on_the_metric():
    worse = compared([0.10, 0.20, 0.30], [0.41, 0.50, 0.62])
    assert worse.finding == "worse"
    assert worse.sentence() == (
        "“no residual” is worse than “intact” in cross-entropy: 0.510 against 0.200. "
        "The difference is 0.310 (95 % interval 0.285 to 0.335, 3 seeds)."
    )
    better = compared([0.41, 0.50, 0.62], [0.10, 0.20, 0.30]).sentence()
    assert "is better than “intact” in cross-entropy: 0.200 against 0.510. The difference is 0.310 (" in better
    better = compared([0.1, 0.2, 0.3], [0.4, 0.49, 0.61], EXACT).sentence()
    assert "is better than “intact” in exact match: 50.0 % against 20.0 %. The difference is 30.0 points (" in better
    worse = compared([0.4, 0.49, 0.61], [0.1, 0.2, 0.3], EXACT).sentence()
    assert "is worse than “intact” in exact match: 20.0 % against 50.0 %. The difference is 30.0 points (" in worse


def test_seeds_are_compared_in_pairs():
    """Variation between seeds does not hide a difference that is the same for each seed."""
    apart = compared([0.1, 1.1, 2.1], [0.2, 1.21, 2.19])
    assert apart.finding == "worse"
    assert apart.difference.mean == pytest.approx(0.1)


def test_an_interval_that_contains_zero_states_what_it_could_detect():
    null = compared([0.10, 0.11, 0.12], [0.11, 0.10, 0.125])
    assert null.finding == "no difference shown"
    sentence = null.sentence()
    assert sentence.startswith("No difference shown between “no residual” and “intact” in cross-entropy: ")
    assert "The 95 % interval of the difference contains 0 (" in sentence
    smallest = three_digits(null.difference.half_width)
    assert f"3 seeds would probably miss a difference below {smallest}." in sentence
    assert "equal" not in sentence  # an interval that contains 0 is no proof of equality
    assert "The two are equal with each of 3 seeds." in compared([0, 0, 0], [0, 0, 0]).sentence()


def test_seeds_without_a_result_are_named():
    some = compared([0.1, 0.2, 0.3, 0.1], [0.5, "diverged at step 40", 0.7, 0.5])
    assert some.difference.count == 3
    assert some.sentence().endswith("3 seeds). No result: seed 2 (no residual: diverged at step 40).")
    all_lost = compared([0.1, 0.2, 0.3], ["diverged at step 1"] * 3)
    assert all_lost.finding == "no result"
    assert all_lost.sentence().startswith(
        "“no residual” cannot be compared with “intact”: no seed has a result for both. "
        "No result: seed 1 (no residual: diverged at step 1), seed 2 (no"
    )
    assert (
        len(verdict([all_lost, compared([0.1, 0.2, 0.3], ["diverged at step 1"] * 3, EXACT)])) == 1
    )  # not once for each metric
    assert "only one seed has a result for both" in compared([0.1, "crashed"], [0.2, 0.3]).sentence()
    assert "No result: seed 2 (intact: crashed)." in compared([0.1, "crashed"], [0.2, 0.3]).sentence()


def test_many_variants_get_a_summary_and_a_warning():
    few = [compare(variant, "first", LOSS, {1: 0.1, 2: 0.2}, {1: 0.3, 2: 0.5}) for variant in "ab"]
    assert MANY_VARIANTS not in verdict(few)
    many = verdict(
        [
            *(compare(variant, "first", LOSS, {1: 0.1, 2: 0.2, 3: 0.3}, {1: 0.5, 2: 0.6, 3: 0.71}) for variant in "ab"),
            compare("c", "first", LOSS, {1: 0.1, 2: 0.2, 3: 0.3}, {1: 0.2, 2: 0.1, 3: 0.3}),
            compare("d", "first", LOSS, {1: 0.1, 2: 0.2, 3: 0.3}, {1: "diverged at step 3", 2: 0.01, 3: 0.111}),
        ]
    )
    assert many[0] == (
        "Compared with “first” in cross-entropy. Better: “d”. Worse: “a”, “b”. No difference shown: “c”. "
        "No result: seed 1 (d: diverged at step 3)."
    )
    assert many[1:] == [MANY_VARIANTS]


def test_numbers_have_three_significant_digits():
    assert [three_digits(v) for v in (0.00123, 0.1234, 1.234, 12.34, 1234.5, 0.0)] == [
        "0.00123",
        "0.123",
        "1.23",
        "12.3",
        "1234",
        "0",
    ]
    assert LOSS.format_range(0.0015, 0.281) == "0.002 to 0.281"
    assert EXACT.format(0.9876) == "98.8 %"


SIZES = [3e3, 1e4, 3e4, 1e5, 3e5, 1e6]


@pytest.mark.parametrize(
    ("floor", "factor", "exponent"), [(1.7, 20.0, 0.34), (0.0, 3.0, 0.08), (2.0, 500.0, 0.9), (1.0, 0.5, 0.5)]
)
def test_the_constants_of_a_power_law_are_recovered(floor, factor, exponent):
    law = fit_power_law(SIZES, [floor + factor * n**-exponent for n in SIZES])
    assert law.exponent == pytest.approx(exponent, rel=1e-3)
    assert law.floor == pytest.approx(floor, abs=1e-3)
    assert law.factor == pytest.approx(factor, rel=1e-2)
    assert law(1e5) == pytest.approx(floor + factor * 1e5**-exponent, rel=1e-4)


def test_noise_is_fitted_by_least_squares():
    """No constants near the fitted ones have a smaller error."""
    draw = np.random.default_rng(1)
    losses = [1.7 + 20 * n**-0.34 + draw.normal(0, 0.02) for n in SIZES]
    law = fit_power_law(SIZES, losses)

    def error(floor, factor, exponent):
        return sum((floor + factor * n**-exponent - loss) ** 2 for n, loss in zip(SIZES, losses, strict=True))

    best = error(law.floor, law.factor, law.exponent)
    for _ in range(300):
        near = (v * math.exp(draw.normal(0, 0.05)) for v in (law.floor, law.factor, law.exponent))
        assert error(*near) >= best - 1e-9


def test_a_floor_cannot_be_negative():
    assert fit_power_law(SIZES, [5 - 0.3 * math.log(n) for n in SIZES]).floor == 0


def test_two_sizes_are_too_few():
    with pytest.raises(ValueError, match="needs at least 3 different sizes, but there are 2"):
        fit_power_law([1e3, 1e4], [2.0, 1.0])


def test_the_interval_of_the_exponent_is_over_seeds():
    true = {1: 0.30, 2: 0.34, 3: 0.38}
    fit = fit_scaling({seed: {n: 1.5 + 20 * n**-b for n in SIZES} for seed, b in true.items()})
    expected = t_interval(list(true.values()))
    assert fit.exponent.mean == pytest.approx(0.34, abs=1e-3)
    assert fit.exponent.low == pytest.approx(expected.low, abs=2e-3)
    sentences = " ".join(fit.sentences())
    assert "loss(N) = " in sentences
    assert "95 % interval 0.241 to 0.439, 3 seeds" in sentences
    assert "contains 0" not in sentences
    assert fit.worst < 0.02
    assert "The fitted floor is 0" not in sentences
    bent = fit_scaling({seed: {n: 5 - b * math.log(n) for n in SIZES} for seed, b in true.items()})
    assert "The fitted floor is 0" in " ".join(bent.sentences())
    assert fit.as_json()["by_seed"].keys() == {"1", "2", "3"}
