"""What an experiment shows: differences over seeds, their intervals, and the sentence that says so. No torch here.

The arms of an experiment share their seeds, and a seed is the same data in the same order and, where shapes agree, the
same weights to begin with. So they are compared seed by seed: the interval is that of the mean of the differences,
which leaves out what the seeds have in common.
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
    """One number of a trained model, and how to speak of it."""

    name: str
    what: str  # for a reader who has never met it
    lower_is_better: bool = False
    needs_decoding: bool = False  # what comes out when the model writes by itself; for translators alone

    @property
    def is_fraction(self) -> bool:
        return not self.lower_is_better

    def format(self, value: float) -> str:
        return f"{value:.1%}".replace("%", " %") if self.is_fraction else decimals(value)

    def format_difference(self, value: float, beside: float = 0.0) -> str:
        """In points, or with as many decimals as the larger of two numbers that stand together."""
        return f"{100 * value:.1f}" if self.is_fraction else decimals(value, beside)

    def format_range(self, low: float, high: float) -> str:
        return f"{self.format_difference(low, high)} to {self.format_difference(high, low)}"

    @property
    def unit(self) -> str:
        return " points" if self.is_fraction else ""


METRICS = {
    metric.name: metric
    for metric in (
        Metric("cross-entropy", "nats a token on validation data, given the right tokens before", lower_is_better=True),
        Metric("accuracy", "share of tokens that are right, given the right tokens before"),
        Metric("exact match", "share of texts that greedy decoding gets right to the letter", needs_decoding=True),
        Metric(
            "token accuracy", "share of tokens at their right place in what greedy decoding writes", needs_decoding=True
        ),
    )
}


def decimals(value: float, beside: float = 0.0) -> str:
    """Three digits that say something: 0.00123, 0.123, 1.23, 12.3; of the larger number, if two stand together."""
    size = max(abs(value), abs(beside))
    if size == 0 or not math.isfinite(size):
        return f"{value:g}"
    digits = min(6, max(0, 2 - math.floor(math.log10(size))))
    return f"{value:.{digits}f}"


@dataclass(frozen=True)
class Interval:
    """A mean over seeds, and between which values the true mean lies, 95 times out of 100."""

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
    """mean ± t · s / √n, with Student's t for n - 1 degrees of freedom. None: of one value there is no interval."""
    n = len(values)
    if n < 2:
        return None
    mean, spread = float(np.mean(values)), float(np.std(values, ddof=1))
    half = student_quantile((1 + level) / 2, n - 1) * spread / math.sqrt(n)
    return Interval(mean, mean - half, mean + half, n)


@cache
def student_quantile(p: float, freedom: int) -> float:
    """The t below which a share p of Student's distribution lies, for p above 1/2. By bisection."""
    low, high = 0.0, 1.0
    while student_central_share(high, freedom) < 2 * p - 1:
        low, high = high, 2 * high
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if student_central_share(middle, freedom) < 2 * p - 1 else (low, middle)
    return (low + high) / 2


def student_central_share(t: float, freedom: int) -> float:
    """The share between -t and t: a finite sum for whole degrees of freedom (Abramowitz & Stegun, 26.7.3 and 26.7.4).

    odd     2/π · (θ + sin θ (cos θ + 2/3 cos³θ + 2·4/3·5 cos⁵θ + ...))        θ = atan(t / √freedom)
    even    sin θ (1 + 1/2 cos²θ + 1·3/2·4 cos⁴θ + ...)
    """
    angle = math.atan(t / math.sqrt(freedom))
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = freedom % 2
    term = cosine if odd else 1.0
    total = 0.0
    for power in range(odd, freedom - 1, 2):  # the powers of the cosine, up to freedom - 2
        total += term
        term *= (power + 1) / (power + 2) * cosine**2
    return 2 / math.pi * (angle + sine * total) if odd else sine * total


FINDINGS = ("better", "worse", "no difference shown", "no result")


