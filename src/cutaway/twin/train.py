"""The training loop, on one screen."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from cutaway.config import TrainConfig
from cutaway.errors import Diverged
from cutaway.twin.batch import Batch
from cutaway.twin.model import Model
from cutaway.twin.ops import cross_entropy
from cutaway.twin.optim import Adam, clip_gradients, noam


class Step(NamedTuple):
    """What one step did; losses are a token's mean, `loss` with label smoothing and `nll` without."""

    step: int
    loss: float
    nll: float
    lr: float
    gradient_norm: float
    tokens: int


def train(model: Model, batches: Iterable[Batch], config: TrainConfig, d_model: int) -> Iterator[Step]:
    """Make the loss small, a step at a time: whoever iterates sees each step, and may look at the model in between."""
    adam = Adam(model, config.beta1, config.beta2, config.epsilon)
    draw = np.random.default_rng(config.seed)
    for step, batch in zip(range(1, config.steps + 1), batches, strict=False):
        model.drop_with(draw)
        model.forget_gradients()
        logits, backward = model(*batch.inputs)  # type: ignore[arg-type]
        right = batch.right[batch.asked]
        loss, back_loss = cross_entropy(logits[batch.asked], right, config.label_smoothing)
        d_logits = np.zeros_like(logits)
        d_logits[batch.asked] = back_loss() / len(right)
        if not math.isfinite(loss.smoothed):
            raise Diverged(f"the loss became {loss.smoothed} at step {step}. Lower train.lr or lengthen train.warmup.")
        backward(d_logits)
        gradient_norm = clip_gradients(adam.parameters, config.clip_norm)
        lr = noam(step, d_model, config.warmup, config.lr)
        adam.step(lr)
        model.drop_with(None)
        yield Step(step, loss.smoothed / len(right), loss.plain / len(right), lr, gradient_norm, len(right))


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
