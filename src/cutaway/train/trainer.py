"""The training loop, from top to bottom. Progress bars and reports are observers that the caller hands in."""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

from torch import nn

from cutaway.config import TrainConfig
from cutaway.data.batching import Batch, BatchStream
from cutaway.errors import Diverged, Interrupted
from cutaway.evaluate.scores import perplexity
from cutaway.runs import RunFolder
from cutaway.train import checkpoint
from cutaway.train.objectives import Measured, Objective, loss_of, measure
from cutaway.train.optimizers import make_optimizer
from cutaway.train.schedules import Schedule


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


class Observer:
    """Told what happens, and free to ignore it. The trainer knows nothing of who listens."""

    def on_start(self, trainer: Trainer) -> None: ...
    def on_step(self, trainer: Trainer, report: StepReport) -> None: ...
    def on_validation(self, trainer: Trainer, measured: Measured) -> None: ...
    def on_end(self, trainer: Trainer) -> None: ...


class Trainer:
    """Makes the objective small on a stream of batches and keeps the run folder up to date."""

    def __init__(
        self,
        model: nn.Module,
        objective: Objective,
        batches: BatchStream,
        valid_batches: Sequence[Batch],
        schedule: Schedule,
        config: TrainConfig,
        run: RunFolder,
        observers: Iterable[Observer] = (),
    ):
        self.model, self.objective = model, objective
        self.batches, self.valid_batches = batches, valid_batches
        self.schedule, self.config, self.run_folder = schedule, config, run
        self.optimizer = make_optimizer(model, config)
        self.observers = [MetricsLog(run, config.log_every), *observers]
        self.device = next(model.parameters()).device
        self.state = TrainState()

    def run(self) -> TrainState:
        """Train until `config.steps`. Ctrl-C ends the step at hand, saves, and raises `Interrupted`."""
        self.tell("on_start")
        started = time.monotonic() - self.state.seconds
        with interrupt_as_flag() as interrupted:
            while self.state.step < self.config.steps and not interrupted.is_set():
                report = self.step(next(self.batches))
                self.state.seconds = time.monotonic() - started
                self.tell("on_step", report)
                self.look_and_save()
        if interrupted.is_set():
            self.save()
            raise Interrupted(f"stopped at step {self.state.step} of {self.config.steps}; everything is saved.")
        self.tell("on_end")
        return self.state

    def step(self, *micro_batches: Batch) -> StepReport:
        """One update. Several micro-batches give exactly the gradient of the large batch that they make up."""
        self.model.train()
        self.optimizer.zero_grad(set_to_none=True)
        tokens = sum(batch.tokens for batch in micro_batches)
        loss_sum, nll_sum = 0.0, 0.0
        for batch in micro_batches:
            result = loss_of(
                self.model,
                self.objective,
                batch.to(self.device),
                self.config.label_smoothing,
                self.config.balance_loss,
            )
            (result.loss / tokens).backward()
            loss_sum, nll_sum = loss_sum + result.loss.item(), nll_sum + result.nll.item()
        gradient_norm = self.clip_gradients()
        self.state.step += 1
        self.state.tokens += tokens
        if not math.isfinite(loss_sum):
            raise Diverged(
                f"the loss became {loss_sum} at step {self.state.step}. Lower train.lr, lengthen train.warmup or set "
                f"train.clip_norm = 1; the last good checkpoint is in {self.run_folder.checkpoints}."
            )
        lr = self.schedule(self.state.step)
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        self.optimizer.step()
        return StepReport(self.state.step, loss_sum / tokens, nll_sum / tokens, lr, gradient_norm, tokens)

    def clip_gradients(self) -> float:
        """Scale all gradients down together if their joint norm is above `clip_norm`."""
        limit = self.config.clip_norm or math.inf
        return float(nn.utils.clip_grad_norm_(self.model.parameters(), limit))

    def look_and_save(self) -> None:
        """What is due after a step: a validation, a checkpoint, a snapshot."""
        step, config = self.state.step, self.config
        last = step == config.steps
        if self.valid_batches and (last or step % config.valid_every == 0):
            measured = self.validate()
            if measured.nll < self.state.best_loss:
                self.state.best_loss, self.state.best_step = measured.nll, step
            self.tell("on_validation", measured)
        if last or step % config.save_every == 0 or self.state.best_step == step:
            self.save()
        if step in snapshot_steps(config.steps, config.snapshots):
            checkpoint.save_snapshot(self.run_folder, self.model, step)

    def validate(self) -> Measured:
        return measure(self.model, self.objective, self.valid_batches)

    def save(self) -> None:
        is_best = self.state.best_step == self.state.step or not self.valid_batches
        state = {**asdict(self.state), "data": self.batches.position()}
        checkpoint.save(self.run_folder, self.model, self.optimizer, state, is_best, self.config.keep)

    def resume(self) -> None:
        """Go back to the latest checkpoint: weights, optimizer, random generators, place in the data."""
        state = checkpoint.load_latest(self.run_folder, self.model, self.optimizer)
        self.batches.set_position(state.pop("data"))
        self.state = TrainState(**state)
        self.run_folder.forget_metrics_after(self.state.step)

    def tell(self, event: str, *arguments: Any) -> None:
        for observer in self.observers:
            getattr(observer, event)(self, *arguments)


class MetricsLog(Observer):
    """Writes metrics.jsonl: a line every `log_every` steps, the mean over them, and one for each validation."""

    def __init__(self, run: RunFolder, every: int):
        self.run_folder, self.every = run, every
        self.reports: list[StepReport] = []

    def on_step(self, trainer: Trainer, report: StepReport) -> None:
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

    def on_validation(self, trainer: Trainer, measured: Measured) -> None:
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


@contextmanager
def interrupt_as_flag() -> Iterator[threading.Event]:
    """Ctrl-C sets a flag, so that the step at hand can end; a second Ctrl-C interrupts as usual."""
    flag = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield flag  # only the main thread may handle signals
        return

    def on_interrupt(number: int, frame: Any) -> None:
        flag.set()
        signal.signal(signal.SIGINT, previous)

    previous = signal.signal(signal.SIGINT, on_interrupt)
    try:
        yield flag
    finally:
        signal.signal(signal.SIGINT, previous)
