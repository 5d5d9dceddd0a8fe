"""Learning-rate schedules: pure functions of the step, counted from 1, and of the progress of the training.

rate = schedule(step, progress)         progress goes from 0 to 1, by steps, epochs, tokens or minutes
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Protocol

from cutaway.config import TrainConfig


class Schedule(Protocol):
    def __call__(self, step: int, progress: float = 0.0) -> float: ...


def noam(factor: float, d_model: int, warmup: int) -> Schedule:
    """lrate = factor · d_model^-0.5 · min(step^-0.5, step · warmup^-1.5)     (the paper, equation 3)

    It rises linearly for `warmup` steps, then falls with the inverse square root of the step.
    """
    return lambda step, progress=0.0: factor * d_model**-0.5 * min(step**-0.5, step * warmup**-1.5)


def inverse_sqrt(rate: float, warmup: int) -> Schedule:
    """The paper's shape with a given peak: linearly up to `rate`, then rate · sqrt(warmup / step)."""
    warmup = max(1, warmup)
    return lambda step, progress=0.0: rate * min(step / warmup, math.sqrt(warmup / step))


def cosine(rate: float, warmup: int, end: float = 0.0) -> Schedule:
    """Linearly up to `rate`, then down to `end` · rate along half a cosine (Loshchilov 2017)."""

    def at(step: int, progress: float = 0.0) -> float:
        if step < warmup:
            return rate * step / warmup
        return rate * (end + (1 - end) * 0.5 * (1 + math.cos(math.pi * progress_after_warmup(step, progress, warmup))))

    return at


def warmup_stable_decay(rate: float, warmup: int, decay: float, end: float = 0.0) -> Schedule:
    """Linearly up to `rate`, constant, and linearly down in the last fraction `decay` of the training (Hu et al. 2024).

    Unlike a cosine, it can be extended: before the decay starts, no rate depends on when the training ends.
    """

    def at(step: int, progress: float = 0.0) -> float:
        remaining = min(1.0, (1 - progress) / decay) if decay else 1.0
        return rate * min(1.0, step / max(1, warmup)) * (end + (1 - end) * remaining)

    return at


def constant(rate: float) -> Schedule:
    return lambda step, progress=0.0: rate


def progress_after_warmup(step: int, progress: float, warmup: int) -> float:
    """The progress since the end of the warmup, from 0 to 1.

    The warmup is counted in steps, the training perhaps in minutes. At a constant pace, the warmup ended at
    progress · warmup / step.
    """
    warmup_end = progress * warmup / step
    return (progress - warmup_end) / (1 - warmup_end) if warmup_end < 1 else 1.0


SCHEDULES: dict[str, Callable[[TrainConfig, int], Schedule]] = {
    "noam": lambda c, d_model: noam(c.lr, d_model, c.warmup),
    "inverse_sqrt": lambda c, d_model: inverse_sqrt(c.lr, c.warmup),
    "cosine": lambda c, d_model: cosine(c.lr, c.warmup, c.lr_end),
    "wsd": lambda c, d_model: warmup_stable_decay(c.lr, c.warmup, c.decay_fraction, c.lr_end),
    "constant": lambda c, d_model: constant(c.lr),
}


def make_schedule(config: TrainConfig, d_model: int) -> Schedule:
    return SCHEDULES[config.schedule](config, d_model)
