"""What a built model is made of, for those who treat its parts differently."""

from __future__ import annotations

from torch import nn

from cutaway.nn.experts import Experts
from cutaway.nn.layers import Stack


def get_layers(model: nn.Module) -> list[nn.Module]:
    """The layers of its encoder and its decoder, from the bottom up."""
    return [layer for part in model.modules() if isinstance(part, Stack) for layer in part.layers]


def has_experts(model: nn.Module) -> bool:
    return any(isinstance(part, Experts) for part in model.modules())


def copy_module_state(new: nn.Module, old: nn.Module) -> None:
    """Make `new` a module with all that `old` has: its parts and parameters, its settings, the hooks on it."""
    nn.Module.__init__(new)
    vars(new).update(vars(old))
    for name in ("_modules", "_parameters", "_buffers"):
        setattr(new, name, dict(getattr(old, name)))
