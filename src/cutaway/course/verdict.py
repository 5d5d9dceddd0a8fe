"""The verdict of an experiment: differences between variants, their confidence intervals, and sentences. No torch here.

All variants use the same seeds. A seed fixes the data, its order and, where shapes agree, the initial weights. So
variants are compared seed by seed: the interval is for the mean of the paired differences, which cancels the variation
that all variants of a seed share.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

import numpy as np

LEVEL = 0.95


@dataclass(frozen=True)
class Metric:
    """A metric of a trained model, and how to print its values."""

    name: str
    what: str  # its definition, for readers who do not know it
    lower_is_better: bool = False
    needs_decoding: bool = False  # computed from decoded texts; for translation only

    @property
    def is_fraction(self) -> bool:
        return not self.lower_is_better

    def format(self, value: float) -> str:
        return f"{value:.1%}".replace("%", " %") if self.is_fraction else three_digits(value)

    def format_difference(self, value: float, other: float = 0.0) -> str:
        """Format in percentage points, or with the precision of the larger of two numbers printed together."""
        return f"{100 * value:.1f}" if self.is_fraction else three_digits(value, other)

    def format_range(self, low: float, high: float) -> str:
        return f"{self.format_difference(low, high)} to {self.format_difference(high, low)}"

    @property
    def unit(self) -> str:
        return " points" if self.is_fraction else ""


METRICS = {
    metric.name: metric
    for metric in (
        Metric("cross-entropy", "nats per token on validation data, after the correct tokens", lower_is_better=True),
        Metric("accuracy", "fraction of validation tokens predicted correctly, after the correct tokens"),
        Metric("exact match", "fraction of greedily decoded texts that equal the reference", needs_decoding=True),
        Metric("token accuracy", "fraction of words at the right position in greedy decoding", needs_decoding=True),
    )
}


def three_digits(value: float, other: float = 0.0) -> str:
    """Format with three significant digits of the larger number: 0.00123, 0.123, 1.23, 12.3."""
    size = max(abs(value), abs(other))
    if size == 0 or not math.isfinite(size):
        return f"{value:g}"
    digits = min(6, max(0, 2 - math.floor(math.log10(size))))
    return f"{value:.{digits}f}"


@dataclass(frozen=True)
class Interval:
    """A mean over seeds and its 95 % confidence interval."""

    mean: float
    low: float
    high: float
    count: int

    @property
    def contains_zero(self) -> bool:
        return self.low <= 0 <= self.high

    @property
    def half_width(self) -> float:
        return (self.high - self.low) / 2


def t_interval(values: Sequence[float], level: float = LEVEL) -> Interval | None:
    """mean ± t · s / √n, with Student's t for n - 1 degrees of freedom; None for fewer than two values."""
    n = len(values)
    if n < 2:
        return None
    mean, spread = float(np.mean(values)), float(np.std(values, ddof=1))
    half = student_quantile((1 + level) / 2, n - 1) * spread / math.sqrt(n)
    return Interval(mean, mean - half, mean + half, n)


@cache
def student_quantile(p: float, freedom: int) -> float:
    """The p-quantile of Student's t distribution for p > 1/2, by bisection."""
    low, high = 0.0, 1.0
    while student_central_share(high, freedom) < 2 * p - 1:
        low, high = high, 2 * high
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if student_central_share(middle, freedom) < 2 * p - 1 else (low, middle)
    return (low + high) / 2


def student_central_share(t: float, freedom: int) -> float:
    """P(-t < T < t): a finite sum for integer degrees of freedom (Abramowitz & Stegun, 26.7.3 and 26.7.4).

    odd     2/π · (θ + sin θ (cos θ + 2/3 cos³θ + 2·4/3·5 cos⁵θ + ...))        θ = atan(t / √freedom)
    even    sin θ (1 + 1/2 cos²θ + 1·3/2·4 cos⁴θ + ...)
    """
    angle = math.atan(t / math.sqrt(freedom))
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = freedom % 2
    term = cosine if odd else 1.0
    total = 0.0
    for power in range(odd, freedom - 1, 2):  # powers of the cosine, up to freedom - 2
        total += term
        term *= (power + 1) / (power + 2) * cosine**2
    return 2 / math.pi * (angle + sine * total) if odd else sine * total


FINDINGS = ("better", "worse", "no difference shown", "no result")


