"""Beam search: follow the k best beginnings side by side, and return the best whole text among those found.

Exactly defined. For a text y with log-probability log p(y) and |y| tokens, </s> included:

    score(y) = log p(y) / lp(|y|) + cp(y)
    lp(n)    = ((5 + n) / 6)^α                              (Wu et al. 2016; the Transformer's paper uses α = 0.6)
    cp(y)    = β Σ_i log(min(Σ_j a_ij, 1))                  of translations, if asked for: decode/alignment.py

At each step every live prefix is extended by every token.
1. Extensions by other tokens than </s>: the k with the greatest log-probability live on.
2. Extensions by </s>: one is *found* if fewer than k of those others are more likely than it.
3. At the greatest length, the prefixes that would live on are found as they are, cut off.
4. The search ends when no live prefix can still reach a better score than the n-th best text found. A prefix only
   gets less likely as it grows, and cp ≤ 0, so the best that it can reach is its log p over the greatest lp there is.

With k = 1 there is nothing to choose between: the search is greedy, and ends with the first text found.

What a text is forced to begin with counts neither for log p nor for |y|; what the model looked at meanwhile is covered.
"""

from __future__ import annotations

import math
from bisect import insort
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from cutaway.decode.alignment import Coverage, get_source_weights
from cutaway.decode.stepper import Stepper
from cutaway.decode.topk import topk
from cutaway.errors import DataError
from cutaway.search.request import NO_NUMBERS, NOTHING_ALLOWED, Hypothesis, Rows, Wanted

IMPOSSIBLE = float("-inf")


class BeamStep(NamedTuple):
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
    watch: Callable[[BeamStep], None] | None = None,
    forced: Rows = (),
    coverage: Coverage | None = None,
    wanted: Wanted | None = None,
) -> list[list[Hypothesis]]:
    """For each row of the stepper the `n_best` texts found, best first.

    `first` [B] is what a row begins with, <s> or the last token of a prompt; `max_lengths` count </s> as a token, but
    not what a text is `forced` to begin with. `watch` is shown every step in which nothing is forced. A search that is
    no longer `wanted` ends with what it has found, which may be nothing.
    """
    forced = forced or [()] * len(max_lengths)
    beams = [Beam(i, limit, beam_size, alpha, n_best, len(forced[i])) for i, limit in enumerate(max_lengths)]
    live, trail = list(beams), Backpointers(coverage)
    log_p_BK, tokens_N = torch.zeros(len(live), 1, device=first.device), first
    longest_forced = max(map(len, forced), default=0)
    while live:
        log_p_NV = log_probabilities(stepper.step(tokens_N))
        trail.look(get_source_weights(stepper, coverage))
        ended_BK, before_BK = log_p_BK + log_p_NV[:, eos].view(log_p_BK.shape), log_p_BK
        log_p_NV[:, eos] = IMPOSSIBLE
        log_p_BK, rows_N, tokens_N = best_extensions(log_p_BK, log_p_NV, beam_size)
        if trail.length < longest_forced:
            force_prefixes(live, forced, trail.length, ended_BK, log_p_BK, rows_N, tokens_N)
        found_BK = collect(live, trail, ended_BK, log_p_BK, rows_N, tokens_N)
        if watch is not None and trail.length >= longest_forced:
            total_BKV = before_BK[..., None] + log_p_NV.unflatten(0, before_BK.shape)
            watch(BeamStep(total_BKV, ended_BK, found_BK, log_p_BK, rows_N, tokens_N))
        still = [b for b, beam in enumerate(live) if not beam.is_over and (wanted is None or wanted(beam.text))]
        if len(still) < len(live):
            live = [live[b] for b in still]
            log_p_BK, rows_N, tokens_N = keep_beams(still, log_p_BK, rows_N, tokens_N)
        trail.add(rows_N, tokens_N, log_p_BK)
        stepper.keep(rows_N)
    return [beam.hypotheses(trail) for beam in beams]


def log_probabilities(logits_NV: Tensor) -> Tensor:
    """log softmax; a row in which every token is forbidden leads nowhere, whereas NaN of a broken model stays NaN."""
    log_p_NV = logits_NV.log_softmax(dim=-1)
    if log_p_NV[:, 0].isnan().any():
        log_p_NV[(logits_NV == IMPOSSIBLE).all(dim=-1)] = IMPOSSIBLE
    return log_p_NV


