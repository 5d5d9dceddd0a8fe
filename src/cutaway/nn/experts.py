"""A mixture of experts: many feed-forward networks, and a router that picks k for each token (Shazeer et al. 2017).

                   ┌─▶ expert 0 ─┐ · p₀
x ──▶ router ──▶ top k           ├──▶ +        many parameters, but the cost of only k experts
                   └─▶ expert 3 ─┘ · p₃
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from cutaway.nn.probe import Probe


class Experts(nn.Module):
    """y = Σ p_i · expert_i(x) over the k experts with the largest router logits,    p = softmax of these k logits

    Probes: `router`, the probabilities of all experts [B,T,N]; `load`, the share of tokens of each expert [N];
    `balance`, the loss that keeps these shares equal.

    `capacity` above 0 limits each expert, in training only, to the first capacity · k · tokens / N tokens routed to it.
    The others get no output from it. This bounds the cost, but a token's output then depends on the rest of the batch.
    """

    def __init__(self, experts: Sequence[nn.Module], d_model: int, experts_per_token: int = 2, capacity: float = 0.0):
        super().__init__()
        self.experts = nn.ModuleList(experts)
        self.route = nn.Linear(d_model, len(experts), bias=False)
        self.experts_per_token, self.capacity = experts_per_token, capacity
        self.router, self.load, self.balance = Probe(), Probe(), Probe()

    def forward(self, x: Tensor, is_token: Tensor | None = None) -> Tensor:
        """x [B,T,D], is_token [B,T] (False: padding, which no expert computes) -> [B,T,D]"""
        logits_BTN = self.route(x)
        top_BTk, chosen_BTk = logits_BTN.topk(self.experts_per_token, dim=-1)
        self.record_routing(logits_BTN, chosen_BTk, is_token)
        flat_ND, weight_Nk, chosen_Nk = x.flatten(0, 1), top_BTk.softmax(-1).flatten(0, 1), chosen_BTk.flatten(0, 1)
        if is_token is not None:  # padding uses no expert and no capacity
            chosen_Nk = chosen_Nk.masked_fill(~is_token.flatten()[:, None], -1)
        y_ND, limit = torch.zeros_like(flat_ND), self.limit(len(flat_ND) if is_token is None else int(is_token.sum()))
        for i, expert in enumerate(self.experts):
            rows, ranks = (chosen_Nk == i).nonzero(as_tuple=True)
            rows, ranks = rows[:limit], ranks[:limit]
            if len(rows):
                y_ND = y_ND.index_add(0, rows, weight_Nk[rows, ranks, None] * expert(flat_ND[rows]))
        return y_ND.view_as(x)

    def limit(self, tokens: int) -> int | None:
        if not (self.capacity and self.training):
            return None
        return math.ceil(self.capacity * self.experts_per_token * tokens / len(self.experts))

    def record_routing(self, logits_BTN: Tensor, chosen_BTk: Tensor, is_token: Tensor | None) -> None:
        """Compute the values of the probes, if any of them is watched."""
        if not any(probe.is_watched for probe in (self.router, self.load, self.balance)):
            return
        p_BTN = self.router(logits_BTN.softmax(dim=-1))
        is_chosen_BTN = torch.zeros_like(p_BTN).scatter(-1, chosen_BTk, 1.0)
        p_TN, is_chosen_TN = (x.flatten(0, 1) if is_token is None else x[is_token] for x in (p_BTN, is_chosen_BTN))
        share_N = self.load(is_chosen_TN.mean(dim=0) / self.experts_per_token)
        self.balance(balance_loss(share_N, p_TN.mean(dim=0)))


def balance_loss(share_N: Tensor, mean_p_N: Tensor) -> Tensor:
    """N · Σ share_i · mean p_i: 1 if all shares are equal, N if one expert gets all tokens (Fedus et al. 2021, eq. 4).

    The gradient flows through the probabilities only, because the shares are counts.
    """
    return len(share_N) * (share_N * mean_p_N).sum()