@dataclass(frozen=True)
class Comparison:
    """A variant compared with the baseline in one metric."""

    variant: str
    baseline: str
    metric: Metric
    pairs: Mapping[int, tuple[float, float]]  # seed -> (value of the baseline, value of the variant)
    lost: Mapping[int, str]  # seed without a value -> why

    @property
    def difference(self) -> Interval | None:
        """Interval of the variant's value minus the baseline's."""
        return t_interval([value - base for base, value in self.pairs.values()])

    def sentence(self) -> str:
        name, lost, difference = self.metric.name, self.describe_lost_seeds(), self.difference
        if not self.pairs:
            return f"“{self.variant}” cannot be compared with “{self.baseline}”: no seed has a result for both.{lost}"
        if difference is None:
            return (
                f"“{self.variant}” and “{self.baseline}” cannot be compared in {name}: only one seed has a result for "
                f"both.{lost}"
            )
        base, value = (self.metric.format(float(np.mean(side))) for side in zip(*self.pairs.values(), strict=True))
        if difference.contains_zero:
            finding = f"No difference shown between “{self.variant}” and “{self.baseline}” in {name}"
        else:
            finding = f"“{self.variant}” is {self.finding} than “{self.baseline}” in {name}"
        return f"{finding}: {value} against {base}. {self.describe_interval(difference)}{lost}"

    @property
    def finding(self) -> str:
        """One of FINDINGS."""
        difference = self.difference
        if difference is None:
            return "no result"
        if difference.contains_zero:
            return "no difference shown"
        return "worse" if (difference.mean > 0) == self.metric.lower_is_better else "better"

    def describe_interval(self, difference: Interval) -> str:
        format, unit, count = self.metric.format_difference, self.metric.unit, difference.count
        if difference.low == difference.high == 0:
            return f"The two are equal with each of {count} seeds."
        if difference.contains_zero:
            interval = self.metric.format_range(difference.low, difference.high)
            return (
                f"The 95 % interval of the difference contains 0 ({interval}{unit}, {count} seeds). "
                f"{count} seeds would probably miss a difference below {format(difference.half_width)}{unit}."
            )
        low, high = sorted((abs(difference.low), abs(difference.high)))
        return (
            f"The difference is {format(abs(difference.mean), high)}{unit} "
            f"(95 % interval {self.metric.format_range(low, high)}, {count} seeds)."
        )

    def as_json(self) -> dict[str, Any]:
        return {
            "variant": self.variant,
            "measure": self.metric.name,
            "difference": self.difference and asdict(self.difference),
            "finding": self.finding,
            "lost": {str(seed): why for seed, why in self.lost.items()},
            "sentence": self.sentence(),
        }

    def describe_lost_seeds(self) -> str:
        if not self.lost:
            return ""
        return f" No result: {', '.join(f'seed {seed} ({why})' for seed, why in self.lost.items())}."


def compare(
    variant: str,
    baseline: str,
    metric: Metric,
    baseline_values: Mapping[int, float | str],
    variant_values: Mapping[int, float | str],
) -> Comparison:
    """Compare seed by seed. The values are seed -> value, or seed -> a text that says why there is none."""
    pairs, lost = {}, {}
    for seed, base in baseline_values.items():
        value = variant_values[seed]
        if isinstance(base, str):
            lost[seed] = f"{baseline}: {base}"
        elif isinstance(value, str):
            lost[seed] = f"{variant}: {value}"
        else:
            pairs[seed] = (base, value)
    return Comparison(variant, baseline, metric, pairs, lost)


MANY_VARIANTS = (
    "Each interval is for one comparison. Among many comparisons, about one interval in twenty misses the true "
    "difference by chance. So this does not prove that the best variant here is the best."
)


def verdict(comparisons: Sequence[Comparison]) -> list[str]:
    """Return a sentence for each comparison; for more than two variants, one for each metric and a warning."""
    if len({comparison.variant for comparison in comparisons}) <= 2:
        return list(dict.fromkeys(comparison.sentence() for comparison in comparisons))
    measures = dict.fromkeys(comparison.metric.name for comparison in comparisons)
    return [*(summarize([c for c in comparisons if c.metric.name == name]) for name in measures), MANY_VARIANTS]


def summarize(comparisons: Sequence[Comparison]) -> str:
    """List which variants are better and worse than the baseline in one metric."""
    groups: dict[str, list[str]] = {}
    for comparison in comparisons:
        groups.setdefault(comparison.finding, []).append(f"“{comparison.variant}”")
    found = " ".join(
        f"{finding.capitalize()}: {', '.join(groups[finding])}." for finding in FINDINGS if finding in groups
    )
    lost = "".join(comparison.describe_lost_seeds() for comparison in comparisons)
    return f"Compared with “{comparisons[0].baseline}” in {comparisons[0].metric.name}. {found}{lost}"


