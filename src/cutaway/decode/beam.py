"""Beam search: extend the k best prefixes in parallel, and return the best complete text.

Definition. For a text y with log-probability log p(y) and |y| tokens, </s> included:

    score(y) = log p(y) / lp(|y|) + cp(y)
    lp(n)    = ((5 + n) / 6)^α                              (Wu et al. 2016; the Transformer's paper uses α = 0.6)
    cp(y)    = β Σ_i log(min(Σ_j a_ij, 1))                  translation only, if β > 0: decode/alignment.py

Each step extends every live prefix by every token.
1. Among the extensions by tokens other than </s>, the k most probable stay live.
2. An extension by </s> is *found* if fewer than k of those others are more probable.
3. At the length limit, the prefixes that would stay live are found as they are, cut off.
4. The search ends when no live prefix can reach a better score than the n-th best text found. The log-probability of a
   prefix only falls as it grows, and cp ≤ 0. So its best possible score is its log p over the largest possible lp.

With k = 1, the search is greedy and ends with the first text found.

Forced tokens (prompt and prefix) count neither for log p nor for |y|. Their attention weights count for cp.
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
from cutaway.search.request import NO_TOKEN_ALLOWED, NON_FINITE_LOGITS, Hypothesis, Rows, ShouldContinue

IMPOSSIBLE = float("-inf")


class BeamStep(NamedTuple):
    """One step of the search, for `on_step`: B sentences with K live prefixes each."""

    total_BKV: Tensor  # the log-probability of each prefix extended by each token except </s>
    ended_BK: Tensor  # the log-probability of each prefix extended by </s>
    found_BK: list[list[bool]]  # whether the extension by </s> is a text found
    log_p_BK: Tensor  # the log-probabilities of the new live prefixes; at the length limit, of the texts cut off
    rows_N: Tensor  # the old prefix that each of them extends
    tokens_N: Tensor  # the token that it adds


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
    on_step: Callable[[BeamStep], None] | None = None,
    forced: Rows = (),
    coverage: Coverage | None = None,
    should_continue: ShouldContinue | None = None,
) -> list[list[Hypothesis]]:
    """For each row of the stepper the `n_best` texts found, best first.

    first             [B] the first token of each row: <s>, or the last token of a prompt
    max_lengths       of each row, with </s> and without `forced` tokens
    on_step           called after each step without forced tokens
    forced            tokens that each text must start with
    should_continue   when it returns False, the row ends with the texts found so far, perhaps none
    """
    forced = forced or [()] * len(max_lengths)
    beams = [Beam(i, limit, beam_size, alpha, n_best, len(forced[i])) for i, limit in enumerate(max_lengths)]
    live, backpointers = list(beams), Backpointers(coverage)
    log_p_BK, tokens_N = torch.zeros(len(live), 1, device=first.device), first
    longest_forced = max(map(len, forced), default=0)
    while live:
        log_p_NV = log_probabilities(stepper.step(tokens_N))
        backpointers.add_source_weights(get_source_weights(stepper, coverage))
        ended_BK, before_BK = log_p_BK + log_p_NV[:, eos].view(log_p_BK.shape), log_p_BK
        log_p_NV[:, eos] = IMPOSSIBLE
        log_p_BK, rows_N, tokens_N = best_extensions(log_p_BK, log_p_NV, beam_size)
        if backpointers.length < longest_forced:
            force_prefixes(live, forced, backpointers.length, ended_BK, log_p_BK, rows_N, tokens_N)
        found_BK = collect_found(live, backpointers, ended_BK, log_p_BK, rows_N, tokens_N)
        if on_step is not None and backpointers.length >= longest_forced:
            total_BKV = before_BK[..., None] + log_p_NV.unflatten(0, before_BK.shape)
            on_step(BeamStep(total_BKV, ended_BK, found_BK, log_p_BK, rows_N, tokens_N))
        kept = [
            b
            for b, beam in enumerate(live)
            if not beam.is_over and (should_continue is None or should_continue(beam.text))
        ]
        if len(kept) < len(live):
            live = [live[b] for b in kept]
            log_p_BK, rows_N, tokens_N = keep_beams(kept, log_p_BK, rows_N, tokens_N)
        backpointers.add(rows_N, tokens_N, log_p_BK)
        stepper.keep(rows_N)
    return [beam.hypotheses(backpointers) for beam in beams]


def log_probabilities(logits_NV: Tensor) -> Tensor:
    """log softmax. A row in which all tokens are forbidden becomes -inf; NaN from the model stays NaN."""
    log_p_NV = logits_NV.log_softmax(dim=-1)
    if log_p_NV[:, 0].isnan().any():
        log_p_NV[(logits_NV == IMPOSSIBLE).all(dim=-1)] = IMPOSSIBLE
    return log_p_NV


def best_extensions(log_p_BK: Tensor, log_p_NV: Tensor, beam_size: int) -> tuple[Tensor, Tensor, Tensor]:
    """The k best of a beam's K·V extensions: their log-probabilities [B,k], old rows [B·k] and new tokens [B·k].

    K is 1 at the first step and k later; the stepper has N = B·K rows. The k best are among the k best of each row, so
    the others need no total. If fewer than k exist, the best one fills the remaining places with log-probability -inf.
    """
    B, K = log_p_BK.shape
    log_p_NC, token_NC = topk(log_p_NV, min(beam_size, log_p_NV.size(1)))
    C = log_p_NC.size(1)
    total_BX = (log_p_BK[..., None] + log_p_NC.view(B, K, C)).flatten(1)
    log_p_Bk, index_Bk = total_BX.topk(min(beam_size, K * C))
    index_Bk = torch.where(log_p_Bk == IMPOSSIBLE, index_Bk[:, :1], index_Bk)
    tokens_Bk = token_NC.view(B, K * C).gather(1, index_Bk)
    rows_Bk = torch.arange(0, B * K, K, device=log_p_BK.device)[:, None] + index_Bk.div(C, rounding_mode="floor")
    return log_p_Bk, rows_Bk.flatten(), tokens_Bk.flatten()


def force_prefixes(
    live: Sequence[Beam], forced: Rows, step: int, ended_BK: Tensor, log_p_BK: Tensor, rows_N: Tensor, tokens_N: Tensor
) -> None:
    """Replace the extensions of sentences with forced tokens left: one prefix, log-probability 0, nothing found."""
    width, rows_before = log_p_BK.size(1), ended_BK.size(1)
    for b, beam in enumerate(live):
        if step < beam.n_forced:
            rows = slice(b * width, (b + 1) * width)
            ended_BK[b], log_p_BK[b], log_p_BK[b, 0] = IMPOSSIBLE, IMPOSSIBLE, 0
            rows_N[rows], tokens_N[rows] = b * rows_before, forced[beam.text][step]


def collect_found(
    live: Sequence[Beam],
    backpointers: Backpointers,
    ended_BK: Tensor,
    log_p_BK: Tensor,
    rows_N: Tensor,
    tokens_N: Tensor,
) -> list[list[bool]]:
    """Add the texts found at this step to each beam. Return which extensions by </s> were found."""
    ended, alive, found_BK = ended_BK.tolist(), log_p_BK.tolist(), []
    old, new = len(ended[0]), len(alive[0])
    for b, beam in enumerate(live):
        beam.length = backpointers.length + 1 - beam.n_forced
        # fewer than k are more probable: fewer than k exist, or the k-th is not more probable
        threshold = alive[b][-1] if new == beam.size else IMPOSSIBLE
        found_BK.append([log_p >= threshold and log_p > IMPOSSIBLE for log_p in ended[b]])
        for k, log_p in enumerate(ended[b]):
            if found_BK[b][k]:
                beam.add(backpointers, log_p, b * old + k)
        if beam.length == beam.max_length:
            for k, log_p in enumerate(alive[b]):
                if log_p > IMPOSSIBLE:
                    beam.add(backpointers, log_p, int(rows_N[b * new + k]), int(tokens_N[b * new + k]))
        beam.best_live = alive[b][0]
    return found_BK


def keep_beams(
    kept: Sequence[int], log_p_BK: Tensor, rows_N: Tensor, tokens_N: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Select the sentences that continue."""
    chosen = torch.tensor(kept, dtype=torch.long, device=log_p_BK.device)
    rows_N, tokens_N = (x_N.view(log_p_BK.shape)[chosen].flatten() for x_N in (rows_N, tokens_N))
    return log_p_BK[chosen], rows_N, tokens_N


