"""The residual connection around every sub-layer, and the places where the norm may stand in it.

    post (the paper)                          pre (most models since 2019)

    x ──┬──▶ f ──▶ dropout ──▶ + ──▶ norm     x ──┬──▶ norm ──▶ f ──▶ dropout ──▶ +
        └──────────────────────┘                  └───────────────────────────────┘

The norm itself is torch's, over the D numbers of each token, so that neither padding nor the rest of the batch counts:

    LayerNorm   (x - mean(x)) / sqrt(var(x) + ε) · weight + bias          (Ba et al. 2016, the paper)
    RMSNorm     x / sqrt(mean(x²) + ε) · weight                           (Zhang & Sennrich 2019; T5, Llama)

With post-norm each sub-layer's output is normed, so a stack ends normed. With pre-norm (and sandwich_norm.py) the
residual path is not normed, which lets gradients through, and the stack needs one more norm at its end. The setting
`model.norm_placement` chooses (the table NORM_PLACEMENTS in models/build.py).
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from cutaway.nn.dropout import Dropout
from cutaway.nn.probe import Probe

SubLayer = Callable[[Tensor], Tensor]
MakeNorm = Callable[[], nn.Module]


class Residual(nn.Module):
    """x plus what a sub-layer makes of it. Probes: `update` is what the sub-layer gives, `stream` what goes on."""

    ends_normed = False

    def __init__(self, make_norm: MakeNorm, dropout: float):
        super().__init__()
        self.norm = make_norm()
        self.dropout = Dropout(dropout)
        self.update, self.stream = Probe(), Probe()


class PostNorm(Residual):
    """norm(x + dropout(f(x)))"""

    ends_normed = True

    def forward(self, x: Tensor, sublayer: SubLayer) -> Tensor:
        return self.stream(self.norm(x + self.dropout(self.update(sublayer(x)))))


class PreNorm(Residual):
    """x + dropout(f(norm(x)))"""

    def forward(self, x: Tensor, sublayer: SubLayer) -> Tensor:
        return self.stream(x + self.dropout(self.update(sublayer(self.norm(x)))))