@dataclass(frozen=True)
class PowerLaw:
    """loss(N) = floor + factor · N^-exponent"""

    floor: float
    factor: float
    exponent: float

    def __call__(self, size: float) -> float:
        return float(self.floor + self.factor * size**-self.exponent)


EXPONENTS = np.geomspace(0.01, 4, 400)  # the range of the search


def fit_power_law(sizes: Sequence[float], losses: Sequence[float]) -> PowerLaw:
    """Fit by least squares. For a fixed exponent the problem is linear, so only the exponent is searched.

    The floor is the loss of an infinitely large model; it is not negative.
    """
    N, L = np.asarray(sizes, dtype=float), np.asarray(losses, dtype=float)
    if len(np.unique(N)) < 3:
        raise ValueError(f"a power law needs at least 3 different sizes, but there are {len(np.unique(N))}.")

    def best_line(exponent: float) -> tuple[float, PowerLaw]:
        x = N**-exponent
        factor, floor = np.polyfit(x, L, 1)
        if floor < 0:
            factor, floor = float(x @ L / (x @ x)), 0.0
        law = PowerLaw(float(floor), float(factor), float(exponent))
        return float(((law.floor + law.factor * x - L) ** 2).sum()), law

    low, high = float(EXPONENTS[0]), float(EXPONENTS[-1])
    grid = EXPONENTS
    for _ in range(6):  # refine the grid around the best exponent
        errors = [best_line(exponent)[0] for exponent in grid]
        at = int(np.argmin(errors))
        low, high = float(grid[max(0, at - 1)]), float(grid[min(len(grid) - 1, at + 1)])
        grid = np.linspace(low, high, 41)
    return best_line((low + high) / 2)[1]


@dataclass(frozen=True)
class ScalingFit:
    """A power law fitted to the means over seeds, one for each seed, and the interval of the exponent."""

    law: PowerLaw
    worst: float  # largest absolute error of the law at a mean
    by_seed: Mapping[int, PowerLaw]
    exponent: Interval | None

    def sentences(self) -> list[str]:
        law = self.law
        formula = f"{three_digits(law.floor)} + {law.factor:.3g} · N^-{law.exponent:.3f}"
        lines = [
            f"Fitted to the means over seeds: loss(N) = {formula}. The largest error is {three_digits(self.worst)}."
        ]
        if law.floor == 0:
            lines.append(
                "The fitted floor is 0, the lowest allowed value. So there is no sign that the loss levels off over "
                "these sizes, and the exponent belongs to a law without a floor."
            )
        if self.exponent is None:
            return [*lines, "One seed gives no interval for the exponent."]
        low, high = self.exponent.low, self.exponent.high
        lines.append(
            f"The exponent, fitted for each seed, is {self.exponent.mean:.3f} on average "
            f"(95 % interval {low:.3f} to {high:.3f}, {self.exponent.count} seeds)."
        )
        if self.exponent.contains_zero:
            lines.append("The interval contains 0, so these sizes and seeds do not show a power law.")
        at_the_edge = [seed for seed, one in self.by_seed.items() if not 0.0101 < one.exponent < 3.99]
        if at_the_edge:
            lines.append(f"With the seeds {at_the_edge} the exponent is at the limit of the search: it is unknown.")
        return lines

    def as_json(self) -> dict[str, Any]:
        return {
            "law": asdict(self.law),
            "by_seed": {str(seed): asdict(law) for seed, law in self.by_seed.items()},
            "exponent": self.exponent and asdict(self.exponent),
        }


def fit_scaling(points: Mapping[int, Mapping[float, float]]) -> ScalingFit:
    """Fit power laws to seed -> (number of parameters -> loss)."""
    by_seed = {seed: fit_power_law(list(of_seed), list(of_seed.values())) for seed, of_seed in points.items()}
    sizes = sorted(set.intersection(*(set(of_seed) for of_seed in points.values())))
    means = [float(np.mean([of_seed[size] for of_seed in points.values()])) for size in sizes]
    law = fit_power_law(sizes, means)
    worst = max(abs(law(size) - mean) for size, mean in zip(sizes, means, strict=True))
    return ScalingFit(law, worst, by_seed, t_interval([law.exponent for law in by_seed.values()]))