@dataclass(frozen=True)
class Comparison:
    """One arm beside the first one, by one measure. `lost` says of each seed without a number what became of it."""

    variant: str
    baseline: str
    metric: Metric
    pairs: Mapping[int, tuple[float, float]]  # seed -> the first arm's value, this arm's
    lost: Mapping[int, str]

    @property
    def difference(self) -> Interval | None:
        """This arm's value minus the first one's."""
        return t_interval([theirs - ours for ours, theirs in self.pairs.values()])

    def sentence(self) -> str:
        name, lost = self.metric.name, self.describe_lost_seeds()
        difference = self.difference
        if not self.pairs:  # whatever the measure
            return f"{self.variant}: no result with any of {len(self.lost)} seeds.{lost}"
        if difference is None:
            return f"{self.variant}, {name}: one seed alone has a result to compare.{lost}"
        baseline, other = (self.metric.format(float(np.mean(side))) for side in zip(*self.pairs.values(), strict=True))
        values = f"{self.variant}, {name}: {other}, and {baseline} with {self.baseline}"
        return f"{values}; {self.describe(difference)}{lost}"

    @property
    def finding(self) -> str:
        """One of FINDINGS."""
        difference = self.difference
        if difference is None:
            return "no result"
        if difference.contains_zero:
            return "no difference shown"
        return "worse" if (difference.mean > 0) == self.metric.lower_is_better else "better"

    def describe(self, difference: Interval) -> str:
        """What the interval shows, and no more than that."""
        format, unit, seeds = self.metric.format_difference, self.metric.unit, f"over {difference.count} seeds"
        low, high = sorted((abs(difference.low), abs(difference.high)))
        if difference.low == difference.high == 0:
            return f"no difference shown: the two are equal with each of {difference.count} seeds."
        if difference.contains_zero:
            reach = self.metric.format_range(difference.low, difference.high)
            return (
                f"no difference shown: the 95 % interval of the difference, {reach}{unit}, holds 0 ({seeds}). "
                f"A difference smaller than about {format(difference.half_width)}{unit} would hardly have shown."
            )
        return (
            f"{self.finding} by {format(abs(difference.mean), high)}{unit} "
            f"(95 % interval {self.metric.format_range(low, high)}, {seeds})."
        )

    def as_json(self) -> dict[str, Any]:
        return {
            "arm": self.variant,
            "measure": self.metric.name,
            "difference": self.difference and asdict(self.difference),
            "finding": self.finding,
            "lost": {str(seed): why for seed, why in self.lost.items()},
            "sentence": self.sentence(),
        }

    def describe_lost_seeds(self) -> str:
        if not self.lost:
            return ""
        return " Seed " + ", seed ".join(f"{seed}: {why}" for seed, why in self.lost.items()) + "."


def compare(
    variant: str, baseline: str, metric: Metric, ours: Mapping[int, float | str], theirs: Mapping[int, float | str]
) -> Comparison:
    """Seed -> value of the first arm and of this one; a text in place of a value says why there is none."""
    pairs, lost = {}, {}
    for seed in ours:
        a, b = ours[seed], theirs[seed]
        if isinstance(a, str) or isinstance(b, str):
            whose, why = (baseline, a) if isinstance(a, str) else (variant, b)
            lost[seed] = f"{whose} {why}"
        else:
            pairs[seed] = (a, b)
    return Comparison(variant, baseline, metric, pairs, lost)


MANY_VARIANTS = (
    "Each interval is for one comparison by itself. Where many arms are compared, about one in twenty intervals misses "
    "the true difference by chance, so the best of many arms is not yet shown to be the best."
)


def verdict(comparisons: Sequence[Comparison]) -> list[str]:
    """A sentence a comparison; where there are many arms, one a measure, and what to keep in mind."""
    if len({comparison.variant for comparison in comparisons}) <= 2:
        return list(dict.fromkeys(comparison.sentence() for comparison in comparisons))
    measures = dict.fromkeys(comparison.metric.name for comparison in comparisons)
    return [*(summary([c for c in comparisons if c.metric.name == name]) for name in measures), MANY_VARIANTS]


def summary(comparisons: Sequence[Comparison]) -> str:
    """Which of many arms differ from the first one, by one measure."""
    groups: dict[str, list[str]] = {}
    for comparison in comparisons:
        groups.setdefault(comparison.finding, []).append(f"“{comparison.variant}”")
    found = "; ".join(f"{finding}: {', '.join(groups[finding])}" for finding in FINDINGS if finding in groups)
    lost = "".join(comparison.describe_lost_seeds() for comparison in comparisons)
    return f"By {comparisons[0].metric.name}, beside “{comparisons[0].baseline}”: {found}.{lost}"


