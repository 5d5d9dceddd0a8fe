"""Optimizers, from torch.optim. The learning rate is set anew at each step by the schedule."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cache

import torch
from torch import nn

from cutaway.config import TrainConfig


def adam(model: nn.Module, config: TrainConfig) -> torch.optim.Optimizer:
    """Adam with the paper's β₁ = 0.9, β₂ = 0.98, ε = 1e-9 (section 5.3); the fused kernel updates all in one go."""
    betas = (config.beta1, config.beta2)
    return eager(torch.optim.Adam)(model.parameters(), lr=0.0, betas=betas, eps=config.epsilon, fused=True)


def adamw(model: nn.Module, config: TrainConfig) -> torch.optim.Optimizer:
    """Adam with weight decay apart from the gradient (Loshchilov & Hutter 2019), on matrices alone.

    Biases and norms have a size that means something; to pull them towards zero would only hurt.
    """
    matrices = [p for p in model.parameters() if p.dim() > 1]
    others = [p for p in model.parameters() if p.dim() <= 1]
    groups = [{"params": matrices, "weight_decay": config.weight_decay}, {"params": others, "weight_decay": 0.0}]
    betas = (config.beta1, config.beta2)
    return eager(torch.optim.AdamW)(groups, lr=0.0, betas=betas, eps=config.epsilon, fused=True)


@cache
def eager(kind: type[torch.optim.Optimizer]) -> Callable[..., torch.optim.Optimizer]:
    """The same optimizer, without the wrappers by which torch prepares its methods for torch.compile.

    The first call of such a method imports torch._dynamo, which takes as long as importing torch itself, and nothing
    here compiles an optimizer. `inspect.unwrap` gives the plain methods back.
    """
    methods = {name: inspect.unwrap(getattr(kind, name)) for name in ("zero_grad", "add_param_group")}
    return type(kind.__name__, (kind,), {**methods, "step": torch.no_grad()(inspect.unwrap(kind.step))})


OPTIMIZERS: dict[str, Callable[[nn.Module, TrainConfig], torch.optim.Optimizer]] = {"adam": adam, "adamw": adamw}


def make_optimizer(model: nn.Module, config: TrainConfig) -> torch.optim.Optimizer:
    return OPTIMIZERS[config.optimizer](model, config)
