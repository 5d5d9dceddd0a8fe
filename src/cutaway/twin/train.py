"""The training loop, on one screen."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from cutaway.config import TrainConfig
from cutaway.errors import ConfigError, Diverged
from cutaway.twin.batch import Batch
from cutaway.twin.model import Model
from cutaway.twin.ops import Loss, cross_entropy
from cutaway.twin.optim import Adam, clip_gradients, noam


class StepResult(NamedTuple):
    """What one step did; losses are a token's mean, `loss` with label smoothing and `nll` without."""

    step: int
    loss: float
    nll: float
    lr: float
    gradient_norm: float
    tokens: int


def train(model: Model, batches: Iterable[Batch], config: TrainConfig) -> Iterator[StepResult]:
    """Make the loss small, a step at a time: whoever iterates sees each step, and may look at the model in between."""
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
                f"the loss became {loss.smoothed} at step {step}. Lower train.lr, lengthen train.warmup or set "
                "train.clip_norm = 1; the run folder holds the best weights so far."
            )
        gradient_norm = clip_gradients(adam.parameters, config.clip_norm)
        lr = noam(step, d_model, config.warmup, config.lr)
        adam.step(lr)
        yield StepResult(step, loss.smoothed / tokens, loss.plain / tokens, lr, gradient_norm, tokens)


@np.errstate(over="ignore", invalid="ignore")  # a loss that is no number is looked for above
def forward_and_backward(model: Model, batch: Batch, smoothing: float) -> tuple[Loss, int]:
    """The loss of a batch, and the gradient of its mean over the tokens in every parameter."""
    model.zero_gradients()
    logits, backward = model(*batch.inputs)  # type: ignore[arg-type]
    right = batch.right[batch.asked]
    loss, back_loss = cross_entropy(logits[batch.asked], right, smoothing)
    d_logits = np.zeros_like(logits)  # stays 0 where nothing was asked: at padding
    d_logits[batch.asked] = back_loss() / len(right)
    backward(d_logits)
    return loss, len(right)


def check_train_config(config: TrainConfig) -> None:
    """There is one way of training here, the paper's, on the CPU. Anything else is named."""
    plain = {
        "epochs": (0.0,),
        "tokens": (0,),
        "minutes": (0.0,),
        "micro_batches": (1,),
        "ema": (0.0,),
        "average_checkpoints": (0,),
    }
    ways = {"optimizer": ("adam",), "schedule": ("noam",), "device": ("auto", "cpu"), "best_by": ("loss", "accuracy")}
    for name, known in {**ways, **plain, "precision": ("auto", "float32")}.items():
        value = getattr(config, name)
        if value not in known:
            raise ConfigError(
                f"engine 'numpy' knows train.{name} = {known[-1]!r}, and not {value!r}. Set it, or use engine 'torch'."
            )


def measure(model: Model, batches: Iterable[Batch]) -> tuple[float, float]:
    """On a whole set: the mean negative log-likelihood of the right tokens, and how often the likeliest is right."""
    nll, hits, tokens = 0.0, 0, 0
    for batch in batches:
        logits, _ = model(*batch.inputs)  # type: ignore[arg-type]
        asked, right = logits[batch.asked], batch.right[batch.asked]
        nll += cross_entropy(asked, right)[0].plain
        hits += int((asked.argmax(axis=-1) == right).sum())
        tokens += len(right)
    return nll / tokens, hits / tokens
