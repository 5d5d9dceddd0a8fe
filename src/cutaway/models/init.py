"""Initialisation of the weights."""

from __future__ import annotations

import math

from torch import nn

from cutaway.nn.residual import Residual


def xavier(model: nn.Module) -> None:
    """Matrices uniform in ±sqrt(6 / (fan_in + fan_out)), biases zero (Glorot & Bengio 2010).

    So activations and gradients start with about the same variance in every layer. Norms keep torch's defaults.
    """
    for name, parameter in model.named_parameters():
        if parameter.dim() > 1:
            nn.init.xavier_uniform_(parameter)
        elif name.endswith("bias"):
            nn.init.zeros_(parameter)


def gpt2(model: nn.Module) -> None:
    """Matrices normal with standard deviation 0.02, biases zero (Radford et al. 2019).

    The last matrix of each sub-layer is divided by the square root of the number of sub-layers. So the sum of all their
    outputs at the end of the stack has the variance of one.
    """
    for name, parameter in model.named_parameters():
        if parameter.dim() > 1:
            is_last = name.endswith(("attention.output.weight", ".contract.weight"))
            nn.init.normal_(
                parameter, std=0.02 / math.sqrt(count_sublayers(model, name.split(".")[0])) if is_last else 0.02
            )
        elif name.endswith("bias"):
            nn.init.zeros_(parameter)


def count_sublayers(model: nn.Module, stack: str) -> int:
    return sum(isinstance(module, Residual) for module in model.get_submodule(stack).modules())
