"""The position-wise feed-forward network (the paper, section 3.3): applied to each token separately."""

from __future__ import annotations

from collections.abc import Callable

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
        """x [B,T,D] -> [B,T,D]. `is_token` is not used; it is there because `Experts` needs it."""
        hidden_BTF = self.hidden(self.activation(self.expand(x)))
        return self.contract(hidden_BTF)