@dataclass(frozen=True)
class PowerLaw:
    """loss(N) = floor + factor · N^-exponent"""

    floor: float
    factor: float
    exponent: float

    def __call__(self, size: float) -> float:
        return float(self.floor + self.factor * size**-self.exponent)


EXPONENTS = np.geomspace(0.01, 4, 400)  # where the best one is looked for


def fit_power_law(sizes: Sequence[float], losses: Sequence[float]) -> PowerLaw:
    """Least squares. For a given exponent the rest is a straight line; so only the exponent is searched for.

    The floor is what no model of any size would get below; it cannot be negative.
    """
    N, L = np.asarray(sizes, dtype=float), np.asarray(losses, dtype=float)
    if len(np.unique(N)) < 3:
        raise ValueError(f"{len(np.unique(N))} sizes cannot tell the three constants of a power law; give at least 3.")

    def best_line(exponent: float) -> tuple[float, PowerLaw]:
        x = N**-exponent
        factor, floor = np.polyfit(x, L, 1)
        if floor < 0:
            factor, floor = float(x @ L / (x @ x)), 0.0
        law = PowerLaw(float(floor), float(factor), float(exponent))
        return float(((law.floor + law.factor * x - L) ** 2).sum()), law

    low, high = float(EXPONENTS[0]), float(EXPONENTS[-1])
    grid = EXPONENTS
    for _ in range(6):  # each time closer around the best
        errors = [best_line(exponent)[0] for exponent in grid]
        at = int(np.argmin(errors))
        low, high = float(grid[max(0, at - 1)]), float(grid[min(len(grid) - 1, at + 1)])
        grid = np.linspace(low, high, 41)
    return best_line((low + high) / 2)[1]


@dataclass(frozen=True)
class ScalingFit:
    """A law through the means, a law for each seed, and the interval of the exponent over the seeds."""

    law: PowerLaw
    worst: float  # how far the law is from the mean that it misses most
    by_seed: Mapping[int, PowerLaw]
    exponent: Interval | None

    def sentences(self) -> list[str]:
        law = self.law
        formula = f"{decimals(law.floor)} + {law.factor:.3g} · N^-{law.exponent:.3f}"
        describe = [
            f"Through the means over seeds: loss(N) = {formula}. "
            f"It misses none of them by more than {decimals(self.worst)}."
        ]
        if law.floor == 0:
            describe.append(
                "The floor came out at 0, the lowest that is allowed: over these sizes there is no sign that the loss "
                "levels off, and the exponent is that of a law without a floor."
            )
        if self.exponent is None:
            return [*describe, "With one seed there is no interval for the exponent."]
        low, high = self.exponent.low, self.exponent.high
        describe.append(
            f"The exponent, fitted for each seed: {self.exponent.mean:.3f} on average "
            f"(95 % interval {low:.3f} to {high:.3f}, over {self.exponent.count} seeds)."
        )
        if self.exponent.contains_zero:
            describe.append("The interval holds 0: these sizes and seeds do not show that loss follows a power of N.")
        at_the_edge = [seed for seed, one in self.by_seed.items() if not 0.0101 < one.exponent < 3.99]
        if at_the_edge:
            describe.append(
                f"The fit ran to the edge of what was searched with seeds {at_the_edge}: not determined there."
            )
        return describe

    def as_json(self) -> dict[str, Any]:
        return {
            "law": asdict(self.law),
            "by_seed": {str(seed): asdict(law) for seed, law in self.by_seed.items()},
            "exponent": self.exponent and asdict(self.exponent),
        }


def fit_scaling(points: Mapping[int, Mapping[float, float]]) -> ScalingFit:
    """seed -> (number of parameters -> loss)"""
    by_seed = {seed: fit_power_law(list(of_seed), list(of_seed.values())) for seed, of_seed in points.items()}
    sizes = sorted(set.intersection(*(set(of_seed) for of_seed in points.values())))
    means = [float(np.mean([of_seed[size] for of_seed in points.values()])) for size in sizes]
    law = fit_power_law(sizes, means)
    worst = max(abs(law(size) - mean) for size, mean in zip(sizes, means, strict=True))
    return ScalingFit(law, worst, by_seed, t_interval([law.exponent for law in by_seed.values()]))
