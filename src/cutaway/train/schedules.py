"""Learning-rate schedules: pure functions of the step, which counts from 1."""

from __future__ import annotations

import math
from collections.abc import Callable

from cutaway.config import TrainConfig

Schedule = Callable[[int], float]


def noam(factor: float, d_model: int, warmup: int) -> Schedule:
    """lrate = factor · d_model^-0.5 · min(step^-0.5, step · warmup^-1.5)     (the paper, equation 3)

    It climbs in a straight line for `warmup` steps, then falls with the inverse square root of the step.
    """
    return lambda step: factor * d_model**-0.5 * min(step**-0.5, step * warmup**-1.5)


def cosine(rate: float, warmup: int, steps: int) -> Schedule:
    """Up to `rate` in a straight line, then down to nothing along half a cosine, at the last step (Loshchilov 2017)."""

    def at(step: int) -> float:
        if step < warmup:
            return rate * step / warmup
        return rate * 0.5 * (1 + math.cos(math.pi * (step - warmup) / max(1, steps - warmup)))

    return at


def constant(rate: float) -> Schedule:
    return lambda step: rate


SCHEDULES: dict[str, Callable[[TrainConfig, int], Schedule]] = {
    "noam": lambda c, d_model: noam(c.lr, d_model, c.warmup),
    "cosine": lambda c, d_model: cosine(c.lr, c.warmup, c.steps),
    "constant": lambda c, d_model: constant(c.lr),
}


def make_schedule(config: TrainConfig, d_model: int) -> Schedule:
    return SCHEDULES[config.schedule](config, d_model)
