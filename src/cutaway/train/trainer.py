"""Training with PyTorch: the step, and what a checkpoint holds. The loop around the steps is in loop.py."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict

import numpy as np
import torch
from torch import nn

from cutaway.config import TrainConfig
from cutaway.data.batching import Batch, BatchStream
from cutaway.errors import Diverged
from cutaway.models.weights import copy_tensors
from cutaway.runs import RunFolder
from cutaway.train import checkpoint
from cutaway.train.distributed import Team
from cutaway.train.ema import Ema
from cutaway.train.failures import explained
from cutaway.train.loop import Loop
from cutaway.train.memory import keep_freed_memory
from cutaway.train.objectives import Assignment, Objective, measure_together
from cutaway.train.observers import Measured, Observer, StepReport, Sums, TrainState
from cutaway.train.optimizers import make_optimizer
from cutaway.train.precision import Precision, compiled
from cutaway.train.schedules import Schedule

TOO_MANY = 10  # steps in a row without a usable gradient
Look = Callable[[nn.Module, Measured], Measured]


class Trainer(Loop):
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
        look: Look | None = None,
        team: Team | None = None,
        adapter: Mapping[str, str] | None = None,
    ):
        """`look` adds to a validation what has to be written for it: samples, BLEU. `adapter` says of what base
        (runs/base.py): then what is trained is kept alone, without all that stays as it is."""
        super().__init__(config, run, observers, can_validate=bool(valid_batches))
        self.device = next(model.parameters()).device
        if self.device.type == "cpu":
            keep_freed_memory()
        self.team = team or Team(self.device)
        self.model = model
        assignment = Assignment(model, objective, config.label_smoothing, config.balance_loss)
        # what computes: the same weights, compiled perhaps, and in step with those of other processes
        self.worker = compiled(self.team.together(assignment), config, self.device)
        self.batches, self.valid_batches = batches, valid_batches
        self.schedule, self.look, self.adapter = schedule, look, adapter
        self.optimizer = make_optimizer(model, config, self.team.divided)
        self.precision = Precision(config, self.device)
        self.ema = Ema(model, config.ema) if config.ema else None
        if not self.team.is_leader:
            self.observers = []

    def run(self) -> TrainState:
        mine = self.run_folder.locked() if self.team.is_leader else nullcontext()
        with mine, explained(self.config, self.run_folder, self.team.size):
            try:
                return super().run()
            finally:
                self.team.leave()

    def next_step(self) -> StepReport:
        asked = time.monotonic()
        batch = next(self.batches)
        self.state.waiting += time.monotonic() - asked
        self.state.epochs = self.batches.epochs
        return self.step(batch)

    def step(self, batch: Batch) -> StepReport:
        """One update. In several parts or in one, the gradient is that of the whole batch."""
        self.state.step += 1
        self.state.tokens += batch.tokens
        self.worker.train()
        self.optimizer.zero_grad(set_to_none=True)
        loss_sum, nll_sum = self.team.total(*self.add_up_gradients(batch))
        self.precision.unscale(self.optimizer)
        gradient_norm = self.clip_gradients()
        lr = self.schedule(self.state.step, self.done)
        if math.isfinite(loss_sum) and math.isfinite(gradient_norm):
            self.update(lr)
        else:
            self.skip(loss_sum, gradient_norm)
        self.precision.after_step()
        loss, nll = loss_sum / batch.tokens, nll_sum / batch.tokens
        return StepReport(self.state.step, loss, nll, lr, gradient_norm, batch.tokens)

    def add_up_gradients(self, batch: Batch) -> tuple[float, float]:
        """Forward and backward through this process's share, part after part; its loss, smoothed and plain."""
        config, team = self.config, self.team
        loss_sum, nll_sum, parts = 0.0, 0.0, config.micro_batches * team.size
        for number in range(config.micro_batches):
            place = number * team.size + team.rank
            # Where no rows are left, all processes still take the same steps: with a row that weighs nothing.
            weight = float(place < batch.rows)
            part = batch.part(place, parts) if weight else batch.part(0, batch.rows)
            self.seed_dropout(place)
            with team.adding_up(self.worker, is_last=number + 1 == config.micro_batches), self.precision.computing():
                result = self.worker(part.to(self.device))
                self.precision.backward(result.loss * (weight * team.size / batch.tokens))
            loss_sum += weight * result.loss.item()
            nll_sum += weight * result.nll.item()
        return loss_sum, nll_sum

    def seed_dropout(self, part: int) -> None:
        """What dropout draws follows from the seed and the place alone, so there is no state of chance to be saved."""
        entropy = np.random.SeedSequence([self.config.seed, self.state.step, part])
        torch.manual_seed(int(entropy.generate_state(1, np.uint64)[0]))

    def clip_gradients(self) -> float:
        """Scale all gradients down together if their joint norm is above `clip_norm`."""
        limit = self.config.clip_norm or math.inf
        return float(self.team.whole(nn.utils.clip_grad_norm_(self.model.parameters(), limit)))

    def update(self, lr: float) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        self.optimizer.step()
        self.state.skipped_in_a_row = 0
        if self.ema:
            self.ema.follow(self.model)

    def skip(self, loss_sum: float, gradient_norm: float) -> None:
        """A step that would spoil the weights is left out and counted; many of them in a row are no accident."""
        state = self.state
        state.skipped += 1
        state.skipped_in_a_row += 1
        if state.skipped_in_a_row >= TOO_MANY:
            what = "loss" if not math.isfinite(loss_sum) else "norm of the gradient"
            value = loss_sum if not math.isfinite(loss_sum) else gradient_norm
            raise Diverged(
                f"the {what} was {value} at step {state.step} and at the {TOO_MANY - 1} before it. Lower train.lr, "
                f"lengthen train.warmup or set train.clip_norm = 1; the last good checkpoint is in "
                f"{self.run_folder.checkpoints}."
            )

    def validate(self) -> Measured:
        with self.best_guess():
            measured = measure_together(self.worker, self.valid_batches, self.team)
            if not self.look:
                return measured
            with self.team.open(self.model):
                measured = self.look(self.model, measured)
            if measured.bleu is None:
                return measured
            # All have translated the same; so that all draw the same conclusions, the leader's score counts.
            return measured._replace(bleu=self.team.total(measured.bleu if self.team.is_leader else 0.0)[0])

    @contextmanager
    def best_guess(self) -> Iterator[None]:
        """The weights that would be kept now: the slowly following ones, if there are any."""
        if self.ema is None:
            yield
            return
        with self.ema.in_place_of(self.model):
            yield

    def must_stop(self, asked: bool) -> bool:
        """All stop if one was asked to."""
        return self.team.total(asked)[0] > 0

    def clock(self, seconds: float) -> float:
        """The leader's clock is everybody's."""
        if self.config.budget != "minutes":
            return seconds
        return self.team.total(seconds if self.team.is_leader else 0.0)[0]

    def save(self) -> None:
        state = {**asdict(self.state), "data": self.batches.position()}
        everything = self.everything()
        if self.team.is_leader:
            checkpoint.save(self.run_folder, everything, state, self.is_best, self.config.keep_checkpoints)

    def everything(self) -> checkpoint.Everything:
        return checkpoint.gathered(self.model, self.optimizer, self.ema, self.team.whole, self.adapter)

    def save_snapshot(self) -> None:
        everything = self.everything()
        if self.team.is_leader:
            checkpoint.save_snapshot(self.run_folder, everything, self.state.step)

    def finish(self) -> None:
        """With `average_checkpoints`, the mean of the last checkpoints is kept, as in the paper (section 6.1)."""
        if not self.config.average_checkpoints:
            return
        folders = self.run_folder.saved()[-self.config.average_checkpoints :]
        mean = checkpoint.mean_weights(folders, self.adapter)
        into = checkpoint.weights_of(self.model, self.adapter)
        copy_tensors(into, mean, f"the mean of {len(folders)} checkpoints")
        if self.can_validate:
            self.tell("on_validation", self.validate())
        if self.team.is_leader:
            checkpoint.keep(self.run_folder, mean, self.adapter)

    def resume(self) -> None:
        """Go back to the latest checkpoint that is whole: weights, optimizer, place in the data."""
        state = checkpoint.load_latest(self.run_folder, self.model, self.optimizer, self.ema, self.adapter)
        self.batches.set_position(state.pop("data"))
        self.state = TrainState(**{**state, "unlogged": Sums(**state["unlogged"])})
        self.run_folder.forget_metrics_after(self.state.step)
        if self.team.is_leader:  # a later one may be damaged: this one must stay until the next is written
            self.run_folder.set_pointer("latest", self.run_folder.checkpoint(self.state.step))
