"""What a training tells of itself, and those who listen. No torch here: whoever trains can tell."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from cutaway.config import TrainConfig
from cutaway.evaluate.scores import perplexity
from cutaway.runs import RunFolder


@dataclass
class TrainState:
    """Where a training is. With the weights, the optimizer and the random generators it is all there is to save."""

    step: int = 0
    tokens: int = 0  # answers asked for so far: target tokens, labels, tags
    seconds: float = 0.0  # spent training, validation included
    best_loss: float = math.inf
    best_step: int = 0


@dataclass(frozen=True)
class StepReport:
    """What one step did. Losses are a token's mean: `loss` with label smoothing, `nll` without it."""

    step: int
    loss: float
    nll: float
    lr: float
    gradient_norm: float
    tokens: int


class Measured(NamedTuple):
    """How a model does on a whole set, without dropout and label smoothing."""

    nll: float  # the mean cross-entropy: its exp is the perplexity
    accuracy: float  # how often the likeliest answer is right


class Watched(Protocol):
    """What observers may look at."""

    config: TrainConfig
    state: TrainState


class Observer:
    """Told what happens, and free to ignore it. The trainer knows nothing of who listens."""

    def on_start(self, trainer: Watched) -> None: ...
    def on_step(self, trainer: Watched, report: StepReport) -> None: ...
    def on_validation(self, trainer: Watched, measured: Measured) -> None: ...
    def on_end(self, trainer: Watched) -> None: ...


class MetricsLog(Observer):
    """Writes metrics.jsonl: a line every `log_every` steps, the mean over them, and one for each validation."""

    def __init__(self, run: RunFolder, every: int):
        self.run_folder, self.every = run, every
        self.reports: list[StepReport] = []

    def on_step(self, trainer: Watched, report: StepReport) -> None:
        self.reports.append(report)
        if report.step % self.every == 0 or report.step == trainer.config.steps:
            self.run_folder.append_metrics(
                {
                    "step": report.step,
                    "loss": mean_over_tokens([(r.loss, r.tokens) for r in self.reports]),
                    "nll": mean_over_tokens([(r.nll, r.tokens) for r in self.reports]),
                    "lr": report.lr,
                    "gradient_norm": report.gradient_norm,
                    "tokens": trainer.state.tokens,
                    "seconds": round(trainer.state.seconds, 3),
                }
            )
            self.reports.clear()

    def on_validation(self, trainer: Watched, measured: Measured) -> None:
        self.run_folder.append_metrics(
            {
                "step": trainer.state.step,
                "valid_loss": measured.nll,
                "valid_perplexity": perplexity(measured.nll),
                "valid_accuracy": measured.accuracy,
                "seconds": round(trainer.state.seconds, 3),
            }
        )


def mean_over_tokens(values: Sequence[tuple[float, int]]) -> float:
    return sum(value * tokens for value, tokens in values) / sum(tokens for _, tokens in values)


def snapshot_steps(steps: int, count: int) -> set[int]:
    """`count` steps spread evenly over the run, the last one among them."""
    return {round(steps * (i + 1) / count) for i in range(count)}
