"""Training with PyTorch: the step, and what a checkpoint holds. The loop around the steps is in loop.py."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict

from torch import nn

from cutaway.config import TrainConfig
from cutaway.data.batching import Batch, BatchStream
from cutaway.errors import Diverged
from cutaway.runs import RunFolder
from cutaway.train import checkpoint
from cutaway.train.loop import Loop
from cutaway.train.objectives import Objective, loss_of, measure
from cutaway.train.observers import Measured, Observer, StepReport, TrainState
from cutaway.train.optimizers import make_optimizer
from cutaway.train.schedules import Schedule


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
    ):
        super().__init__(config, run, observers, can_validate=bool(valid_batches))
        self.model, self.objective = model, objective
        self.batches, self.valid_batches = batches, valid_batches
        self.schedule = schedule
        self.optimizer = make_optimizer(model, config)
        self.device = next(model.parameters()).device

    def next_step(self) -> StepReport:
        return self.step(next(self.batches))

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

    def validate(self) -> Measured:
        return measure(self.model, self.objective, self.valid_batches)

    def save(self) -> None:
        state = {**asdict(self.state), "data": self.batches.position()}
        checkpoint.save(self.run_folder, self.model, self.optimizer, state, self.is_best, self.config.keep)

    def save_snapshot(self) -> None:
        checkpoint.save_snapshot(self.run_folder, self.model, self.state.step)

    def resume(self) -> None:
        """Go back to the latest checkpoint: weights, optimizer, random generators, place in the data."""
        state = checkpoint.load_latest(self.run_folder, self.model, self.optimizer)
        self.batches.set_position(state.pop("data"))
        self.state = TrainState(**state)
        self.run_folder.forget_metrics_after(self.state.step)
