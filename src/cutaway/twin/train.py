"""The training loop."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from cutaway.config import TrainConfig
from cutaway.errors import ConfigError, Diverged
from cutaway.twin.batch import Batch
from cutaway.twin.model import Model
from cutaway.twin.ops import Loss, cross_entropy
from cutaway.twin.optim import Adam, clip_gradients, noam


class StepResult(NamedTuple):
    """Results of one step. Losses are means per token: `loss` with label smoothing, `nll` without."""

    step: int
    loss: float
    nll: float
    lr: float
    gradient_norm: float
    tokens: int


def train(model: Model, batches: Iterable[Batch], config: TrainConfig) -> Iterator[StepResult]:
    """Train, and yield after each step. The caller can read the model between steps."""
    check_train_config(config)
    adam = Adam(model, config.beta1, config.beta2, config.epsilon)
    d_model = model.head.weight.value.shape[1]
    generator = np.random.default_rng(config.seed)
    for step, batch in zip(range(1, config.steps + 1), batches, strict=False):
        model.set_dropout(generator)
        loss, tokens = forward_and_backward(model, batch, config.label_smoothing)
        model.set_dropout(None)
        if not math.isfinite(loss.smoothed):
            raise Diverged(
                f"the loss became {loss.smoothed} at step {step}. Lower train.lr, raise train.warmup or set "
                "train.clip_norm = 1. The run folder has the best weights so far."
            )
        gradient_norm = clip_gradients(adam.parameters, config.clip_norm)
        lr = noam(step, d_model, config.warmup, config.lr)
        adam.step(lr)
        yield StepResult(step, loss.smoothed / tokens, loss.plain / tokens, lr, gradient_norm, tokens)


@np.errstate(over="ignore", invalid="ignore")  # train() checks the loss for NaN and infinity
def forward_and_backward(model: Model, batch: Batch, smoothing: float) -> tuple[Loss, int]:
    """Compute the loss of a batch, and the gradients of the mean loss per token. -> loss, number of tokens"""
    model.zero_gradients()
    logits, backward = model(*batch.inputs)  # type: ignore[arg-type]
    targets = batch.targets[batch.target_mask]
    loss, back_loss = cross_entropy(logits[batch.target_mask], targets, smoothing)
    d_logits = np.zeros_like(logits)  # stays 0 at padding
    d_logits[batch.target_mask] = back_loss() / len(targets)
    backward(d_logits)
    return loss, len(targets)


def check_train_config(config: TrainConfig) -> None:
    """Raise an error for a setting that the twin does not support. It trains as in the paper, on the CPU."""
    supported: dict[str, tuple[Any, ...]] = {
        "optimizer": ("adam",),
        "schedule": ("noam",),
        "device": ("auto", "cpu"),
        "best_by": ("loss", "accuracy"),
        "epochs": (0.0,),
        "tokens": (0,),
        "minutes": (0.0,),
        "micro_batches": (1,),
        "ema": (0.0,),
        "average_checkpoints": (0,),
        "precision": ("auto", "float32"),
    }
    for name, values in supported.items():
        value = getattr(config, name)
        if value not in values:
            raise ConfigError(
                f"engine 'numpy' does not support train.{name} = {value!r}. Set it to {values[-1]!r}, or use engine "
                "'torch'."
            )


def measure(model: Model, batches: Iterable[Batch]) -> tuple[float, float]:
    """The mean negative log-likelihood per token, and the accuracy, over all batches."""
    nll, correct, tokens = 0.0, 0, 0
    for batch in batches:
        logits, _ = model(*batch.inputs)  # type: ignore[arg-type]
        logits_NV, targets = logits[batch.target_mask], batch.targets[batch.target_mask]
        nll += cross_entropy(logits_NV, targets)[0].plain
        correct += int((logits_NV.argmax(axis=-1) == targets).sum())
        tokens += len(targets)
    return nll / tokens, correct / tokens
