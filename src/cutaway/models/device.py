"""Choose the device that a model runs on."""

from __future__ import annotations

import os
import warnings

import torch

from cutaway.errors import ConfigError, CutawayWarning

# MPS has no float64. float16 would need gradient scaling, which PyTorch does not have there. int8 is for CPUs.
MPS_PRECISIONS = ("auto", "float32", "bfloat16")


def choose_device(name: str, precision: str = "float32") -> torch.device:
    """Return the device `name`. "auto" is CUDA, else Apple's MPS if it has this precision, else the CPU."""
    if name == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        if not torch.backends.mps.is_available() or precision not in MPS_PRECISIONS:
            return torch.device("cpu")
        device = torch.device("mps")
    else:
        device = open_device(name)
    if device.type == "mps":
        if precision not in MPS_PRECISIONS:
            raise ConfigError(f"the device {name!r} has no {precision}. Use the device 'cpu', or float32.")
        warn_of_mps_gaps()
    return device


def open_device(name: str) -> torch.device:
    """Return the device `name`, or raise an error if it cannot be used on this machine."""
    try:
        return torch.empty(0, device=name).device
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0].rstrip(".")
        raise ConfigError(f"the device {name!r} cannot be used here: {reason}. Use 'auto' or 'cpu'.") from None


def warn_of_mps_gaps() -> None:
    """PyTorch reads PYTORCH_ENABLE_MPS_FALLBACK when it is imported; cutaway/__init__.py sets it."""
    if os.environ.get("PYTORCH_ENABLE_MPS_FALLBACK") == "1":
        gaps = "Operations that it lacks run on the CPU"
    else:
        gaps = (
            "Operations that it lacks raise an error, unless PYTORCH_ENABLE_MPS_FALLBACK=1 is set before Python starts"
        )
    warnings.warn(
        f"the device is Apple's MPS. {gaps}. If something fails, use the device 'cpu'.",
        CutawayWarning,
        stacklevel=1,  # always this line, so that the notice is shown once
    )
