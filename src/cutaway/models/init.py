"""How weights begin."""

from __future__ import annotations

from torch import nn


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