def best_extensions(log_p_BK: Tensor, log_p_NV: Tensor, beam_size: int) -> tuple[Tensor, Tensor, Tensor]:
    """The k best of a beam's K·V extensions: their log-probabilities [B,k], old rows [B·k] and new tokens [B·k].

    K is 1 at the first step and k later; N = B·K rows of the stepper. The k best are among the k best of each row, so
    no total is computed for the others. A place that cannot be filled (log-probability -inf) repeats the best one.
    """
    B, K = log_p_BK.shape
    gain_NC, token_NC = topk(log_p_NV, min(beam_size, log_p_NV.size(1)))
    C = gain_NC.size(1)
    total_BX = (log_p_BK[..., None] + gain_NC.view(B, K, C)).flatten(1)
    log_p_Bk, index_Bk = total_BX.topk(min(beam_size, K * C))
    index_Bk = torch.where(log_p_Bk == IMPOSSIBLE, index_Bk[:, :1], index_Bk)
    tokens_Bk = token_NC.view(B, K * C).gather(1, index_Bk)
    rows_Bk = torch.arange(0, B * K, K, device=log_p_BK.device)[:, None] + index_Bk.div(C, rounding_mode="floor")
    return log_p_Bk, rows_Bk.flatten(), tokens_Bk.flatten()


def force_prefixes(
    live: Sequence[Beam], forced: Rows, step: int, ended_BK: Tensor, log_p_BK: Tensor, rows_N: Tensor, tokens_N: Tensor
) -> None:
    """Sentences that are still forced go on with one prefix, whose probability does not count, and find nothing."""
    width, rows_before = log_p_BK.size(1), ended_BK.size(1)
    for b, beam in enumerate(live):
        if step < beam.n_forced:
            rows = slice(b * width, (b + 1) * width)
            ended_BK[b], log_p_BK[b], log_p_BK[b, 0] = IMPOSSIBLE, IMPOSSIBLE, 0
            rows_N[rows], tokens_N[rows] = b * rows_before, forced[beam.text][step]


def collect(
    live: Sequence[Beam], trail: Backpointers, ended_BK: Tensor, log_p_BK: Tensor, rows_N: Tensor, tokens_N: Tensor
) -> list[list[bool]]:
    """Tell each beam what it found at this step, and how likely its best live prefix is. -> whose </s> was found"""
    ended, alive, found_BK = ended_BK.tolist(), log_p_BK.tolist(), []
    old, new = len(ended[0]), len(alive[0])
    for b, beam in enumerate(live):
        beam.length = trail.length + 1 - beam.n_forced
        # fewer than k are more likely: either k do not exist, or the k-th is not more likely
        threshold = alive[b][-1] if new == beam.size else IMPOSSIBLE
        found_BK.append([log_p >= threshold and log_p > IMPOSSIBLE for log_p in ended[b]])
        for k, log_p in enumerate(ended[b]):
            if found_BK[b][k]:
                beam.find(trail, log_p, b * old + k)
        if beam.length == beam.max_length:
            for k, log_p in enumerate(alive[b]):
                if log_p > IMPOSSIBLE:
                    beam.find(trail, log_p, int(rows_N[b * new + k]), int(tokens_N[b * new + k]))
        beam.best_live = alive[b][0]
    return found_BK


