"""Progress of a training: a live bar on a terminal, a plain line now and then when piped."""

from __future__ import annotations

import time
from collections import deque

from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

from cutaway.cli.console import clock, err
from cutaway.metrics.scores import perplexity
from cutaway.train.observers import Measured, Observer, StepReport, Watched

LANGUAGE = ("translation", "language_model", "masked_language_model")  # tasks of which a perplexity says something
WINDOW = 50  # steps that the shown loss and speed are a mean of


class TrainingProgress(Observer):
    """step, loss, perplexity, tokens a second, time left."""

    def __init__(self, task: str) -> None:
        self.of_language = task in LANGUAGE
        self.unit = "examples" if task in ("classification", "image_classification") else "tokens"
        self.recent: deque[StepReport] = deque(maxlen=WINDOW)
        self.times: deque[float] = deque(maxlen=WINDOW + 1)
        self.done_at: deque[float] = deque(maxlen=WINDOW + 1)
        self.bar: Progress | None = None
        self.last_line = 0.0

    def on_start(self, trainer: Watched) -> None:
        self.times.append(time.monotonic())
        self.done_at.append(trainer.done)
        if err.is_terminal:
            columns = (TextColumn("training"), BarColumn(), TaskProgressColumn(), TextColumn("{task.description}"))
            self.bar = Progress(*columns, console=err)
            self.task = self.bar.add_task("", total=1.0)
            self.bar.start()

    def on_step(self, trainer: Watched, report: StepReport) -> None:
        self.recent.append(report)
        self.times.append(time.monotonic())
        self.done_at.append(trainer.done)
        if self.bar:
            self.bar.update(self.task, completed=trainer.done, description=self.describe(trainer))
        elif report.step == 1 or trainer.done >= 1 or time.monotonic() - self.last_line > 10:
            self.last_line = time.monotonic()
            steps = f"/{trainer.config.steps:,}" if trainer.config.budget == "steps" else f" ({trainer.done:.0%})"
            err.print(f"step {report.step:,}{steps}  {self.describe(trainer)}")

    def on_validation(self, trainer: Watched, measured: Measured) -> None:
        best = "  (best so far)" if trainer.state.best_step == trainer.state.step else ""
        figure = (
            f"perplexity {perplexity(measured.nll):.3f}" if self.of_language else f"accuracy {measured.accuracy:.1%}"
        )
        figure += f", BLEU {measured.bleu:.1f}" if measured.bleu is not None else ""
        err.print(f"step {trainer.state.step:,}: validation loss {measured.nll:.4f}, {figure}{best}")
        for sample in measured.samples:
            err.print(f"    {sample.given}  →  {sample.written}", markup=False, overflow="ellipsis", no_wrap=True)

    def on_end(self, trainer: Watched) -> None:
        self.close()

    def close(self) -> None:
        if self.bar:
            self.bar.stop()
            self.bar = None

    def describe(self, trainer: Watched) -> str:
        tokens = sum(report.tokens for report in self.recent)
        elapsed = self.times[-1] - self.times[0]
        loss = sum(report.loss * report.tokens for report in self.recent) / tokens
        nll = sum(report.nll * report.tokens for report in self.recent) / tokens
        left = elapsed / max(1e-9, self.done_at[-1] - self.done_at[0]) * (1 - trainer.done)
        shown = f"{perplexity(nll):.2f}" if nll < 14 else f"{perplexity(nll):.0e}"  # not with 300 digits
        figure = f"  perplexity {shown}" if self.of_language else ""
        skipped = f"  {trainer.state.skipped} steps skipped" if trainer.state.skipped else ""
        return f"loss {loss:.3f}{figure}  {tokens / elapsed:,.0f} {self.unit}/s{skipped}  {clock(left)} left"
