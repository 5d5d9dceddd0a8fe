"""Observers of a training, and the reports that they get. No torch here."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from cutaway.config import TrainConfig
from cutaway.metrics.scores import perplexity
from cutaway.runs import RunFolder


@dataclass
class SumsSinceLog:
    """Sums over the steps since the last line of metrics.jsonl."""

    loss: float = 0.0
    nll: float = 0.0
    tokens: int = 0
    steps: int = 0
    step_nll: float = 0.0  # each step counts once, whatever its number of tokens
    step_nll_squared: float = 0.0  # with step_nll: the standard deviation between steps
    clipped: int = 0  # steps whose gradient norm was above `clip_norm`

    def add(self, report: StepReport, clip_norm: float) -> None:
        self.loss += report.loss * report.tokens
        self.nll += report.nll * report.tokens
        self.tokens += report.tokens
        self.steps += 1
        self.step_nll += report.nll
        self.step_nll_squared += report.nll * report.nll
        self.clipped += bool(clip_norm) and report.gradient_norm > clip_norm

    @property
    def nll_spread(self) -> float:
        """The standard deviation of the loss between steps."""
        mean = self.step_nll / self.steps
        return math.sqrt(max(0.0, self.step_nll_squared / self.steps - mean * mean))


@dataclass
class TrainState:
    """The counters of a training. A checkpoint has these, the weights, the optimizer state and the data position."""

    step: int = 0
    tokens: int = 0  # predictions so far: target tokens, labels, tags
    epochs: float = 0.0  # passes over the data
    seconds: float = 0.0  # training time, with validation
    waiting: float = 0.0  # the part of `seconds` spent waiting for batches
    skipped: int = 0  # steps with a non-finite gradient, which changed nothing
    skipped_in_a_row: int = 0
    best: float = math.inf  # the best score of `best_by`; its sign is such that lower is better
    best_loss: float = math.inf  # the validation loss at `best_step`
    best_step: int = 0
    validations_since_best: int = 0
    unlogged: SumsSinceLog = field(default_factory=SumsSinceLog)


@dataclass(frozen=True)
class StepReport:
    """The numbers of one step. Losses are means over tokens: `loss` with label smoothing, `nll` without."""

    step: int
    loss: float
    nll: float
    lr: float
    gradient_norm: float
    tokens: int


class Sample(NamedTuple):
    """A held-out text, the model's output, and the correct output ("" if there is none)."""

    given: str
    written: str
    right: str


class ValidationResult(NamedTuple):
    """The scores of a model on a whole data set, without dropout and label smoothing."""

    nll: float  # the mean cross-entropy; its exponential is the perplexity
    accuracy: float  # the share of predictions that are correct
    bleu: float | None = None  # of greedy translations, if train.best_by = "bleu"
    samples: tuple[Sample, ...] = ()


class TrainerView(Protocol):
    """The attributes of a trainer that observers may read."""

    config: TrainConfig
    state: TrainState

    @property
    def progress(self) -> float:
        """The finished fraction of the training, from 0 to 1."""


class Observer:
    """Base class of observers: override the events that you need."""

    def on_start(self, trainer: TrainerView) -> None: ...
    def on_step(self, trainer: TrainerView, report: StepReport) -> None: ...
    def on_validation(self, trainer: TrainerView, result: ValidationResult) -> None: ...
    def on_end(self, trainer: TrainerView) -> None: ...


class MetricsLog(Observer):
    """Write metrics.jsonl: the mean of every `log_every` steps, and a line for each validation.

    Sums that are not written yet are part of the state, so that a resumed training writes the same lines.
    """

    def __init__(self, run: RunFolder, every: int):
        self.run_folder, self.every = run, every

    def on_step(self, trainer: TrainerView, report: StepReport) -> None:
        sums = trainer.state.unlogged
        sums.add(report, trainer.config.clip_norm)
        if report.step % self.every == 0 or trainer.progress >= 1:
            self.run_folder.append_metrics(
                {
                    "step": report.step,
                    "loss": sums.loss / sums.tokens,
                    "nll": sums.nll / sums.tokens,
                    "nll_spread": sums.nll_spread,
                    "lr": report.lr,
                    "gradient_norm": report.gradient_norm,
                    "clipped": round(sums.clipped / sums.steps, 4),
                    "tokens": trainer.state.tokens,
                    "epochs": round(trainer.state.epochs, 4),
                    "skipped": trainer.state.skipped,
                    "seconds": round(trainer.state.seconds, 3),
                    "waiting": round(trainer.state.waiting, 3),
                }
            )
            trainer.state.unlogged = SumsSinceLog()

    def on_validation(self, trainer: TrainerView, result: ValidationResult) -> None:
        row = {
            "step": trainer.state.step,
            "valid_loss": result.nll,
            "valid_perplexity": perplexity(result.nll),
            "valid_accuracy": result.accuracy,
            "valid_bleu": result.bleu,
            "samples": [sample._asdict() for sample in result.samples],
            "seconds": round(trainer.state.seconds, 3),
        }
        self.run_folder.append_metrics({key: value for key, value in row.items() if value not in (None, [])})
