"""Output heads and pooling: from the vectors of an encoder to logits or to one vector per text."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cutaway.nn.dropout import Dropout
from cutaway.nn.kernels import lowest
from cutaway.nn.probe import Probe


class MaskedLanguageHead(nn.Module):
    """logits = norm(gelu(x W₁ + b₁)) Wᵀ + b for the hidden tokens (BERT).    [B,T,D] -> [B,T,V]"""

    def __init__(self, vocab_size: int, d_model: int, norm: nn.Module, shared: nn.Parameter | None = None):
        super().__init__()
        self.transform = nn.Linear(d_model, d_model)
        self.norm = norm
        self.weight = nn.Parameter(torch.zeros(vocab_size, d_model)) if shared is None else shared
        self.bias = nn.Parameter(torch.zeros(vocab_size))
        self.logits = Probe()

    def forward(self, x: Tensor) -> Tensor:
        return self.logits(F.linear(self.norm(F.gelu(self.transform(x))), self.weight, self.bias))


class TagHead(nn.Module):
    """logits = x W + b: one class per token.    [B,T,D] -> [B,T,C]"""

    def __init__(self, n_classes: int, d_model: int, dropout: float = 0.0):
        super().__init__()
        self.dropout = Dropout(dropout)
        self.classify = nn.Linear(d_model, n_classes)
        self.logits = Probe()

    def forward(self, x: Tensor) -> Tensor:
        return self.logits(self.classify(self.dropout(x)))


class ClassHead(nn.Module):
    """logits = pool(x) W + b: one class per text or image.    [B,T,D] -> [B,C]"""

    def __init__(self, pool: nn.Module, n_classes: int, d_model: int, dropout: float = 0.0):
        super().__init__()
        self.pool = pool
        self.dropout = Dropout(dropout)
        self.classify = nn.Linear(d_model, n_classes)
        self.pooled, self.logits = Probe(), Probe()

    def forward(self, x: Tensor, is_token: Tensor | None = None) -> Tensor:
        """x [B,T,D], is_token [B,T] (None: no padding) -> [B,C]"""
        return self.logits(self.classify(self.dropout(self.pooled(self.pool(x, is_token)))))


class VectorHead(nn.Module):
    """pool(x): one vector per text, to compare texts.    [B,T,D] -> [B,D]"""

    def __init__(self, pool: nn.Module):
        super().__init__()
        self.pool = pool
        self.pooled = Probe()

    def forward(self, x: Tensor, is_token: Tensor | None = None) -> Tensor:
        return self.pooled(self.pool(x, is_token))


class FirstPool(nn.Module):
    """The vector of the first token: [CLS] of BERT, the class token of ViT."""

    def forward(self, x: Tensor, is_token: Tensor | None = None) -> Tensor:
        return x[:, 0]


class FirstTanhPool(nn.Module):
    """tanh(x₀ W + b) of the first token: the "pooler" of BERT."""

    def __init__(self, d_model: int):
        super().__init__()
        self.dense = nn.Linear(d_model, d_model)

    def forward(self, x: Tensor, is_token: Tensor | None = None) -> Tensor:
        return self.dense(x[:, 0]).tanh()


class MeanPool(nn.Module):
    """The mean over the tokens, without padding."""

    def forward(self, x: Tensor, is_token: Tensor | None = None) -> Tensor:
        if is_token is None:
            return x.mean(dim=1)
        return (x * is_token[..., None]).sum(dim=1) / is_token.sum(dim=1, keepdim=True).clamp(min=1)


class MaxPool(nn.Module):
    """The maximum of each of the D numbers over the tokens, without padding."""

    def forward(self, x: Tensor, is_token: Tensor | None = None) -> Tensor:
        return (x if is_token is None else x.masked_fill(~is_token[..., None], lowest(x))).amax(dim=1)


class AttentionPool(nn.Module):
    """Σ softmax(x w)_t · x_t: a weighted mean with a learned query w (Lin et al. 2017, with one row)."""

    def __init__(self, d_model: int):
        super().__init__()
        self.question = nn.Linear(d_model, 1, bias=False)
        self.weights = Probe()

    def forward(self, x: Tensor, is_token: Tensor | None = None) -> Tensor:
        scores_BT = self.question(x)[..., 0]
        if is_token is not None:
            scores_BT = scores_BT.masked_fill(~is_token, lowest(scores_BT))
        return (self.weights(scores_BT.softmax(dim=1))[..., None] * x).sum(dim=1)
