"""The position-wise feed-forward network: where each token, alone, thinks about what it has gathered."""

from __future__ import annotations

from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor, nn

from cutaway.nn.probe import Probe

Activation = Callable[[Tensor], Tensor]


class FeedForward(nn.Module):
    """FFN(x) = activation(x W₁ + b₁) W₂ + b₂    (the paper, equation 2, where the activation is max(0, ·))

    [B,T,D] -> [B,T,F] -> [B,T,D]
    """

    def __init__(self, d_model: int, d_ff: int, activation: Activation, bias: bool = True):
        super().__init__()
        self.expand = nn.Linear(d_model, d_ff, bias)
        self.contract = nn.Linear(d_ff, d_model, bias)
        self.activation = activation
        self.hidden = Probe()

    def forward(self, x: Tensor, is_token: Tensor | None = None) -> Tensor:
        """x [B,T,D] -> [B,T,D]. `is_token` [B,T] is for experts that count tokens; here each is alone anyway."""
        hidden_BTF = self.hidden(self.activation(self.expand(x)))
        return self.contract(hidden_BTF)


def relu_squared(x: Tensor) -> Tensor:
    """max(0, x)²    (Primer, So et al. 2021)"""
    return F.relu(x).square()


def gelu_tanh(x: Tensor) -> Tensor:
    """GELU by the approximation 0.5 x (1 + tanh(sqrt(2/π) (x + 0.044715 x³))), as GPT-2 has it."""
    return F.gelu(x, approximate="tanh")
