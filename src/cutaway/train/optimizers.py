"""Optimizers, from torch.optim. The learning rate is set anew at each step by the schedule."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from cutaway.config import TrainConfig


def adam(model: nn.Module, config: TrainConfig) -> torch.optim.Optimizer:
    """Adam with the paper's β₁ = 0.9, β₂ = 0.98, ε = 1e-9 (section 5.3); the fused kernel updates all in one go."""
    betas = (config.beta1, config.beta2)
    return torch.optim.Adam(model.parameters(), lr=0.0, betas=betas, eps=config.epsilon, fused=True)


OPTIMIZERS: dict[str, Callable[[nn.Module, TrainConfig], torch.optim.Optimizer]] = {"adam": adam}


def make_optimizer(model: nn.Module, config: TrainConfig) -> torch.optim.Optimizer:
    return OPTIMIZERS[config.optimizer](model, config)
