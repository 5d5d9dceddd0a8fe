"""What the doctor looks at, and what it may find. No torch here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Literal, NamedTuple

from cutaway.config import Config
from cutaway.summary import History, is_number

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
    is_other_data: bool = False  # not what the run was trained on


@dataclass(frozen=True)
class Observed:
    """All that a check may know of a run."""

    config: Config
    history: History
    data: DataFacts | None = None
    scores: dict[str, Any] = field(default_factory=dict)
    kept: str = ""  # the checkpoint whose weights are kept: what the file `best` says

    @property
    def done(self) -> float:
        return self.history.done(self.config.train)

    @property
    def is_over(self) -> bool:
        return self.done >= 1 or self.history.is_out_of_patience(self.config.train)

    @property
    def all_steps(self) -> int:
        """How many steps the training has, or would have at this pace, if something else says when it is over."""
        if self.config.train.budget == "steps":
            return self.config.train.steps
        return round(self.history.last_step / self.done) if self.done else self.history.last_step

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


class Need(NamedTuple):
    """What a check cannot do without. With no reason, its absence is no loss: the question does not arise."""

    is_there: Callable[[Observed], bool]
    why_not: str = ""


@dataclass(frozen=True)
class Check:
    name: str
    asks: str  # what is looked at, for the list of what was found in order
    look: Callable[[Observed], Finding | None]
    needs: tuple[Need, ...] = ()


ROWS = Need(lambda o: len(o.nll) >= 3, "there are fewer than three lines about training in metrics.jsonl")
A_ROW = Need(lambda o: bool(o.history.steps), "nothing is in metrics.jsonl yet")
VALIDATION = Need(lambda o: bool(o.history.curve("valid_loss")), "there was no validation")
VALIDATIONS = Need(lambda o: len(o.history.curve("valid_loss")) >= 3, "there were fewer than three validations")
DATA = Need(lambda o: o.data is not None, "the data was not looked at")
SAMPLES = Need(lambda o: bool(o.samples))
LABELS = Need(lambda o: o.data is not None and o.data.majority is not None and o.accuracy is not None)
TOKENIZER = Need(lambda o: o.data is None or o.data.unknown is not None)
PADDING = Need(lambda o: o.data is None or o.data.padding is not None)
BLEU = Need(lambda o: "bleu" in o.scores or o.config.train.best_by == "bleu")
SCORES = Need(lambda o: any(map(is_number, o.scores.values())))


def per_cent(share: float) -> str:
    return f"{share:.0%}" if share >= 0.095 or share == 0 else f"{share:.1%}" if share >= 0.001 else f"{share:.2%}"
