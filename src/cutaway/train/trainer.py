"""Training with PyTorch: the step, the validation and the checkpoint. The loop that calls them is in loop.py."""

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
from cutaway.train.distributed import ProcessGroup
from cutaway.train.ema import Ema
from cutaway.train.failures import explain_failures
from cutaway.train.loop import Loop
from cutaway.train.memory import reuse_freed_memory
from cutaway.train.objectives import ModelWithLoss, Objective, measure_distributed
from cutaway.train.observers import Observer, StepReport, SumsSinceLog, TrainState, ValidationResult
from cutaway.train.optimizers import make_optimizer
from cutaway.train.precision import Precision, compile_model
from cutaway.train.schedules import Schedule

MAX_SKIPPED = 10  # consecutive steps with a non-finite gradient
AddSamples = Callable[[nn.Module, ValidationResult], ValidationResult]


class Trainer(Loop):
    """Minimizes an objective on a stream of batches, and writes the run folder."""

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
        add_samples: AddSamples | None = None,
        process_group: ProcessGroup | None = None,
        adapter: Mapping[str, str] | None = None,
    ):
        """`add_samples` adds generated texts and BLEU to a validation result. `adapter` is the metadata of an adapter
        file, if only an adapter such as LoRA is trained. Checkpoints then contain only the weights of the adapter."""
        super().__init__(config, run, observers, can_validate=bool(valid_batches))
        self.device = next(model.parameters()).device
        if self.device.type == "cpu":
            reuse_freed_memory()
        self.process_group = process_group or ProcessGroup(self.device)
        self.model = model
        model_with_loss = ModelWithLoss(model, objective, config.label_smoothing, config.balance_loss)
        # The same weights as `model`, wrapped for data parallelism and perhaps compiled: batch -> loss.
        self.model_with_loss = compile_model(self.process_group.wrap(model_with_loss), config, self.device)
        self.batches, self.valid_batches = batches, valid_batches
        self.schedule, self.add_samples, self.adapter = schedule, add_samples, adapter
        # With map_rows, Muon divides its list of matrices between the processes.
        self.optimizer = make_optimizer(model, config, self.process_group.map_rows)
        self.precision = Precision(config, self.device)
        self.ema = Ema(model, config.ema) if config.ema else None
        if not self.process_group.is_main_process:
            self.observers = []

    def run(self) -> TrainState:
        lock = self.run_folder.lock() if self.process_group.is_main_process else nullcontext()
        with lock, explain_failures(self.config, self.run_folder, self.process_group.size):
            try:
                return super().run()
            finally:
                self.process_group.close()

    def next_step(self) -> StepReport:
        started = time.monotonic()
        batch = next(self.batches)
        self.state.waiting += time.monotonic() - started
        self.state.epochs = self.batches.epochs
        return self.step(batch)

    def step(self, batch: Batch) -> StepReport:
        """Update the weights once, by the gradient of the whole batch."""
        self.state.step += 1
        self.state.tokens += batch.tokens
        self.model_with_loss.train()
        self.optimizer.zero_grad(set_to_none=True)
        loss_sum, nll_sum = self.process_group.all_reduce(*self.accumulate_gradients(batch))
        self.precision.unscale(self.optimizer)
        gradient_norm = self.clip_gradients()
        lr = self.schedule(self.state.step, self.progress)
        if math.isfinite(loss_sum) and math.isfinite(gradient_norm):
            self.update_weights(lr)
        else:
            self.skip_update(loss_sum, gradient_norm)
        self.precision.after_step()
        loss, nll = loss_sum / batch.tokens, nll_sum / batch.tokens
        return StepReport(self.state.step, loss, nll, lr, gradient_norm, batch.tokens)

    def accumulate_gradients(self, batch: Batch) -> tuple[float, float]:
        """Run forward and backward on this process's micro-batches. Return the loss, with and without smoothing."""
        config, group = self.config, self.process_group
        loss_sum, nll_sum, parts = 0.0, 0.0, config.micro_batches * group.size
        for i in range(config.micro_batches):
            part_index = i * group.size + group.rank
            # A small batch can have fewer rows than parts. All processes must still call the model equally often, so
            # a process without a row computes row 0 with weight 0.
            weight = float(part_index < batch.rows)
            part = batch.part(part_index, parts) if weight else batch.part(0, batch.rows)
            self.seed_dropout(part_index)
            is_last = i + 1 == config.micro_batches
            with group.sync_gradients(self.model_with_loss, is_last), self.precision.autocast():
                result = self.model_with_loss(part.to(self.device))
                # The gradients of all processes are averaged, so multiply by their number to get the sum.
                self.precision.backward(result.loss * (weight * group.size / batch.tokens))
            loss_sum += weight * result.loss.item()
            nll_sum += weight * result.nll.item()
        return loss_sum, nll_sum

    def seed_dropout(self, part_index: int) -> None:
        """Seed dropout by the step and the part, so that checkpoints need no random state."""
        entropy = np.random.SeedSequence([self.config.seed, self.state.step, part_index])
        torch.manual_seed(int(entropy.generate_state(1, np.uint64)[0]))

    def clip_gradients(self) -> float:
        """Scale all gradients down if their total norm is above `clip_norm`. Return the norm before."""
        limit = self.config.clip_norm or math.inf
        return float(self.process_group.full_tensor(nn.utils.clip_grad_norm_(self.model.parameters(), limit)))

    def update_weights(self, lr: float) -> None:
        for parameters in self.optimizer.param_groups:
            parameters["lr"] = lr
        self.optimizer.step()
        self.state.skipped_in_a_row = 0
        if self.ema:
            self.ema.update(self.model)

    def skip_update(self, loss_sum: float, gradient_norm: float) -> None:
        """Count a step whose loss or gradient is not finite. After many in a row, raise an error."""
        state = self.state
        state.skipped += 1
        state.skipped_in_a_row += 1
        if state.skipped_in_a_row >= MAX_SKIPPED:
            what = "loss" if not math.isfinite(loss_sum) else "norm of the gradient"
            value = loss_sum if not math.isfinite(loss_sum) else gradient_norm
            raise Diverged(
                f"the {what} was {value} at step {state.step} and at the {MAX_SKIPPED - 1} steps before it. Lower "
                f"train.lr, raise train.warmup or set train.clip_norm = 1. The last checkpoint before that is in "
                f"{self.run_folder.checkpoints}."
            )

    def validate(self) -> ValidationResult:
        with self.use_ema_weights():
            result = measure_distributed(self.model_with_loss, self.valid_batches, self.process_group)
            if not self.add_samples:
                return result
            with self.process_group.unshard(self.model):
                result = self.add_samples(self.model, result)
            if result.bleu is None:
                return result
            # Rounding may differ between processes. All use the main process's score, so that all decide the same.
            bleu = result.bleu if self.process_group.is_main_process else 0.0
            return result._replace(bleu=self.process_group.all_reduce(bleu)[0])

    @contextmanager
    def use_ema_weights(self) -> Iterator[None]:
        """A context in which the model has its averaged weights, if `train.ema` is set."""
        if self.ema is None:
            yield
            return
        with self.ema.apply_to(self.model):
            yield

    def should_stop(self, is_interrupted: bool) -> bool:
        """All processes stop if one of them was interrupted."""
        return self.process_group.all_reduce(is_interrupted)[0] > 0

    def agree_on_seconds(self, seconds: float) -> float:
        """If the training is limited by time, use the main process's time, so that all stop at the same step."""
        if self.config.budget != "minutes":
            return seconds
        return self.process_group.all_reduce(seconds if self.process_group.is_main_process else 0.0)[0]

    def save(self) -> None:
        state = {**asdict(self.state), "data": self.batches.position()}
        tensors = self.collect_tensors()
        if self.process_group.is_main_process:
            checkpoint.save(self.run_folder, tensors, state, self.is_best, self.config.keep_checkpoints)

    def save_snapshot(self) -> None:
        """Save the weights only, to see later how the model learned."""
        tensors = self.collect_tensors()
        if self.process_group.is_main_process:
            checkpoint.save_snapshot(self.run_folder, tensors, self.state.step)

    def collect_tensors(self) -> checkpoint.TrainingTensors:
        full_tensor = self.process_group.full_tensor
        return checkpoint.collect_tensors(self.model, self.optimizer, self.ema, full_tensor, self.adapter)

    def finish(self) -> None:
        """With `average_checkpoints`, save the mean of the last checkpoints, as in the paper (section 6.1)."""
        if not self.config.average_checkpoints:
            return
        folders = self.run_folder.list_checkpoints()[-self.config.average_checkpoints :]
        mean = checkpoint.mean_weights(folders, self.adapter)
        parameters = checkpoint.saved_parameters(self.model, self.adapter)
        copy_tensors(parameters, mean, f"the mean of {len(folders)} checkpoints")
        if self.can_validate:
            self.notify("on_validation", self.validate())
        if self.process_group.is_main_process:
            checkpoint.save_weights(self.run_folder, mean, self.adapter)

    def resume(self) -> None:
        """Load the latest undamaged checkpoint: weights, optimizer state and data position."""
        state = checkpoint.load_latest(self.run_folder, self.model, self.optimizer, self.ema, self.adapter)
        self.batches.set_position(state.pop("data"))
        self.state = TrainState(**{**state, "unlogged": SumsSinceLog(**state["unlogged"])})
        self.run_folder.drop_metrics_after(self.state.step)
        # Newer checkpoints may be damaged, so "latest" points to this one. It is then not deleted as an old one.
        if self.process_group.is_main_process:
            self.run_folder.set_pointer("latest", self.run_folder.checkpoint(self.state.step))
