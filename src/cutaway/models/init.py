"""How weights begin."""

from __future__ import annotations

import math

from torch import nn

from cutaway.nn.residual import Residual


def xavier(model: nn.Module) -> None:
    """Every matrix uniform in ±sqrt(6 / (fan_in + fan_out)), every bias zero (Glorot & Bengio 2010).

    Forward and backward then begin with about the same spread in every layer. Norms keep the ones and zeros
    that they were made with.
    """
    for name, parameter in model.named_parameters():
        if parameter.dim() > 1:
            nn.init.xavier_uniform_(parameter)
        elif name.endswith("bias"):
            nn.init.zeros_(parameter)


def gpt2(model: nn.Module) -> None:
    """Every matrix normal with a spread of 0.02, every bias zero (Radford et al. 2019).

    What writes into the residual path begins smaller, by the square root of the number of sub-layers that do: so at the
    end of the stack the sum of all of them has the spread of one.
    """
    for name, parameter in model.named_parameters():
        if parameter.dim() > 1:
            writes = name.endswith(("attention.output.weight", ".contract.weight"))
            nn.init.normal_(
                parameter, std=0.02 / math.sqrt(count_sublayers(model, name.split(".")[0])) if writes else 0.02
            )
        elif name.endswith("bias"):
            nn.init.zeros_(parameter)


def count_sublayers(model: nn.Module, stack: str) -> int:
    return sum(isinstance(module, Residual) for module in model.get_submodule(stack).modules())