class Backpointers:
    """The history of all live prefixes.

    Each step stores for each row the row that it extends, the new token and the total log-probability. So extending a
    prefix copies nothing, and a text is read from its end back to its start.
    """

    def __init__(self, coverage: Coverage | None):
        self.coverage, self.length = coverage, 0
        self.steps: list[tuple[Tensor, Tensor, Tensor]] = []
        self.steps_as_lists: list[tuple[list[int], list[int], list[float]]] = []  # converted when first needed
        self.source_weights: list[Tensor] = []  # [N,S] for each step, in the order of its old rows
        self.covered_NS: Tensor | None = None

    def add_source_weights(self, weights_NS: Tensor | None) -> None:
        if weights_NS is None or self.coverage is None:
            return
        if self.coverage.with_alignment:
            self.source_weights.append(weights_NS)
        if self.coverage.beta:
            self.covered_NS = weights_NS if self.covered_NS is None else self.covered_NS + weights_NS

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
        """The tokens of a text without </s>, its total log-probability after each step, and the source weights."""
        for rows_N, tokens_N, log_p_BK in self.steps[len(self.steps_as_lists) :]:
            self.steps_as_lists.append((rows_N.tolist(), tokens_N.tolist(), log_p_BK.flatten().tolist()))
        tokens = [] if found.token is None else [found.token]
        totals, row = [found.log_p], found.row
        weights = [self.source_weights[found.step][row]] if self.source_weights else []
        for step in range(found.step - 1, -1, -1):
            old_rows, step_tokens, step_totals = self.steps_as_lists[step]
            tokens.append(step_tokens[row])
            totals.append(step_totals[row])
            row = old_rows[row]
            if self.source_weights:
                weights.append(self.source_weights[step][row])
        return tokens[::-1], totals[::-1], weights[::-1]


