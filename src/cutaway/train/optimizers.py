"""Optimizers, from torch.optim. The schedule sets the learning rate at each step."""

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
from cutaway.nn.positions import Position
from cutaway.train.muon import MapRows, Muon, map_rows_locally


def adam(model: nn.Module, config: TrainConfig) -> torch.optim.Optimizer:
    """Adam with the paper's β₁ = 0.9, β₂ = 0.98, ε = 1e-9 (section 5.3)."""
    parameters = list(trainable_parameters(model).values())
    betas = (config.beta1, config.beta2)
    return eager(torch.optim.Adam)(parameters, lr=0.0, betas=betas, eps=config.epsilon, fused=can_fuse(parameters))


def adamw(model: nn.Module, config: TrainConfig) -> torch.optim.Optimizer:
    """Adam with decoupled weight decay (Loshchilov & Hutter 2019), for matrices only."""
    return adamw_for(list(trainable_parameters(model).values()), config)


def adamw_for(parameters: list[nn.Parameter], config: TrainConfig) -> torch.optim.Optimizer:
    # Biases and the scales of norms should not be pulled towards zero.
    groups = [
        {"params": [p for p in parameters if p.dim() > 1], "weight_decay": config.weight_decay},
        {"params": [p for p in parameters if p.dim() <= 1], "weight_decay": 0.0},
    ]
    betas = (config.beta1, config.beta2)
    return eager(torch.optim.AdamW)(groups, lr=0.0, betas=betas, eps=config.epsilon, fused=can_fuse(parameters))


def muon(model: nn.Module, config: TrainConfig, map_rows: MapRows = map_rows_locally) -> torch.optim.Optimizer:
    """Muon for the matrices inside the layers, AdamW for all other weights.

    Muon is for matrices that map a vector to a vector. Rows of embeddings and of the output matrix are words, most of
    them rare, and biases and norms are not matrices.
    """
    matrices = layer_matrices(model)
    in_layers = {id(matrix) for matrix in matrices}
    adam = adamw_for([p for p in trainable_parameters(model).values() if id(p) not in in_layers], config)
    if not matrices:  # all are frozen
        return adam
    settings = {"momentum": config.momentum, "weight_decay": config.weight_decay, "map_rows": map_rows}
    return CombinedOptimizer([eager(Muon)(matrices, lr=0.0, **settings), adam])


def layer_matrices(model: nn.Module) -> list[nn.Parameter]:
    """The matrices of attention and feed-forward, each once. Tables of position schemes are not among them."""
    modules = [m for layer in get_layers(model) for m in layer.modules() if not isinstance(m, Position)]
    own = {id(p): p for m in modules for p in m.parameters(recurse=False) if p.requires_grad and p.dim() == 2}
    return list(own.values())


def can_fuse(parameters: Sequence[nn.Parameter]) -> bool:
    """Whether torch has a reliable fused kernel, which updates all weights in one call. On MPS it has gaps."""
    return all(parameter.device.type in ("cpu", "cuda") for parameter in parameters)


class CombinedOptimizer(torch.optim.Optimizer):
    """Several optimizers with one interface. Each has other parameters."""

    def __init__(self, optimizers: Sequence[torch.optim.Optimizer]):
        self.optimizers = optimizers
        self.defaults: dict[str, object] = {}

    @property
    def param_groups(self) -> list[dict[str, Any]]:  # type: ignore[override]
        return [group for optimizer in self.optimizers for group in optimizer.param_groups]

    @property
    def state(self) -> Any:  # type: ignore[override]
        return CombinedState(self.optimizers)

    def zero_grad(self, set_to_none: bool = True) -> None:
        for optimizer in self.optimizers:
            optimizer.zero_grad(set_to_none)

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for optimizer in self.optimizers:
            optimizer.step()


class CombinedState(dict[Any, Any]):
    """The state of each parameter, in the optimizer that has the parameter."""

    def __init__(self, optimizers: Sequence[torch.optim.Optimizer]):
        super().__init__()
        self.states = {
            id(parameter): optimizer.state
            for optimizer in optimizers
            for group in optimizer.param_groups
            for parameter in group["params"]
        }

    def __getitem__(self, parameter: Any) -> Any:
        return self.states[id(parameter)][parameter]

    def __setitem__(self, parameter: Any, value: Any) -> None:
        self.states[id(parameter)][parameter] = value


@cache
def eager(cls: type[torch.optim.Optimizer]) -> Callable[..., torch.optim.Optimizer]:
    """The same optimizer without the wrappers that prepare its methods for torch.compile.

    The first call of a wrapped method imports torch._dynamo, which takes as long as importing torch, and we compile no
    optimizer. `inspect.unwrap` returns the plain methods.
    """
    methods = {name: inspect.unwrap(getattr(cls, name)) for name in ("zero_grad", "add_param_group")}
    return type(cls.__name__, (cls,), {**methods, "step": torch.no_grad()(inspect.unwrap(cls.step))})


OPTIMIZERS: dict[str, Callable[[nn.Module, TrainConfig], torch.optim.Optimizer]] = {
    "adam": adam,
    "adamw": adamw,
    "muon": muon,
}


def make_optimizer(
    model: nn.Module, config: TrainConfig, map_rows: MapRows = map_rows_locally
) -> torch.optim.Optimizer:
    """Create the optimizer of a recipe. `map_rows` divides Muon's work between processes; the others have little."""
    if config.optimizer == "muon":
        return muon(model, config, map_rows)
    return OPTIMIZERS[config.optimizer](model, config)
