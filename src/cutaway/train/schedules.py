"""Learning-rate schedules: pure functions of the step, which counts from 1, and of how much of the training is done.

rate = schedule(step, done)         done goes from 0 to 1: steps, epochs, tokens or minutes, whatever was set
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Protocol

from cutaway.config import TrainConfig


class Schedule(Protocol):
    def __call__(self, step: int, done: float = 0.0) -> float: ...


def noam(factor: float, d_model: int, warmup: int) -> Schedule:
    """lrate = factor · d_model^-0.5 · min(step^-0.5, step · warmup^-1.5)     (the paper, equation 3)

    It climbs in a straight line for `warmup` steps, then falls with the inverse square root of the step.
    """
    return lambda step, done=0.0: factor * d_model**-0.5 * min(step**-0.5, step * warmup**-1.5)


def inverse_sqrt(rate: float, warmup: int) -> Schedule:
    """The paper's shape, named by its peak: up to `rate` in a straight line, then rate · sqrt(warmup / step)."""
    warmup = max(1, warmup)
    return lambda step, done=0.0: rate * min(step / warmup, math.sqrt(warmup / step))


def cosine(rate: float, warmup: int, end: float = 0.0) -> Schedule:
    """Up to `rate` in a straight line, then down to `end` of it along half a cosine, at the end (Loshchilov 2017)."""

    def at(step: int, done: float = 0.0) -> float:
        if step < warmup:
            return rate * step / warmup
        return rate * (end + (1 - end) * 0.5 * (1 + math.cos(math.pi * after_warmup(step, done, warmup))))

    return at


def warmup_stable_decay(rate: float, warmup: int, decay: float, end: float = 0.0) -> Schedule:
    """Up to `rate`, there it stays, and over the last share `decay` of the training straight down (Hu et al. 2024).

    Unlike a cosine, it can be prolonged: until the decay begins, nothing depends on when the end will be.
    """

    def at(step: int, done: float = 0.0) -> float:
        left = min(1.0, (1 - done) / decay) if decay else 1.0
        return rate * min(1.0, step / max(1, warmup)) * (end + (1 - end) * left)

    return at


def constant(rate: float) -> Schedule:
    return lambda step, done=0.0: rate


def after_warmup(step: int, done: float, warmup: int) -> float:
    """How much is done of what comes after the warmup.

    The warmup is counted in steps and the training perhaps in minutes; but at this pace it took `done · warmup / step`.
    """
    at_warmup = done * warmup / step
    return (done - at_warmup) / (1 - at_warmup) if at_warmup < 1 else 1.0


SCHEDULES: dict[str, Callable[[TrainConfig, int], Schedule]] = {
    "noam": lambda c, d_model: noam(c.lr, d_model, c.warmup),
    "inverse_sqrt": lambda c, d_model: inverse_sqrt(c.lr, c.warmup),
    "cosine": lambda c, d_model: cosine(c.lr, c.warmup, c.lr_end),
    "wsd": lambda c, d_model: warmup_stable_decay(c.lr, c.warmup, c.decay_fraction, c.lr_end),
    "constant": lambda c, d_model: constant(c.lr),
}


def make_schedule(config: TrainConfig, d_model: int) -> Schedule:
    return SCHEDULES[config.schedule](config, d_model)
