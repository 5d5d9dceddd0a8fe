"""What a training tells of itself, and those who listen. No torch here: whoever trains can tell."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from cutaway.config import TrainConfig
from cutaway.metrics.scores import perplexity
from cutaway.runs import RunFolder


@dataclass
class Sums:
    """Losses added up since the last line of the log, and over how many tokens."""

    loss: float = 0.0
    nll: float = 0.0
    tokens: int = 0
    steps: int = 0
    step_nll: float = 0.0  # each step counted once, however many tokens it had ...
    step_nll_squared: float = 0.0  # ... so that these two tell how far steps lie apart
    clipped: int = 0  # steps whose gradient was longer than `clip_norm`

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
        """The standard deviation of the loss from step to step."""
        mean = self.step_nll / self.steps
        return math.sqrt(max(0.0, self.step_nll_squared / self.steps - mean * mean))


@dataclass
class TrainState:
    """Where a training is. With the weights and the optimizer it is all there is to save."""

    step: int = 0
    tokens: int = 0  # answers asked for so far: target tokens, labels, tags
    epochs: float = 0.0  # times that the data has been gone through
    seconds: float = 0.0  # spent training, validation included
    waiting: float = 0.0  # of them, until a batch was there
    skipped: int = 0  # steps whose gradient was not finite, and which changed nothing
    skipped_in_a_row: int = 0
    best: float = math.inf  # by what was asked for in `best_by`, turned so that less is better
    best_loss: float = math.inf  # the validation loss of that step
    best_step: int = 0
    validations_since_best: int = 0
    unlogged: Sums = field(default_factory=Sums)


@dataclass(frozen=True)
class StepReport:
    """What one step did. Losses are a token's mean: `loss` with label smoothing, `nll` without it."""

    step: int
    loss: float
    nll: float
    lr: float
    gradient_norm: float
    tokens: int


class Sample(NamedTuple):
    """A held-out text, what the model makes of it, and what would have been right (if anything would)."""

    given: str
    written: str
    right: str


class Measured(NamedTuple):
    """How a model does on a whole set, without dropout and label smoothing."""

    nll: float  # the mean cross-entropy: its exp is the perplexity
    accuracy: float  # how often the likeliest answer is right
    bleu: float | None = None  # of greedy translations, if that is what the best weights are chosen by
    samples: tuple[Sample, ...] = ()


class Watched(Protocol):
    """What observers may look at."""

    config: TrainConfig
    state: TrainState

    @property
    def done(self) -> float:
        """How much of the training is done, from 0 to 1."""


class Observer:
    """Told what happens, and free to ignore it. The trainer knows nothing of who listens."""

    def on_start(self, trainer: Watched) -> None: ...
    def on_step(self, trainer: Watched, report: StepReport) -> None: ...
    def on_validation(self, trainer: Watched, measured: Measured) -> None: ...
    def on_end(self, trainer: Watched) -> None: ...


class MetricsLog(Observer):
    """Writes metrics.jsonl: a line every `log_every` steps, the mean over them, and one for each validation.

    What is not yet written is kept in the state, so that a resumed training writes the same lines.
    """

    def __init__(self, run: RunFolder, every: int):
        self.run_folder, self.every = run, every

    def on_step(self, trainer: Watched, report: StepReport) -> None:
        sums = trainer.state.unlogged
        sums.add(report, trainer.config.clip_norm)
        if report.step % self.every == 0 or trainer.done >= 1:
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
            trainer.state.unlogged = Sums()

    def on_validation(self, trainer: Watched, measured: Measured) -> None:
        row = {
            "step": trainer.state.step,
            "valid_loss": measured.nll,
            "valid_perplexity": perplexity(measured.nll),
            "valid_accuracy": measured.accuracy,
            "valid_bleu": measured.bleu,
            "samples": [sample._asdict() for sample in measured.samples],
            "seconds": round(trainer.state.seconds, 3),
        }
        self.run_folder.append_metrics({key: value for key, value in row.items() if value not in (None, [])})
