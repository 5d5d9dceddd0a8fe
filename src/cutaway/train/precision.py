"""The number format of a step, and torch.compile. The best choice depends on the hardware.

                    precision = "auto"                              compile = "auto"
    CUDA            bfloat16, or float16 on GPUs without it         yes
    MPS, CPU        float32                                         no (on two AVX2 cores it was not faster)

With bfloat16 and float16, weights and optimizer state stay in float32; only matrix products use 16 bits
(`torch.autocast`). float16 has a narrow range, so the loss is scaled up and the gradients are scaled down again.
"""

from __future__ import annotations

import warnings
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from cutaway.config import TrainConfig
from cutaway.errors import ConfigError, CutawayWarning


class Precision:
    """The number format of one training."""

    def __init__(self, config: TrainConfig, device: torch.device):
        self.name = choose_precision(config.precision, device)
        self.device = device
        self.scaler = torch.amp.GradScaler(device.type) if self.name == "float16" else None

    def autocast(self) -> AbstractContextManager[Any]:
        """A context for the forward pass."""
        if self.name in ("float32", "float64"):
            return nullcontext()
        return torch.autocast(self.device.type, dtype=getattr(torch, self.name))

    def backward(self, loss: Tensor) -> None:
        (self.scaler.scale(loss) if self.scaler else loss).backward()

    def unscale(self, optimizer: torch.optim.Optimizer) -> None:
        """Undo the scaling of the gradients, before they are clipped."""
        if self.scaler:
            self.scaler.unscale_(optimizer)

    def after_step(self) -> None:
        """Lower the scale if a gradient overflowed; raise it from time to time if none did."""
        if self.scaler:
            self.scaler.update()


def choose_precision(precision: str, device: torch.device) -> str:
    if precision == "auto":
        if device.type != "cuda":
            return "float32"
        return "bfloat16" if torch.cuda.is_bf16_supported() else "float16"
    if precision == "float16" and device.type != "cuda":
        raise ConfigError(
            f"train.precision = 'float16' is for CUDA, and the device is {str(device)!r}. Use 'float32' or 'bfloat16'."
        )
    return precision


def compile_model(model: nn.Module, config: TrainConfig, device: torch.device) -> nn.Module:
    """Return the module to call in training: compiled if it is worth it, with the same weights."""
    if config.compile == "yes" and device.type == "mps":
        warnings.warn(
            "train.compile = 'yes': torch.compile is experimental on MPS. If it fails, use compile = 'no'.",
            CutawayWarning,
            stacklevel=1,
        )
    is_compiled = config.compile == "yes" or (config.compile == "auto" and device.type == "cuda")
    return torch.compile(model, dynamic=True) if is_compiled else model  # type: ignore[return-value]
