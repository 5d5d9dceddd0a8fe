"""A feed-forward network with a gate."""

from __future__ import annotations

from torch import Tensor, nn

from cutaway.nn.feedforward import Activation
from cutaway.nn.probe import Probe


class GatedFeedForward(nn.Module):
    """FFN(x) = (activation(x W) ⊙ x V) W₂    (Shazeer 2020)

    SwiGLU uses the activation SiLU, x · sigmoid(x); GEGLU uses GELU. With 2/3 of the hidden width F, it
    costs as much as `FeedForward`.
    """

    def __init__(self, d_model: int, d_ff: int, activation: Activation, bias: bool = True):
        super().__init__()
        self.gate = nn.Linear(d_model, d_ff, bias)
        self.expand = nn.Linear(d_model, d_ff, bias)
        self.contract = nn.Linear(d_ff, d_model, bias)
        self.activation = activation
        self.hidden = Probe()

    def forward(self, x: Tensor, is_token: Tensor | None = None) -> Tensor:
        hidden_BTF = self.hidden(self.activation(self.gate(x)) * self.expand(x))
        return self.contract(hidden_BTF)
