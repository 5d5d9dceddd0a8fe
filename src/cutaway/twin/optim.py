"""From gradients to new weights: Adam, the paper's schedule, clipping."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from cutaway.twin.modules import Module, Parameter
from cutaway.twin.ops import Array


class Adam:
    """Every number has a step size of its own (Kingma & Ba 2015), by two running means of its gradient g:

        m ← β₁ m + (1 - β₁) g        which way it points
        v ← β₂ v + (1 - β₂) g²       how large it usually is
        p ← p - lrate · m̂ / (sqrt(v̂) + ε),    m̂ = m / (1 - β₁ᵗ),  v̂ = v / (1 - β₂ᵗ)

    m and v begin at 0 and are too small at first; after t steps they hold only a share 1 - βᵗ of what they should.
    """

    def __init__(self, model: Module, beta1: float = 0.9, beta2: float = 0.98, epsilon: float = 1e-9):
        self.parameters = model.parameters()
        self.beta1, self.beta2, self.epsilon = beta1, beta2, epsilon
        self.m = {name: np.zeros_like(p.value) for name, p in self.parameters.items()}
        self.v = {name: np.zeros_like(p.value) for name, p in self.parameters.items()}
        self.t = 0

    def step(self, lrate: float) -> None:
        self.t += 1
        complete_m, complete_v = 1 - self.beta1**self.t, 1 - self.beta2**self.t
        for name, parameter in self.parameters.items():
            if (g := parameter.gradient) is None:
                continue
            m, v = self.m[name], self.v[name]
            m += (1 - self.beta1) * (g - m)  # β₁ m + (1 - β₁) g, in place
            v += (1 - self.beta2) * (g * g - v)
            parameter.value -= lrate / complete_m * m / (np.sqrt(v / complete_v) + self.epsilon)


def noam(step: int, d_model: int, warmup: int, factor: float = 1.0) -> float:
    """lrate = factor · d_model^-0.5 · min(step^-0.5, step · warmup^-1.5)     (the paper, equation 3)

    Up in a straight line while Adam's means are still filling, then down with the square root of the step.
    """
    return float(factor * d_model**-0.5 * min(step**-0.5, step * warmup**-1.5))


def clip_gradients(parameters: Mapping[str, Parameter], limit: float) -> float:
    """Scale all gradients down together if their joint length is above `limit` (0: never). Returns that length."""
    gradients: list[Array] = [p.gradient for p in parameters.values() if p.gradient is not None]
    length = math.sqrt(sum(float(np.vdot(g, g)) for g in gradients))
    scale = limit / (length + 1e-6)  # a little more than the length, as PyTorch has it
    if limit and scale < 1:
        for g in gradients:
            g *= scale
    return length
