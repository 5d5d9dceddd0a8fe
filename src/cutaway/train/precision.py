"""In which precision a step computes, and whether torch.compile prepares it: what pays depends on the hardware.

                    precision = "auto"                              compile = "auto"
    CUDA            bfloat16, or float16 where that is missing      yes
    elsewhere       float32                                         no (on two AVX2 cores it gained nothing)

With bfloat16 and float16 the weights and the optimizer stay in float32, and only products are computed in half the
bits (`torch.autocast`). float16 has a narrow range, so its loss is scaled up and its gradients down again.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from cutaway.config import TrainConfig
from cutaway.errors import ConfigError


class Precision:
    """How one training computes."""

    def __init__(self, config: TrainConfig, device: torch.device):
        self.name = chosen(config.precision, device)
        self.device = device
        self.scaler = torch.amp.GradScaler(device.type) if self.name == "float16" else None

    def computing(self) -> AbstractContextManager[Any]:
        """Around the forward pass."""
        if self.name in ("float32", "float64"):
            return nullcontext()
        return torch.autocast(self.device.type, dtype=getattr(torch, self.name))

    def backward(self, loss: Tensor) -> None:
        (self.scaler.scale(loss) if self.scaler else loss).backward()

    def unscale(self, optimizer: torch.optim.Optimizer) -> None:
        """Before the gradients are looked at."""
        if self.scaler:
            self.scaler.unscale_(optimizer)

    def after_step(self) -> None:
        """Whether it was taken or skipped: a scale that was too large for float16 becomes smaller, and else larger."""
        if self.scaler:
            self.scaler.update()


def chosen(precision: str, device: torch.device) -> str:
    if precision == "auto":
        if device.type != "cuda":
            return "float32"
        return "bfloat16" if torch.cuda.is_bf16_supported() else "float16"
    if precision == "float16" and device.type == "cpu":
        raise ConfigError("train.precision = 'float16' is for GPUs. On a CPU use 'float32', or 'bfloat16'.")
    return precision


def compiled(model: nn.Module, config: TrainConfig, device: torch.device) -> nn.Module:
    """The model to compute with. Its weights are those of the model that was given."""
    wanted = config.compile == "yes" or (config.compile == "auto" and device.type == "cuda")
    return torch.compile(model, dynamic=True) if wanted else model  # type: ignore[return-value]
