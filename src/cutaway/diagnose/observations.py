"""What the doctor looks at, and what it may find. No torch here."""

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
SEVERITIES: tuple[Severity, ...] = ("problem", "warning", "note")  # the gravest first


@dataclass(frozen=True)
class Finding:
    """Something that deserves attention: what it is, by which numbers, and what to do."""

    severity: Severity
    title: str  # a short sentence without its full stop
    evidence: str
    remedy: str
    check: str = ""  # the name of the check that found it


@dataclass(frozen=True)
class Unclear:
    """What was observed does not show whether all is well."""

    why: str  # ends the sentence "Not known, because ..."


class Overlap(NamedTuple):
    """So many of a held-out set stand in the training data, too."""

    found: int
    of: int

    @property
    def share(self) -> float:
        return self.found / self.of if self.of else 0.0


@dataclass(frozen=True)
class DataFacts:
    """Shares go from 0 to 1. None: there is nothing of the kind in this task."""

    train_examples: int = 0
    left_out: int = 0  # training examples that were empty or too long
    valid_examples: int = 0
    valid_answers: int = 0  # tokens, labels or tags that a validation asks for
    padding: float | None = None  # share of the places in training batches
    unknown: float | None = None  # share of the tokens of the validation data that the tokenizer does not know
    overlaps: dict[str, Overlap] = field(default_factory=dict)  # valid, test -> what training has seen
    majority: tuple[str, float] | None = None  # the most frequent label of the validation data, and its share
    answer_entropy: float | None = None  # nats: the loss of one who knows how frequent each answer is, and no more
    lower_cased: float | None = None  # share of the references (test, else validation) without capitals
    tokenized: float | None = None  # ... and with blanks before their punctuation
    subwords: float | None = None  # ... and with marks of subword units in them
    is_other_data: bool | None = False  # not what the run was trained on; None: the run does not say what that was


@dataclass(frozen=True)
class Observed:
    """All that a check may know of a run."""

    config: Config
    history: History
    data: DataFacts | None = None
    scores: dict[str, Any] = field(default_factory=dict)
    kept: str = ""  # the checkpoint whose weights are kept: what the file `best` says
    why_no_data: str = ""  # why the data was not read

    @property
    def done(self) -> float:
        return self.history.done(self.config.train)

    @property
    def is_over(self) -> bool:
        return self.done >= 1 or self.history.is_out_of_patience(self.config.train)

    @property
    def all_steps(self) -> int:
        """How many steps the training has, or would have at this pace, if something else says when it is over."""
        if self.history.is_out_of_patience(self.config.train):
            return self.history.last_step
        if self.config.train.budget == "steps":
            return self.config.train.steps
        return round(self.history.last_step / self.done) if self.done else self.history.last_step

    @property
    def chance(self) -> float:
        """The loss of blind guessing: what a loss, or a change of it, is large or small beside."""
        model = self.config.model
        return math.log(max(2, model.vocab_size if model.head == "language" else model.n_classes))

    @property
    def nll(self) -> list[float]:
        """The training loss, row by row."""
        return [value for _, value in self.history.curve("nll")]

    @property
    def final_nll(self) -> float:
        """The training loss at the end; the last row alone may be an accident."""
        return median(self.nll[-3:])

    def nll_at(self, step: int) -> float:
        """The training loss around a step."""
        return min(self.history.curve("nll"), key=lambda point: abs(point[0] - step))[1]

    @property
    def kept_step(self) -> int:
        """The step whose weights are kept; 0 if there was no validation to choose them by."""
        best = self.history.best(self.config.train.best_by)
        return int(best["step"]) if best else 0

    @property
    def peak_rate(self) -> float:
        """The highest learning rate so far."""
        return max((value for _, value in self.history.curve("lr")), default=0.0)

    @property
    def accuracy(self) -> float | None:
        """At the last validation."""
        rows = self.history.curve("valid_accuracy")
        return rows[-1][1] if rows else None

    @property
    def samples(self) -> list[dict[str, str]]:
        """What the model wrote at the last validation at which it wrote."""
        with_samples = [row["samples"] for row in self.history.validations if row.get("samples")]
        return with_samples[-1] if with_samples else []


def independent_answers(data: DataFacts) -> float:
    """How many answers a validation has, of which those of one text are alike and count less than fully."""
    return math.sqrt(data.valid_answers * data.valid_examples)


class Need(NamedTuple):
    """What a check cannot do without. With no reason, its absence is no loss: the question does not arise."""

    is_there: Callable[[Observed], bool]
    why_not: Callable[[Observed], str] | str = ""

    def reason(self, observed: Observed) -> str:
        return self.why_not if isinstance(self.why_not, str) else self.why_not(observed)


@dataclass(frozen=True)
class Check:
    name: str
    asks: str  # what is looked at, for the list of what was found in order
    look: Callable[[Observed], Finding | Unclear | None]  # None: it is as it should be
    needs: tuple[Need, ...] = ()


ROWS = Need(lambda o: len(o.nll) >= 3, "there are fewer than three lines about training in metrics.jsonl")
A_ROW = Need(lambda o: bool(o.history.steps), "metrics.jsonl has no line about training")
OVER = Need(lambda o: o.is_over, "the training is not over")
VALIDATION = Need(lambda o: bool(o.history.curve("valid_loss")), "there was no validation")
VALIDATIONS = Need(lambda o: len(o.history.curve("valid_loss")) >= 3, "there were fewer than three validations")
DATA = Need(lambda o: o.data is not None, lambda o: o.why_no_data or "the data was not looked at")
HELD_OUT = Need(lambda o: o.data is None or bool(o.data.overlaps), "nothing is held out")
SAMPLES = Need(lambda o: bool(o.samples))
LABELS = Need(lambda o: o.data is not None and o.data.majority is not None and o.accuracy is not None)
TOKENIZER = Need(lambda o: o.data is None or o.data.unknown is not None)
PADDING = Need(lambda o: o.data is None or o.data.padding is not None)
BLEU = Need(lambda o: "bleu" in o.scores or o.config.train.best_by == "bleu")
SCORES = Need(lambda o: bool(o.kept) and any(map(is_number, o.scores.values())))


class Rise(NamedTuple):
    """How far a curve has come up again from its lowest point."""

    place: int  # of the lowest point
    low: float
    height: float  # of the last three points after it (their median: one alone may be an accident) above it
    swing: float  # the largest move against the trend, down and then up: what chance alone does
    points: int  # after the lowest

    @classmethod
    def of(cls, values: Sequence[float]) -> Rise:
        place = min(range(len(values)), key=values.__getitem__)
        after = values[place + 1 :]
        moves = [b - a for a, b in pairwise(values)]
        against = [*moves[:place], *(-move for move in moves[place:])]
        height = median(after[-3:]) - values[place] if after else 0.0
        return cls(place, values[place], height, max([0.0, *against]), len(after))


def per_cent(share: float) -> str:
    return f"{share:.0%}" if share >= 0.095 or share == 0 else f"{share:.1%}" if share >= 0.001 else f"{share:.2%}"
