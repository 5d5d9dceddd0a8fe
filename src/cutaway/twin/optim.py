"""Adam, the paper's learning rate schedule, and gradient clipping."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from cutaway.twin.modules import Module, Parameter
from cutaway.twin.ops import Array


class Adam:
    """Adam (Kingma & Ba 2015): a separate step size for each number, from two moving averages of its gradient g.

        m ← β₁ m + (1 - β₁) g        the mean of g
        v ← β₂ v + (1 - β₂) g²       the mean of g²
        p ← p - lrate · m̂ / (sqrt(v̂) + ε),    m̂ = m / (1 - β₁ᵗ),  v̂ = v / (1 - β₂ᵗ)

    m and v start at 0, so they are too small in the first steps. Dividing by 1 - βᵗ corrects this.
    """

    def __init__(self, model: Module, beta1: float = 0.9, beta2: float = 0.98, epsilon: float = 1e-9):
        self.parameters = model.parameters()
        self.beta1, self.beta2, self.epsilon = beta1, beta2, epsilon
        self.m = {name: np.zeros_like(p.value) for name, p in self.parameters.items()}
        self.v = {name: np.zeros_like(p.value) for name, p in self.parameters.items()}
        self.t = 0

    def step(self, lrate: float) -> None:
        self.t += 1
        correction_m, correction_v = 1 - self.beta1**self.t, 1 - self.beta2**self.t
        for name, parameter in self.parameters.items():
            if (g := parameter.gradient) is None:
                continue
            m, v = self.m[name], self.v[name]
            m += (1 - self.beta1) * (g - m)  # β₁ m + (1 - β₁) g, in place
            v += (1 - self.beta2) * (g * g - v)
            parameter.value -= lrate / correction_m * m / (np.sqrt(v / correction_v) + self.epsilon)


def noam(step: int, d_model: int, warmup: int, factor: float = 1.0) -> float:
    """lrate = factor · d_model^-0.5 · min(step^-0.5, step · warmup^-1.5)     (the paper, equation 3)

    It rises linearly during the warm-up, then falls with the square root of the step.
    """
    return float(factor * d_model**-0.5 * min(step**-0.5, step * warmup**-1.5))


def clip_gradients(parameters: Mapping[str, Parameter], limit: float) -> float:
    """Scale all gradients down if their joint norm is above `limit` (0: never). Return the norm before scaling."""
    gradients: list[Array] = [p.gradient for p in parameters.values() if p.gradient is not None]
    norm = math.sqrt(sum(float(np.vdot(g, g)) for g in gradients))
    scale = limit / (norm + 1e-6)  # the same small term as in PyTorch
    if limit and scale < 1:
        for g in gradients:
            g *= scale
    return norm