class FoundText(NamedTuple):
    """A complete text: it extends a row of a step by </s> (token None) or, cut off, by a token."""

    score: float
    log_p: float
    step: int
    row: int
    token: int | None


class Beam:
    """The search for one sentence: the texts it has found, and whether it is over."""

    def __init__(self, text: int, max_length: int, size: int, alpha: float, n_best: int, n_forced: int = 0):
        self.text, self.max_length, self.size, self.alpha, self.n_best = text, max_length, size, alpha, n_best
        self.n_forced, self.length = n_forced, -n_forced
        self.best_live = 0.0
        self.best: list[FoundText] = []  # best first

    def add(self, backpointers: Backpointers, log_p: float, row: int, token: int | None = None) -> None:
        score = log_p / length_penalty(self.length, self.alpha) + backpointers.penalty(row, self.text)
        insort(self.best, FoundText(score, log_p, backpointers.length, row, token), key=lambda found: -found.score)
        del self.best[self.n_best :]

    @property
    def is_over(self) -> bool:
        if self.length == self.max_length or self.best_live == IMPOSSIBLE:
            return True
        if len(self.best) < self.n_best:
            return False
        if self.size == 1:
            return True
        best_possible = self.best_live / length_penalty(self.max_length, self.alpha)
        return self.best[-1].score >= best_possible

    def hypotheses(self, backpointers: Backpointers) -> list[Hypothesis]:
        if math.isnan(self.best_live):
            raise DataError(NON_FINITE_LOGITS)
        if not self.best and self.best_live == IMPOSSIBLE:
            raise DataError(NO_TOKEN_ALLOWED)
        return [self.hypothesis(found, backpointers) for found in self.best]

    def hypothesis(self, found: FoundText, backpointers: Backpointers) -> Hypothesis:
        tokens, totals, weights = backpointers.trace_back(found)
        n, coverage = self.n_forced, backpointers.coverage
        token_log_probs = [after - before for before, after in zip([0.0, *totals[n:-1]], totals[n:], strict=True)]
        alignment = None if coverage is None else coverage.alignment(weights[n:], self.text)
        return Hypothesis(tokens[n:], found.log_p, found.score, found.token is None, token_log_probs, alignment)
