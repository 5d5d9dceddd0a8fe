"""The training loop: steps, validations, checkpoints. It does not depend on how a step is computed. No torch here.

Progress bars and reports are observers that the caller passes in.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from cutaway.config import TrainConfig
from cutaway.errors import Interrupted
from cutaway.runs import RunFolder
from cutaway.train.interrupt import interrupt_as_flag
from cutaway.train.observers import MetricsLog, Observer, StepReport, TrainState, ValidationResult

FIRST_SNAPSHOT = 0.01  # of the training: before it, the model has learned little


class Loop:
    """The training loop. A subclass computes the steps and validations, and writes the files."""

    can_resume = True

    def __init__(self, config: TrainConfig, run: RunFolder, observers: Iterable[Observer], can_validate: bool):
        self.config, self.run_folder, self.can_validate = config, run, can_validate
        self.observers = [MetricsLog(run, config.log_every), *observers]
        self.state = TrainState()

    def next_step(self) -> StepReport:
        raise NotImplementedError

    def validate(self) -> ValidationResult:
        raise NotImplementedError

    def save(self) -> None:
        raise NotImplementedError

    def save_snapshot(self) -> None:
        raise NotImplementedError

    def finish(self) -> None:
        """Called once, after the last step."""

    def should_stop(self, is_interrupted: bool) -> bool:
        """Whether to stop now. With several processes, all must decide the same."""
        return is_interrupted

    def agree_on_seconds(self, seconds: float) -> float:
        """The training time. With several processes, all must use the same if it decides when the training ends."""
        return seconds

    @property
    def progress(self) -> float:
        """The finished fraction of the training, from 0 to 1: of its steps, epochs, tokens or minutes."""
        state, budget = self.state, self.config.budget
        used = {"steps": state.step, "epochs": state.epochs, "tokens": state.tokens, "minutes": state.seconds / 60}
        return min(1.0, used[budget] / getattr(self.config, budget))

    @property
    def is_over(self) -> bool:
        patience = self.config.patience
        return self.progress >= 1 or bool(patience and self.state.validations_since_best >= patience)

    def run(self) -> TrainState:
        """Train to the end. Ctrl-C (or SIGTERM) finishes the current step, saves, and raises `Interrupted`."""
        self.notify("on_start")
        started = time.monotonic() - self.state.seconds
        stopped = False
        with interrupt_as_flag() as interrupted:
            while not self.is_over and not stopped:
                snapshots_before = self.snapshots_due
                report = self.next_step()
                self.state.seconds = self.agree_on_seconds(time.monotonic() - started)
                self.notify("on_step", report)
                self.validate_and_save()
                if self.snapshots_due > snapshots_before:
                    self.save_snapshot()
                stopped = self.should_stop(interrupted.is_set())
        if stopped and not self.is_over:
            self.save()
            raise Interrupted(self.interrupted_message())
        self.finish()
        self.notify("on_end")
        return self.state

    def interrupted_message(self) -> str:
        best = self.state.best_step or self.state.step
        saved = "everything is saved" if self.can_resume else f"the weights of step {best} are in {self.run_folder}"
        is_by_steps = self.config.budget == "steps"
        total = f" of {self.config.steps}" if is_by_steps else f", {self.progress:.0%} of the training"
        return f"stopped at step {self.state.step}{total}; {saved}."

    def validate_and_save(self) -> None:
        """After a step: validate and write a checkpoint, if they are due."""
        step, config = self.state.step, self.config
        is_last = self.progress >= 1
        if self.can_validate and (is_last or step % config.valid_every == 0):
            result = self.validate()
            self.update_best(result)
            self.notify("on_validation", result)
        if is_last or self.is_over or step % config.save_every == 0 or self.state.best_step == step:
            self.save()

    @property
    def snapshots_due(self) -> int:
        """The number of snapshots up to this step. Without a limit of steps, their number is about step / progress."""
        step, progress = self.state.step, self.progress
        if not progress or not self.config.snapshots:
            return 0
        steps = step if progress == 1 else max(step + 1, round(step / progress))
        return sum(each <= step for each in snapshot_steps(steps, self.config.snapshots))

    def update_best(self, result: ValidationResult) -> None:
        lower_is_better = {"loss": result.nll, "accuracy": -result.accuracy, "bleu": -(result.bleu or 0.0)}
        state, value = self.state, lower_is_better[self.config.best_by]
        if value < state.best:
            state.best, state.best_loss, state.best_step = value, result.nll, state.step
            state.validations_since_best = 0
        else:
            state.validations_since_best += 1

    @property
    def is_best(self) -> bool:
        """Whether the current weights are the best so far; without validation data, the latest weights are."""
        return self.state.best_step == self.state.step or not self.can_validate

    def notify(self, event: str, *arguments: Any) -> None:
        for observer in self.observers:
            getattr(observer, event)(self, *arguments)


def snapshot_steps(steps: int, count: int) -> list[int]:
    """The steps of `count` snapshots, spaced by logarithm, because a model learns most at the start.

    The last one is the last step. All differ; a training with fewer steps has one at each step.
    """
    shares = [FIRST_SNAPSHOT ** (1 - i / (count - 1)) for i in range(count - 1)] + [1.0]
    found = [0]
    for left, share in zip(reversed(range(count)), shares, strict=True):
        found.append(min(max(round(share * steps), found[-1] + 1), steps - left))
    return [step for step in found if step > 0]
