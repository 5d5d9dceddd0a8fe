"""Beam search: follow the k best beginnings side by side, and return the best whole text among those found.

Exactly defined. For a text y with log-probability log p(y) and |y| tokens, </s> included:

    score(y) = log p(y) / lp(|y|),   lp(n) = ((5 + n) / 6)^α          (Wu et al. 2016; the paper uses α = 0.6)

At each step every live prefix is extended by every token.
1. Extensions by other tokens than </s>: the k with the greatest log-probability live on.
2. Extensions by </s>: one is *found* if fewer than k of those others are more likely than it.
3. At the greatest length, the prefixes that would live on are found as they are, cut off.
4. The search ends when no live prefix can still reach a better score than the n-th best text found. A prefix only
   gets less likely as it grows, so the best that it can reach is its log p over the greatest lp there is.

With k = 1 there is nothing to choose between: the search is greedy, and ends with the first text found.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from cutaway.decode.request import Hypothesis
from cutaway.decode.stepper import Stepper

DEAD = float("-inf")


class Extended(NamedTuple):
    """One step of the search, for those who want to watch it: B sentences, each with K live prefixes."""

    total_BKV: Tensor  # the log-probability of each prefix with each token, but </s>, after it
    ended_BK: Tensor  # ... and with </s>
    found_BK: list[list[bool]]  # whether that is a text found
    log_p_BK: Tensor  # of those that live on (at the greatest length: of those cut off)
    rows_N: Tensor  # which prefix each of them extends
    tokens_N: Tensor  # ... and by what


def length_penalty(length: int, alpha: float) -> float:
    return float(((5 + length) / 6) ** alpha)


def beam_search(
    stepper: Stepper,
    first: Tensor,
    max_lengths: Sequence[int],
    eos: int,
    beam_size: int = 4,
    alpha: float = 0.6,
    n_best: int = 1,
    watch: Callable[[Extended], None] | None = None,
) -> list[list[Hypothesis]]:
    """For each row of the stepper the `n_best` texts found, best first.

    `first` [B] is what a row begins with, <s> or the last token of a prompt; `max_lengths` count </s> as a token.
    """
    beams = [Beam(limit, beam_size, alpha, n_best) for limit in max_lengths]
    live = list(beams)
    prefixes_NT = first.new_empty(len(live), 0)
    log_p_BK = torch.zeros(len(live), 1, device=first.device)
    tokens_N = first
    while live:
        log_p_NV = stepper.step(tokens_N).log_softmax(dim=-1)
        total_BKV = log_p_BK[..., None] + log_p_NV.unflatten(0, log_p_BK.shape)
        ended_BK = total_BKV[..., eos].clone()
        total_BKV[..., eos] = DEAD
        log_p_BK, rows_N, tokens_N = best_extensions(total_BKV, beam_size)
        parents_NT = prefixes_NT
        prefixes_NT = torch.cat([prefixes_NT[rows_N], tokens_N[:, None]], dim=1)
        found_BK = collect(live, ended_BK, log_p_BK, parents_NT, prefixes_NT)
        if watch is not None:
            watch(Extended(total_BKV, ended_BK, found_BK, log_p_BK, rows_N, tokens_N))
        still = [i for i, beam in enumerate(live) if not beam.is_over]
        if len(still) < len(live):
            log_p_BK, rows_N, tokens_N, prefixes_NT = keep_beams(still, log_p_BK, rows_N, tokens_N, prefixes_NT)
            live = [live[i] for i in still]
        stepper.keep(rows_N)
    return [beam.best() for beam in beams]


def best_extensions(total_BKV: Tensor, beam_size: int) -> tuple[Tensor, Tensor, Tensor]:
    """The k best of a beam's K·V extensions: their log-probabilities [B,k], old rows [B·k] and new tokens [B·k]."""
    B, K, V = total_BKV.shape
    log_p_BK, index_BK = total_BKV.flatten(1).topk(min(beam_size, K * V))
    first_row_B1 = torch.arange(B, device=total_BKV.device)[:, None] * K
    return log_p_BK, (first_row_B1 + index_BK // V).flatten(), (index_BK % V).flatten()


def collect(
    live: Sequence[Beam], ended_BK: Tensor, log_p_BK: Tensor, parents_NT: Tensor, prefixes_NT: Tensor
) -> list[list[bool]]:
    """Tell each beam what it found at this step, and how likely its best live prefix is. -> whose </s> was found"""
    ended, alive = ended_BK.tolist(), log_p_BK.tolist()
    found_BK = []
    for b, beam in enumerate(live):
        beam.length += 1
        # fewer than k are more likely: either k do not exist, or the k-th is not more likely
        threshold = alive[b][-1] if len(alive[b]) == beam.size else DEAD
        found_BK.append([log_p >= threshold and log_p > DEAD for log_p in ended[b]])
        for k, log_p in enumerate(ended[b]):
            if found_BK[b][k]:
                beam.found(parents_NT[b * len(ended[b]) + k], log_p, finished=True)
        if beam.length == beam.max_length:
            for k, log_p in enumerate(alive[b]):
                if log_p > DEAD:
                    beam.found(prefixes_NT[b * len(alive[b]) + k], log_p, finished=False)
        beam.best_live = alive[b][0]
    return found_BK


def keep_beams(
    still: Sequence[int], log_p_BK: Tensor, rows_N: Tensor, tokens_N: Tensor, prefixes_NT: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Only the sentences that go on."""
    chosen = torch.tensor(still, dtype=torch.long, device=log_p_BK.device)

    def by_sentence(x: Tensor) -> Tensor:
        return x.unflatten(0, log_p_BK.shape)[chosen].flatten(0, 1)

    return log_p_BK[chosen], by_sentence(rows_N), by_sentence(tokens_N), by_sentence(prefixes_NT)


class Beam:
    """The search for one sentence: what it has found, and when it is over."""

    def __init__(self, max_length: int, size: int, alpha: float, n_best: int):
        self.max_length, self.size, self.alpha, self.n_best = max_length, size, alpha, n_best
        self.length = 0
        self.best_live = 0.0
        self.texts: list[Hypothesis] = []

    def found(self, tokens: Tensor, log_p: float, finished: bool) -> None:
        score = log_p / length_penalty(self.length, self.alpha)
        self.texts.append(Hypothesis(tokens.tolist(), log_p, score, finished))

    @property
    def is_over(self) -> bool:
        if self.length == self.max_length or self.best_live == DEAD:
            return True
        if len(self.texts) < self.n_best:
            return False
        if self.size == 1:
            return True
        within_reach = self.best_live / length_penalty(self.max_length, self.alpha)
        return self.best()[-1].score >= within_reach

    def best(self) -> list[Hypothesis]:
        return sorted(self.texts, key=lambda text: text.score, reverse=True)[: self.n_best]
