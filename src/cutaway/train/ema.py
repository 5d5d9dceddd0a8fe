"""An exponential moving average (EMA) of the weights (Polyak & Juditsky 1992).

    average ← decay · average + (1 - decay) · weights         after every step

The last steps of a training move around a minimum. Their mean is nearer to it than any single step.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from cutaway.models.weights import distribute_like, trainable_parameters


class Ema:
    def __init__(self, model: nn.Module, decay: float):
        self.decay, self.steps = decay, 0
        self.averages = {name: weight.detach().clone() for name, weight in trainable_parameters(model).items()}

    @torch.no_grad()
    def update(self, model: nn.Module) -> None:
        """Add the weights of this step. The decay is smaller at first, so that the random start is soon forgotten."""
        self.steps += 1
        decay = min(self.decay, self.steps / (self.steps + 9))
        weights = trainable_parameters(model)
        torch._foreach_lerp_([self.averages[name] for name in weights], list(weights.values()), 1 - decay)

    @contextmanager
    def apply_to(self, model: nn.Module) -> Iterator[None]:
        """A context in which the model has the averaged weights."""
        self.swap(model)
        try:
            yield
        finally:
            self.swap(model)

    @torch.no_grad()
    def swap(self, model: nn.Module) -> None:
        """Exchange the weights and their averages. In place, because other objects refer to the same tensors."""
        for name, weight in trainable_parameters(model).items():
            before = weight.clone()
            weight.copy_(self.averages[name])
            self.averages[name].copy_(before)

    def state(self) -> dict[str, Tensor]:
        return {**self.averages, "steps": torch.tensor(self.steps)}

    @torch.no_grad()
    def load(self, state: dict[str, Tensor]) -> None:
        self.steps = int(state.pop("steps"))
        for name, value in state.items():
            self.averages[name].copy_(distribute_like(self.averages[name], value))
