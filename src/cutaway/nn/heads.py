"""What stands at the end of a model and turns vectors into answers."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cutaway.nn.probe import Probe


class LanguageHead(nn.Module):
    """logits = x Wᵀ: how well each token of the vocabulary fits here.    [B,T,D] -> [B,T,V]

    Given the matrix of an embedding, it shares it: a token is likely where x points the way its embedding does.
    """

    def __init__(self, vocab_size: int, d_model: int, shared: nn.Parameter | None = None):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(vocab_size, d_model)) if shared is None else shared
        self.logits = Probe()

    def forward(self, x: Tensor) -> Tensor:
        return self.logits(F.linear(x, self.weight))
