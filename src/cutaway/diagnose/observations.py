"""Input and output types of the checks of `cutaway doctor`. No torch here."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median
from typing import Any, Literal, NamedTuple

from cutaway.config import Config
from cutaway.runs.summary import History, is_number

Severity = Literal["problem", "warning", "note"]
SEVERITIES: tuple[Severity, ...] = ("problem", "warning", "note")  # most severe first


@dataclass(frozen=True)
class Finding:
    """A problem, warning or note: what was seen, the numbers behind it, and what to do."""

    severity: Severity
    title: str  # a short sentence without the full stop
    evidence: str
    remedy: str
    check: str = ""  # the name of the check that found it


@dataclass(frozen=True)
class Unclear:
    """The result of a check that cannot decide."""

    why: str  # completes the sentence "Not checked: ..., because ..."


class HeldOutOverlap(NamedTuple):
    """The number of held-out examples that also occur in the training data."""

    found: int
    of: int

    @property
    def share(self) -> float:
        return self.found / self.of if self.of else 0.0


@dataclass(frozen=True)
class DataFacts:
    """Statistics of the data of a run. Shares are fractions from 0 to 1. None: does not apply to the task."""

    train_examples: int = 0
    left_out: int = 0  # skipped training examples: empty or too long
    valid_examples: int = 0
    valid_answers: int = 0  # target tokens, labels or tags of the validation data
    padding: float | None = None  # share of padding in the training batches
    unknown: float | None = None  # share of unknown tokens in the validation data
    overlaps: dict[str, HeldOutOverlap] = field(default_factory=dict)  # valid, test -> overlap with training
    majority: tuple[str, float] | None = None  # the most frequent label of the validation data, and its share
    answer_entropy: float | None = None  # nats: the loss of a model that has learned only answer frequencies
    lower_cased: float | None = None  # share of the references (test, else validation) without capitals
    tokenized: float | None = None  # share of the references with spaces before punctuation
    subwords: float | None = None  # share of the references with subword markers
    is_other_data: bool | None = False  # differs from the data of the training; None: the run did not record it


@dataclass(frozen=True)
class Observations:
    """The input of every check: configuration, metrics, data statistics and scores of a run."""

    config: Config
    history: History
    data: DataFacts | None = None
    scores: dict[str, Any] = field(default_factory=dict)
    kept: str = ""  # the name of the best checkpoint, from the file `best`
    data_error: str = ""  # why the data was not read

    @property
    def done(self) -> float:
        return self.history.progress(self.config.train)

    @property
    def is_over(self) -> bool:
        return self.done >= 1 or self.history.is_out_of_patience(self.config.train)

    @property
    def all_steps(self) -> int:
        """The number of steps of the whole training, extrapolated if the budget is not in steps."""
        if self.history.is_out_of_patience(self.config.train):
            return self.history.last_step
        if self.config.train.budget == "steps":
            return self.config.train.steps
        return round(self.history.last_step / self.done) if self.done else self.history.last_step

    @property
    def chance_loss(self) -> float:
        """log V: the loss of uniform guessing, the unit in which losses are compared."""
        model = self.config.model
        return math.log(max(2, model.vocab_size if model.head == "language" else model.n_classes))

    @property
    def nll(self) -> list[float]:
        """The training loss, one value per row of metrics.jsonl."""
        return [value for _, value in self.history.curve("nll")]

    @property
    def final_nll(self) -> float:
        """The training loss at the end: the median of three rows, because one row is noisy."""
        return median(self.nll[-3:])

    def nll_at(self, step: int) -> float:
        """The training loss nearest to a step."""
        return min(self.history.curve("nll"), key=lambda point: abs(point[0] - step))[1]

    @property
    def best_step(self) -> int:
        """The step of the best checkpoint; 0 without a validation."""
        best = self.history.best(self.config.train.best_by)
        return int(best["step"]) if best else 0

    @property
    def peak_rate(self) -> float:
        """The highest learning rate so far."""
        return max((value for _, value in self.history.curve("lr")), default=0.0)

    @property
    def accuracy(self) -> float | None:
        """The accuracy at the last validation."""
        rows = self.history.curve("valid_accuracy")
        return rows[-1][1] if rows else None

    @property
    def samples(self) -> list[dict[str, str]]:
        """The texts generated at the last validation that has any."""
        with_samples = [row["samples"] for row in self.history.validations if row.get("samples")]
        return with_samples[-1] if with_samples else []


def independent_answers(data: DataFacts) -> float:
    """The effective number of validation answers: answers within one text are correlated."""
    return math.sqrt(data.valid_answers * data.valid_examples)


class Requirement(NamedTuple):
    """A condition for running a check. Without a reason, an unmet condition means that the check does not apply."""

    is_met: Callable[[Observations], bool]
    reason_unmet: Callable[[Observations], str] | str = ""

    def reason(self, observed: Observations) -> str:
        return self.reason_unmet if isinstance(self.reason_unmet, str) else self.reason_unmet(observed)


@dataclass(frozen=True)
class Check:
    name: str
    ok_text: str  # the statement to print if the check passes
    run: Callable[[Observations], Finding | Unclear | None]  # None: the check passes
    needs: tuple[Requirement, ...] = ()


ROWS = Requirement(lambda o: len(o.nll) >= 3, "metrics.jsonl has fewer than three lines about training")
A_ROW = Requirement(lambda o: bool(o.history.steps), "metrics.jsonl has no line about training")
OVER = Requirement(lambda o: o.is_over, "the training has not finished")
VALIDATION = Requirement(lambda o: bool(o.history.curve("valid_loss")), "there was no validation")
VALIDATIONS = Requirement(lambda o: len(o.history.curve("valid_loss")) >= 3, "there were fewer than three validations")
DATA = Requirement(lambda o: o.data is not None, lambda o: o.data_error or "the data was not read")
HELD_OUT = Requirement(lambda o: o.data is None or bool(o.data.overlaps), "there is no held-out data")
SAMPLES = Requirement(lambda o: bool(o.samples))
LABELS = Requirement(lambda o: o.data is not None and o.data.majority is not None and o.accuracy is not None)
TOKENIZER = Requirement(lambda o: o.data is None or o.data.unknown is not None)
PADDING = Requirement(lambda o: o.data is None or o.data.padding is not None)
BLEU = Requirement(lambda o: "bleu" in o.scores or o.config.train.best_by == "bleu")
SCORES = Requirement(lambda o: bool(o.kept) and any(map(is_number, o.scores.values())))


class Rise(NamedTuple):
    """The rise of a curve after its minimum."""

    place: int  # index of the minimum
    low: float  # the minimum
    height: float  # median of the last three points after the minimum, minus the minimum
    noise: float  # the largest move against the trend (down before the minimum, up after it)
    points: int  # number of points after the minimum

    @classmethod
    def of(cls, values: Sequence[float]) -> Rise:
        place = min(range(len(values)), key=values.__getitem__)
        after = values[place + 1 :]
        moves = [b - a for a, b in pairwise(values)]
        against = [*moves[:place], *(-move for move in moves[place:])]
        height = median(after[-3:]) - values[place] if after else 0.0
        return cls(place, values[place], height, max([0.0, *against]), len(after))


def format_percent(share: float) -> str:
    return f"{share:.0%}" if share >= 0.095 or share == 0 else f"{share:.1%}" if share >= 0.001 else f"{share:.2%}"
