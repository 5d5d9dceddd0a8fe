"""A norm before the sub-layer and another one after it, both inside the residual branch.

    x ──┬──▶ norm ──▶ f ──▶ norm ──▶ dropout ──▶ +
        └────────────────────────────────────────┘

No norm is on the residual path (see residual.py).
"""

from __future__ import annotations

from torch import Tensor

from cutaway.nn.residual import MakeNorm, Residual, SubLayer


class SandwichNorm(Residual):
    """x + dropout(norm₂(f(norm(x)))), which bounds the output of each sub-layer (CogView, Ding et al. 2021)"""

    def __init__(self, make_norm: MakeNorm, dropout: float):
        super().__init__(make_norm, dropout)
        self.norm_after = make_norm()

    def forward(self, x: Tensor, sublayer: SubLayer) -> Tensor:
        return self.stream(x + self.dropout(self.update(self.norm_after(sublayer(self.norm(x))))))
