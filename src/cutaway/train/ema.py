"""Weights that follow the trained ones slowly: an exponential moving average (Polyak & Juditsky 1992).

    slow ← ema · slow + (1 - ema) · weights         after every step

The last steps of a training wander around a good place; their mean lies nearer to it than any of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from cutaway.models.weights import distribute_like, trainable_parameters


class Ema:
    def __init__(self, model: nn.Module, rate: float):
        self.rate, self.steps = rate, 0
        self.slow = {name: weight.detach().clone() for name, weight in trainable_parameters(model).items()}

    @torch.no_grad()
    def follow(self, model: nn.Module) -> None:
        """Early on it follows faster, so that the random weights of the beginning are soon forgotten."""
        self.steps += 1
        rate = min(self.rate, self.steps / (self.steps + 9))
        fast = trainable_parameters(model)
        torch._foreach_lerp_([self.slow[n] for n in fast], list(fast.values()), 1 - rate)

    @contextmanager
    def in_place_of(self, model: nn.Module) -> Iterator[None]:
        """The model with the slow weights, while the block runs."""
        self.exchange(model)
        try:
            yield
        finally:
            self.exchange(model)

    @torch.no_grad()
    def exchange(self, model: nn.Module) -> None:
        for name, weight in trainable_parameters(
            model
        ).items():  # in place: others may hold on to the tensors themselves
            fast = weight.clone()
            weight.copy_(self.slow[name])
            self.slow[name].copy_(fast)

    def state(self) -> dict[str, Tensor]:
        return {**self.slow, "steps": torch.tensor(self.steps)}

    @torch.no_grad()
    def load(self, state: dict[str, Tensor]) -> None:
        self.steps = int(state.pop("steps"))
        for name, value in state.items():
            self.slow[name].copy_(distribute_like(self.slow[name], value))
