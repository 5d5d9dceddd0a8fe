"""Normalisation: keep the numbers of each token in a range that the next layer can work with."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class LayerNorm(nn.Module):
    """y = (x - mean(x)) / sqrt(var(x) + ε) · weight + bias, over the D numbers of each token (Ba et al. 2016).

    Unlike batch normalisation it looks at one token alone, so neither padding nor the rest of the batch matters.
    """

    def __init__(self, d_model: int, epsilon: float = 1e-5):
        super().__init__()
        self.epsilon = epsilon
        self.weight = nn.Parameter(torch.ones(d_model))
        self.bias = nn.Parameter(torch.zeros(d_model))

    def forward(self, x: Tensor) -> Tensor:
        return torch.layer_norm(x, self.weight.shape, self.weight, self.bias, self.epsilon)


class RMSNorm(nn.Module):
    """y = x / sqrt(mean(x²) + ε) · weight: no mean is taken off and none added (Zhang & Sennrich 2019; T5, Llama)."""

    def __init__(self, d_model: int, epsilon: float = 1e-5):
        super().__init__()
        self.epsilon = epsilon
        self.weight = nn.Parameter(torch.ones(d_model))

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, self.weight.shape, self.weight, self.epsilon)