def keep_beams(
    still: Sequence[int], log_p_BK: Tensor, rows_N: Tensor, tokens_N: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Only the sentences that go on."""
    chosen = torch.tensor(still, dtype=torch.long, device=log_p_BK.device)
    rows_N, tokens_N = (x_N.view(log_p_BK.shape)[chosen].flatten() for x_N in (rows_N, tokens_N))
    return log_p_BK[chosen], rows_N, tokens_N


class Backpointers:
    """How the live prefixes came about. A step says of each row which row before it extends, by which token, and how
    likely that is; so a prefix is not copied when it is extended, but read from its end back to its beginning."""

    def __init__(self, coverage: Coverage | None):
        self.coverage, self.length = coverage, 0
        self.steps: list[tuple[Tensor, Tensor, Tensor]] = []
        self.read: list[tuple[list[int], list[int], list[float]]] = []  # the same as lists, once they are wanted
        self.looks: list[Tensor] = []  # where the rows looked, before they were extended
        self.covered_NS: Tensor | None = None

    def look(self, looked_NS: Tensor | None) -> None:
        if looked_NS is None or self.coverage is None:
            return
        if self.coverage.aligned:
            self.looks.append(looked_NS)
        if self.coverage.beta:
            self.covered_NS = looked_NS if self.covered_NS is None else self.covered_NS + looked_NS

    def add(self, rows_N: Tensor, tokens_N: Tensor, log_p_BK: Tensor) -> None:
        self.steps.append((rows_N, tokens_N, log_p_BK))
        self.length += 1
        if self.covered_NS is not None:
            self.covered_NS = self.covered_NS[rows_N]

    def penalty(self, row: int, text: int) -> float:
        if self.covered_NS is None or self.coverage is None:
            return 0.0
        return self.coverage.penalty(self.covered_NS[row], text)

    def trace_back(self, found: FoundText) -> tuple[list[int], list[float], list[Tensor]]:
        """From a text found back to its beginning: its tokens (</s> left out), their totals, and looks."""
        for rows_N, tokens_N, log_p_BK in self.steps[len(self.read) :]:
            self.read.append((rows_N.tolist(), tokens_N.tolist(), log_p_BK.flatten().tolist()))
        tokens = [] if found.token is None else [found.token]
        totals, row = [found.log_p], found.row
        looks = [self.looks[found.step][row]] if self.looks else []
        for step in range(found.step - 1, -1, -1):
            rows_before, tokens_then, totals_then = self.read[step]
            tokens.append(tokens_then[row])
            totals.append(totals_then[row])
            row = rows_before[row]
            if self.looks:
                looks.append(self.looks[step][row])
        return tokens[::-1], totals[::-1], looks[::-1]


class FoundText(NamedTuple):
    """A whole text: it extends a row of a step, by </s> (None) or, cut off, by a token."""

    score: float
    log_p: float
    step: int
    row: int
    token: int | None


class Beam:
    """The search for one sentence: what it has found, and when it is over."""

    def __init__(self, text: int, max_length: int, size: int, alpha: float, n_best: int, n_forced: int = 0):
        self.text, self.max_length, self.size, self.alpha, self.n_best = text, max_length, size, alpha, n_best
        self.n_forced, self.length = n_forced, -n_forced
        self.best_live = 0.0
        self.best: list[FoundText] = []  # best first

    def find(self, trail: Backpointers, log_p: float, row: int, token: int | None = None) -> None:
        score = log_p / length_penalty(self.length, self.alpha) + trail.penalty(row, self.text)
        insort(self.best, FoundText(score, log_p, trail.length, row, token), key=lambda found: -found.score)
        del self.best[self.n_best :]

    @property
    def is_over(self) -> bool:
        if self.length == self.max_length or self.best_live == IMPOSSIBLE:
            return True
        if len(self.best) < self.n_best:
            return False
        if self.size == 1:
            return True
        within_reach = self.best_live / length_penalty(self.max_length, self.alpha)
        return self.best[-1].score >= within_reach

    def hypotheses(self, trail: Backpointers) -> list[Hypothesis]:
        if math.isnan(self.best_live):
            raise DataError(NO_NUMBERS)
        if not self.best and self.best_live == IMPOSSIBLE:
            raise DataError(NOTHING_ALLOWED)
        return [self.hypothesis(found, trail) for found in self.best]

    def hypothesis(self, found: FoundText, trail: Backpointers) -> Hypothesis:
        tokens, totals, looks = trail.trace_back(found)
        n, coverage = self.n_forced, trail.coverage
        gains = [after - before for before, after in zip([0.0, *totals[n:-1]], totals[n:], strict=True)]
        alignment = None if coverage is None else coverage.alignment(looks[n:], self.text)
        return Hypothesis(tokens[n:], found.log_p, found.score, found.token is None, gains, alignment)
