"""Optimizers, from torch.optim. The learning rate is set anew at each step by the schedule."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch
from torch import nn

from cutaway.config import TrainConfig
from cutaway.models.parts import get_layers
from cutaway.models.weights import trainable_parameters
from cutaway.train.muon import Divided, Muon, undivided


def adam(model: nn.Module, config: TrainConfig) -> torch.optim.Optimizer:
    """Adam with the paper's β₁ = 0.9, β₂ = 0.98, ε = 1e-9 (section 5.3); the fused kernel updates all in one go."""
    betas = (config.beta1, config.beta2)
    return eager(torch.optim.Adam)(
        trainable_parameters(model).values(), lr=0.0, betas=betas, eps=config.epsilon, fused=True
    )


def adamw(model: nn.Module, config: TrainConfig) -> torch.optim.Optimizer:
    """Adam with weight decay apart from the gradient (Loshchilov & Hutter 2019), on matrices alone.

    Biases and norms have a size that means something; to pull them towards zero would only hurt.
    """
    matrices = [p for p in trainable_parameters(model).values() if p.dim() > 1]
    others = [p for p in trainable_parameters(model).values() if p.dim() <= 1]
    groups = [{"params": matrices, "weight_decay": config.weight_decay}, {"params": others, "weight_decay": 0.0}]
    betas = (config.beta1, config.beta2)
    return eager(torch.optim.AdamW)(groups, lr=0.0, betas=betas, eps=config.epsilon, fused=True)


def muon(model: nn.Module, config: TrainConfig, divided: Divided = undivided) -> torch.optim.Optimizer:
    """Muon on the matrices inside the layers, AdamW on all else.

    Muon is for matrices that turn one vector into another. The rows of embeddings and of the output are words, each
    seldom seen, and biases and norms are no matrices: they belong to AdamW.
    """
    inner = inner_matrices(model)
    rest = [p for p in trainable_parameters(model).values() if id(p) not in {id(q) for q in inner}]
    groups = [
        {"params": [p for p in rest if p.dim() > 1], "weight_decay": config.weight_decay},
        {"params": [p for p in rest if p.dim() <= 1], "weight_decay": 0.0},
    ]
    adam = eager(torch.optim.AdamW)(groups, lr=0.0, betas=(config.beta1, config.beta2), eps=config.epsilon, fused=True)
    if not inner:  # all of them frozen
        return adam
    orthogonal = eager(Muon)(inner, lr=0.0, momentum=config.momentum, weight_decay=config.weight_decay, divided=divided)
    return Several([orthogonal, adam])


def inner_matrices(model: nn.Module) -> list[nn.Parameter]:
    """The matrices of attention and feed-forward: those of linear maps inside the layers of a stack."""
    return [p for layer in get_layers(model) for p in trainable_parameters(layer).values() if p.dim() == 2]


class Several(torch.optim.Optimizer):
    """Several optimizers as one: each has its own parameters."""

    def __init__(self, inner: Sequence[torch.optim.Optimizer]):
        self.inner = inner
        self.defaults: dict[str, object] = {}

    @property
    def param_groups(self) -> list[dict[str, Any]]:  # type: ignore[override]
        return [group for one in self.inner for group in one.param_groups]

    @property
    def state(self) -> Any:  # type: ignore[override]
        return States(self.inner)

    def zero_grad(self, set_to_none: bool = True) -> None:
        for one in self.inner:
            one.zero_grad(set_to_none)

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for one in self.inner:
            one.step()


class States(dict[Any, Any]):
    """What each parameter's own optimizer knows about it."""

    def __init__(self, inner: Sequence[torch.optim.Optimizer]):
        super().__init__()
        self.of = {id(p): one.state for one in inner for group in one.param_groups for p in group["params"]}

    def __getitem__(self, parameter: Any) -> Any:
        return self.of[id(parameter)][parameter]

    def __setitem__(self, parameter: Any, value: Any) -> None:
        self.of[id(parameter)][parameter] = value


@cache
def eager(kind: type[torch.optim.Optimizer]) -> Callable[..., torch.optim.Optimizer]:
    """The same optimizer, without the wrappers by which torch prepares its methods for torch.compile.

    The first call of such a method imports torch._dynamo, which takes as long as importing torch itself, and nothing
    here compiles an optimizer. `inspect.unwrap` gives the plain methods back.
    """
    methods = {name: inspect.unwrap(getattr(kind, name)) for name in ("zero_grad", "add_param_group")}
    return type(kind.__name__, (kind,), {**methods, "step": torch.no_grad()(inspect.unwrap(kind.step))})


OPTIMIZERS: dict[str, Callable[[nn.Module, TrainConfig], torch.optim.Optimizer]] = {
    "adam": adam,
    "adamw": adamw,
    "muon": muon,
}


def make_optimizer(model: nn.Module, config: TrainConfig, divided: Divided = undivided) -> torch.optim.Optimizer:
    """`divided` shares work out among processes; Muon alone has so much of it that this pays."""
    if config.optimizer == "muon":
        return muon(model, config, divided)
    return OPTIMIZERS[config.optimizer](model, config)
