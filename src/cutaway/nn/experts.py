"""A mixture of experts: many feed-forward networks, of which each token asks only a few (Shazeer et al. 2017).

                   ┌─▶ expert 0 ─┐ · p₀
x ──▶ router ──▶ top k           ├──▶ +        parameters of all experts, the cost of k
                   └─▶ expert 3 ─┘ · p₃
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from cutaway.nn.probe import Probe


class Experts(nn.Module):
    """y = Σ over the k likeliest experts of p_i · expert_i(x),    p = softmax of their k router logits

    Probes show the router at work: `router` the probabilities [B,T,N] of all experts, `load` the share of the tokens
    that each expert gets [N], `balance` the loss that keeps these shares even.

    `capacity` above 0 limits an expert, in training only, to capacity · k · tokens / N of the tokens; those who come
    too late get nothing from it. It bounds the cost of an expert, at a price: what a token gets then depends on
    the rest of the batch.
    """

    def __init__(self, experts: Sequence[nn.Module], d_model: int, experts_per_token: int = 2, capacity: float = 0.0):
        super().__init__()
        self.experts = nn.ModuleList(experts)
        self.route = nn.Linear(d_model, len(experts), bias=False)
        self.experts_per_token, self.capacity = experts_per_token, capacity
        self.router, self.load, self.balance = Probe(), Probe(), Probe()

    def forward(self, x: Tensor, is_token: Tensor | None = None) -> Tensor:
        """x [B,T,D], is_token [B,T] (False: padding, which does not count) -> [B,T,D]"""
        logits_BTN = self.route(x)
        top_BTk, chosen_BTk = logits_BTN.topk(self.experts_per_token, dim=-1)
        self.watch(logits_BTN, chosen_BTk, is_token)
        flat_ND, weight_Nk, chosen_Nk = x.flatten(0, 1), top_BTk.softmax(-1).flatten(0, 1), chosen_BTk.flatten(0, 1)
        if is_token is not None:  # padding asks nobody, and takes no place from a token
            chosen_Nk = chosen_Nk.masked_fill(~is_token.flatten()[:, None], -1)
        y_ND, limit = torch.zeros_like(flat_ND), self.limit(len(flat_ND) if is_token is None else int(is_token.sum()))
        for i, expert in enumerate(self.experts):
            rows, places = (chosen_Nk == i).nonzero(as_tuple=True)
            rows, places = rows[:limit], places[:limit]
            if len(rows):
                y_ND = y_ND.index_add(0, rows, weight_Nk[rows, places, None] * expert(flat_ND[rows]))
        return y_ND.view_as(x)

    def limit(self, tokens: int) -> int | None:
        if not (self.capacity and self.training):
            return None
        return math.ceil(self.capacity * self.experts_per_token * tokens / len(self.experts))

    def watch(self, logits_BTN: Tensor, chosen_BTk: Tensor, is_token: Tensor | None) -> None:
        """Show the probes what the router did, if anybody looks."""
        if not any(probe.is_watched for probe in (self.router, self.load, self.balance)):
            return
        p_BTN = self.router(logits_BTN.softmax(dim=-1))
        asked_BTN = torch.zeros_like(p_BTN).scatter(-1, chosen_BTk, 1.0)
        p_TN, asked_TN = (x.flatten(0, 1) if is_token is None else x[is_token] for x in (p_BTN, asked_BTN))
        share_N = self.load(asked_TN.mean(dim=0) / self.experts_per_token)
        self.balance(balance_loss(share_N, p_TN.mean(dim=0)))


def balance_loss(share_N: Tensor, mean_p_N: Tensor) -> Tensor:
    """N · Σ share_i · mean p_i: 1 when all experts get as much, N when one gets all (Fedus et al. 2021, equation 4).

    The share counts tokens and has no gradient; the probability that goes with it has.
    """
    return len(share_N) * (share_N * mean_p_N).sum()
