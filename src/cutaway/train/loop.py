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
from cutaway.train.observers import Measured, MetricsLog, Observer, StepReport, TrainState


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

    def finish(self) -> None:
        """What is to be done once, at the very end."""

    def must_stop(self, asked: bool) -> bool:
        """Whether to stop now, given that this process was asked to. Several processes have to agree."""
        return asked

    def clock(self, seconds: float) -> float:
        """How long it has taken. Where that says when it is over, several processes have to agree on it, too."""
        return seconds

    @property
    def done(self) -> float:
        """How much of the training is done, from 0 to 1, by whatever says how long it is."""
        state, budget = self.state, self.config.budget
        used = {"steps": state.step, "epochs": state.epochs, "tokens": state.tokens, "minutes": state.seconds / 60}
        return min(1.0, used[budget] / getattr(self.config, budget))

    @property
    def is_over(self) -> bool:
        patience = self.config.patience
        return self.done >= 1 or bool(patience and self.state.validations_since_best >= patience)

    def run(self) -> TrainState:
        """Train to the end. Ctrl-C (or SIGTERM) ends the step at hand, saves, and raises `Interrupted`."""
        self.tell("on_start")
        started = time.monotonic() - self.state.seconds
        stopped = False
        with interrupt_as_flag() as interrupted:
            while not self.is_over and not stopped:
                before = self.done
                report = self.next_step()
                self.state.seconds = self.clock(time.monotonic() - started)
                self.tell("on_step", report)
                self.look_and_save(before)
                stopped = self.must_stop(interrupted.is_set())
        if stopped and not self.is_over:
            self.save()
            raise Interrupted(self.interrupted_message())
        self.finish()
        self.tell("on_end")
        return self.state

    def interrupted_message(self) -> str:
        best = self.state.best_step or self.state.step
        saved = "everything is saved" if self.can_resume else f"the weights of step {best} are in {self.run_folder}"
        whole = f" of {self.config.steps}" if self.config.budget == "steps" else f", {self.done:.0%} of the training"
        return f"stopped at step {self.state.step}{whole}; {saved}."

    def look_and_save(self, done_before: float) -> None:
        """What is due after a step: a validation, a checkpoint, a snapshot."""
        step, config = self.state.step, self.config
        last = self.done >= 1
        if self.can_validate and (last or step % config.valid_every == 0):
            measured = self.validate()
            self.note_if_best(measured)
            self.tell("on_validation", measured)
        if last or self.is_over or step % config.save_every == 0 or self.state.best_step == step:
            self.save()
        if int(self.done * config.snapshots) > int(done_before * config.snapshots):  # spread evenly, one at the end
            self.save_snapshot()

    def note_if_best(self, measured: Measured) -> None:
        badness = {"loss": measured.nll, "accuracy": -measured.accuracy, "bleu": -(measured.bleu or 0.0)}
        state, found = self.state, badness[self.config.best_by]
        if found < state.best:
            state.best, state.best_loss, state.best_step = found, measured.nll, state.step
            state.validations_since_best = 0
        else:
            state.validations_since_best += 1

    @property
    def is_best(self) -> bool:
        """Whether the weights at hand are the best so far; without validation data, the latest are."""
        return self.state.best_step == self.state.step or not self.can_validate

    def tell(self, event: str, *arguments: Any) -> None:
        for observer in self.observers:
            getattr(observer, event)(self, *arguments)
