"""The residual connection around each sub-layer, and where its norm is.

    post (the paper)                          pre (most models since 2019)

    x ──┬──▶ f ──▶ dropout ──▶ + ──▶ norm     x ──┬──▶ norm ──▶ f ──▶ dropout ──▶ +
        └──────────────────────┘                  └───────────────────────────────┘

The norm is torch's. It works on the D numbers of each token separately:

    LayerNorm   (x - mean(x)) / sqrt(var(x) + ε) · weight + bias          (Ba et al. 2016, the paper)
    RMSNorm     x / sqrt(mean(x²) + ε) · weight                           (Zhang & Sennrich 2019; T5, Llama)

With post-norm, the output of each layer is normed. With pre-norm (and sandwich_norm.py), no norm is on the residual
path, so gradients pass unchanged, and the stack needs a final norm. The setting is `model.norm_placement` (table
NORM_PLACEMENTS in models/build.py).
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from cutaway.nn.dropout import Dropout
from cutaway.nn.probe import Probe

SubLayer = Callable[[Tensor], Tensor]
MakeNorm = Callable[[], nn.Module]


class Residual(nn.Module):
    """The base class. Probes: `update`, the output of the sub-layer; `stream`, the residual stream after it."""

    has_normed_output = False

    def __init__(self, make_norm: MakeNorm, dropout: float):
        super().__init__()
        self.norm = make_norm()
        self.dropout = Dropout(dropout)
        self.update, self.stream = Probe(), Probe()


class PostNorm(Residual):
    """norm(x + dropout(f(x)))"""

    has_normed_output = True

    def forward(self, x: Tensor, sublayer: SubLayer) -> Tensor:
        return self.stream(self.norm(x + self.dropout(self.update(sublayer(x)))))


class PreNorm(Residual):
    """x + dropout(f(norm(x)))"""

    def forward(self, x: Tensor, sublayer: SubLayer) -> Tensor:
        return self.stream(x + self.dropout(self.update(sublayer(self.norm(x)))))
