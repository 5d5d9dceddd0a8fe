"""Activations that torch does not have as a function of one argument."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor


def relu_squared(x: Tensor) -> Tensor:
    """max(0, x)²    (Primer, So et al. 2021)"""
    return F.relu(x).square()


def gelu_tanh(x: Tensor) -> Tensor:
    """GELU by the approximation 0.5 x (1 + tanh(sqrt(2/π) (x + 0.044715 x³))), as in GPT-2."""
    return F.gelu(x, approximate="tanh")
