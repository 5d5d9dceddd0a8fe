"""Progress of a training: a live bar on a terminal, a plain line every few seconds when piped."""

from __future__ import annotations

import time
from collections import deque

from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

from cutaway.cli.console import clock, err
from cutaway.metrics.scores import perplexity
from cutaway.train.observers import Observer, StepReport, TrainerView, ValidationResult

TOKEN_TASKS = ("translation", "language_model", "masked_language_model")  # tasks with a perplexity
WINDOW = 50  # loss and speed are means over these steps
LINE_EVERY = 10  # seconds between plain lines


class TrainingProgress(Observer):
    """Step, loss, perplexity, tokens per second, time left."""

    def __init__(self, task: str) -> None:
        self.has_perplexity = task in TOKEN_TASKS
        self.unit = "examples" if task in ("classification", "image_classification") else "tokens"
        self.recent: deque[StepReport] = deque(maxlen=WINDOW)
        self.times: deque[float] = deque(maxlen=WINDOW + 1)
        self.done_at: deque[float] = deque(maxlen=WINDOW + 1)
        self.bar: Progress | None = None
        self.last_line = 0.0

    def on_start(self, trainer: TrainerView) -> None:
        self.times.append(time.monotonic())
        self.done_at.append(trainer.progress)
        if err.is_terminal:
            columns = (TextColumn("training"), BarColumn(10), TaskProgressColumn(), TextColumn("{task.description}"))
            self.bar = Progress(*columns, console=err)
            self.task = self.bar.add_task("", total=1.0)
            self.bar.start()

    def on_step(self, trainer: TrainerView, report: StepReport) -> None:
        self.recent.append(report)
        self.times.append(time.monotonic())
        self.done_at.append(trainer.progress)
        if self.bar:
            self.bar.update(self.task, completed=trainer.progress, description=self.describe(trainer))
        elif report.step == 1 or trainer.progress >= 1 or time.monotonic() - self.last_line > LINE_EVERY:
            self.last_line = time.monotonic()
            steps = f"/{trainer.config.steps:,}" if trainer.config.budget == "steps" else f" ({trainer.progress:.0%})"
            err.print(f"step {report.step:,}{steps}  {self.describe(trainer)}")

    def on_validation(self, trainer: TrainerView, result: ValidationResult) -> None:
        best = "  (best so far)" if trainer.state.best_step == trainer.state.step else ""
        figure = (
            f"perplexity {perplexity(result.nll):.3f}" if self.has_perplexity else f"accuracy {result.accuracy:.1%}"
        )
        figure += f", BLEU {result.bleu:.1f}" if result.bleu is not None else ""
        err.print(f"step {trainer.state.step:,}: validation loss {result.nll:.4f}, {figure}{best}")
        for sample in result.samples:
            err.print(f"    {sample.given}  →  {sample.written}", markup=False, overflow="ellipsis", no_wrap=True)

    def on_end(self, trainer: TrainerView) -> None:
        self.close()

    def close(self) -> None:
        if self.bar:
            self.bar.stop()
            self.bar = None

    def describe(self, trainer: TrainerView) -> str:
        tokens = sum(report.tokens for report in self.recent)
        elapsed = self.times[-1] - self.times[0]
        loss = sum(report.loss * report.tokens for report in self.recent) / tokens
        nll = sum(report.nll * report.tokens for report in self.recent) / tokens
        left = elapsed / max(1e-9, self.done_at[-1] - self.done_at[0]) * (1 - trainer.progress)
        value = f"{perplexity(nll):.2f}" if nll < 14 else f"{perplexity(nll):.0e}"
        figure = f"  perplexity {value}" if self.has_perplexity else ""
        skipped = f"  {trainer.state.skipped} steps skipped" if trainer.state.skipped else ""
        return f"loss {loss:.3f}{figure}  {tokens / elapsed:,.0f} {self.unit}/s{skipped}  {clock(left)} left"
