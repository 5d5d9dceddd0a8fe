"""The training loop, from top to bottom, whatever a step is made with. No torch here.

Progress bars and reports are observers that the caller hands in.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from cutaway.config import TrainConfig
from cutaway.errors import Interrupted
from cutaway.runs import RunFolder
from cutaway.train.interrupt import interrupt_as_flag
from cutaway.train.observers import Measured, MetricsLog, Observer, StepReport, TrainState, snapshot_steps


class Loop:
    """Step after step; now and then a validation, a checkpoint, a snapshot."""

    can_resume = True

    def __init__(self, config: TrainConfig, run: RunFolder, observers: Iterable[Observer], can_validate: bool):
        self.config, self.run_folder, self.can_validate = config, run, can_validate
        self.observers = [MetricsLog(run, config.log_every), *observers]
        self.state = TrainState()

    def next_step(self) -> StepReport:
        raise NotImplementedError

    def validate(self) -> Measured:
        raise NotImplementedError

    def save(self) -> None:
        raise NotImplementedError

    def save_snapshot(self) -> None:
        raise NotImplementedError

    def run(self) -> TrainState:
        """Train until `config.steps`. Ctrl-C ends the step at hand, saves, and raises `Interrupted`."""
        self.tell("on_start")
        started = time.monotonic() - self.state.seconds
        with interrupt_as_flag() as interrupted:
            while self.state.step < self.config.steps and not interrupted.is_set():
                report = self.next_step()
                self.state.seconds = time.monotonic() - started
                self.tell("on_step", report)
                self.look_and_save()
        if interrupted.is_set():
            self.save()
            best = self.state.best_step or self.state.step
            saved = "everything is saved" if self.can_resume else f"the weights of step {best} are in {self.run_folder}"
            raise Interrupted(f"stopped at step {self.state.step} of {self.config.steps}; {saved}.")
        self.tell("on_end")
        return self.state

    def look_and_save(self) -> None:
        """What is due after a step: a validation, a checkpoint, a snapshot."""
        step, config = self.state.step, self.config
        last = step == config.steps
        if self.can_validate and (last or step % config.valid_every == 0):
            measured = self.validate()
            if measured.nll < self.state.best_loss:
                self.state.best_loss, self.state.best_step = measured.nll, step
            self.tell("on_validation", measured)
        if last or step % config.save_every == 0 or self.state.best_step == step:
            self.save()
        if step in snapshot_steps(config.steps, config.snapshots):
            self.save_snapshot()

    @property
    def is_best(self) -> bool:
        """Whether the weights at hand are the best so far; without validation data, the latest are."""
        return self.state.best_step == self.state.step or not self.can_validate

    def tell(self, event: str, *arguments: Any) -> None:
        for observer in self.observers:
            getattr(observer, event)(self, *arguments)
