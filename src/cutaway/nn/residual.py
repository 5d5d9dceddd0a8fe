"""The residual connection around every sub-layer. Pre- or post-norm is decided here and nowhere else.

    post (the paper)                          pre (most models since 2019)

    x ──┬──▶ f ──▶ dropout ──▶ + ──▶ norm     x ──┬──▶ norm ──▶ f ──▶ dropout ──▶ +
        └──────────────────────┘                  └───────────────────────────────┘

With post-norm each sub-layer's output is normed, so a stack ends normed. With pre-norm the residual path is
never normed, which lets gradients through unhindered, and the stack needs one more norm at its end.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from cutaway.nn.probe import Probe

SubLayer = Callable[[Tensor], Tensor]


class Residual(nn.Module):
    """x plus what a sub-layer makes of it. Probes: `update` is what the sub-layer gives, `stream` what goes on."""

    ends_normed: bool

    def __init__(self, norm: nn.Module, dropout: float):
        super().__init__()
        self.norm = norm
        self.dropout = nn.Dropout(dropout)
        self.update, self.stream = Probe(), Probe()


class PostNorm(Residual):
    """norm(x + dropout(f(x)))"""

    ends_normed = True

    def forward(self, x: Tensor, sublayer: SubLayer) -> Tensor:
        return self.stream(self.norm(x + self.dropout(self.update(sublayer(x)))))


class PreNorm(Residual):
    """x + dropout(f(norm(x)))"""

    ends_normed = False

    def forward(self, x: Tensor, sublayer: SubLayer) -> Tensor:
        return self.stream(x + self.dropout(self.update(sublayer(self.norm(x)))))
