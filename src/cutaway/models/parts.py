"""Find and copy the parts of a built model."""

from __future__ import annotations

from torch import nn

from cutaway.nn.experts import Experts
from cutaway.nn.layers import Stack


def get_layers(model: nn.Module) -> list[nn.Module]:
    """The layers of encoder and decoder, in order."""
    return [layer for part in model.modules() if isinstance(part, Stack) for layer in part.layers]


def has_experts(model: nn.Module) -> bool:
    return any(isinstance(part, Experts) for part in model.modules())


def copy_module_state(new: nn.Module, old: nn.Module) -> None:
    """Give `new` the attributes of `old`: sub-modules, parameters, settings and hooks, shared, not copied."""
    nn.Module.__init__(new)
    vars(new).update(vars(old))
    for name in ("_modules", "_parameters", "_buffers"):
        setattr(new, name, dict(getattr(old, name)))
