"""Where a model runs."""

from __future__ import annotations

import torch

from cutaway.errors import ConfigError


def choose_device(name: str) -> torch.device:
    """ "auto" is CUDA where there is one, else the CPU; any other name is taken as it is, if it can be used here."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        return torch.empty(0, device=name).device
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0].rstrip(".")
        raise ConfigError(f"the device {name!r} cannot be used here: {reason}. Use 'auto' or 'cpu'.") from None
