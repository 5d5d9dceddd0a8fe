"""Generate one token after the other without going back: greedy search and sampling.

A text can start with *forced* tokens (prompt and prefix). They are read, not chosen, and count neither for the length
nor for the probability. Rows with a different number of forced tokens share each step:

    row 0   forced a b c │ generated x y z
    row 1   forced d │ generated u v w x y
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from cutaway.decode.alignment import Coverage, get_source_weights
from cutaway.decode.filters import Filter
from cutaway.decode.stepper import Stepper
from cutaway.decode.topk import argmax
from cutaway.errors import DataError
from cutaway.search.request import NO_TOKEN_ALLOWED, NON_FINITE_LOGITS, Hypothesis, OnToken, Rows, ShouldContinue

Choose = Callable[[Tensor, Sequence[int]], Tensor]  # logits [N,V], the text of each row -> tokens [N]
FORBIDDEN = float("-inf")


def greedy(
    stepper: Stepper,
    first: Tensor,
    max_lengths: Sequence[int],
    eos: int,
    forced: Rows = (),
    on_token: OnToken | None = None,
    coverage: Coverage | None = None,
    should_continue: ShouldContinue | None = None,
) -> list[Hypothesis]:
    """Choose the most probable token at each step. The arguments are those of `generate`."""

    def choose(logits_NV: Tensor, texts: Sequence[int]) -> Tensor:
        return argmax(logits_NV)

    return generate(stepper, first, max_lengths, eos, choose, forced, on_token, coverage, should_continue)


def sample(
    stepper: Stepper,
    first: Tensor,
    max_lengths: Sequence[int],
    eos: int,
    filters: Sequence[Filter],
    generators: Sequence[np.random.Generator],
    forced: Rows = (),
    on_token: OnToken | None = None,
    coverage: Coverage | None = None,
    should_continue: ShouldContinue | None = None,
) -> list[Hypothesis]:
    """Sample each token from softmax(filters(logits)). Each text has its own random generator.

    Sampling inverts the cumulative distribution: it takes the first token whose cumulative probability exceeds a random
    number from [0, 1). The log-probabilities in the result are those of softmax(logits), without the filters.
    """

    def draw(logits_NV: Tensor, texts: Sequence[int]) -> Tensor:
        precision = torch.float32 if logits_NV.device.type == "mps" else torch.float64  # MPS has no float64
        logits_NV = logits_NV.to(precision)
        for apply in filters:
            logits_NV = apply(logits_NV)
        cumulative_NV = logits_NV.softmax(dim=-1).cumsum(dim=-1)
        total_N1 = cumulative_NV[:, -1:]
        if not total_N1.isfinite().all():
            is_forbidden = (logits_NV == FORBIDDEN).all(dim=-1).any()
            raise DataError(NO_TOKEN_ALLOWED if is_forbidden else NON_FINITE_LOGITS)
        u_N1 = torch.tensor([[generators[i].random()] for i in texts], dtype=precision, device=logits_NV.device)
        # rounding must not reach the total: no token comes after it
        point_N1 = torch.minimum(u_N1 * total_N1, torch.nextafter(total_N1, torch.zeros_like(total_N1)))
        return torch.searchsorted(cumulative_NV, point_N1, right=True)[:, 0]

    return generate(stepper, first, max_lengths, eos, draw, forced, on_token, coverage, should_continue)


def generate(
    stepper: Stepper,
    first: Tensor,
    max_lengths: Sequence[int],
    eos: int,
    choose: Choose,
    forced: Rows = (),
    on_token: OnToken | None = None,
    coverage: Coverage | None = None,
    should_continue: ShouldContinue | None = None,
) -> list[Hypothesis]:
    """The loop of greedy search and sampling. A finished row leaves the batch, so the others become faster.

    first             [B] the first token of each row: <s>, or the last token of a prompt
    max_lengths       of each row, with </s> and without `forced` tokens
    forced            tokens that each text must start with
    on_token          called with each new token; returns whether to continue
    coverage          if given, hypotheses contain the source weights
    should_continue   called for each row after each step
    """
    texts = [PartialHypothesis(limit) for limit in max_lengths]
    live, tokens_N, step = list(range(len(texts))), first, 0
    longest_forced = max(map(len, forced), default=0)
    while live:
        logits_NV = stepper.step(tokens_N)
        log_probs: Sequence[float | None]
        if step < longest_forced:
            tokens_N, log_probs = choose_unforced_tokens(logits_NV, live, choose, forced, step)
        else:
            tokens_N, log_probs = choose_tokens(logits_NV, live, choose)
        weights_NS = get_source_weights(stepper, coverage)
        for row, (i, token, log_p) in enumerate(zip(live, tokens_N.tolist(), log_probs, strict=True)):
            if log_p is None:
                continue  # forced
            texts[i].add(token, log_p, eos)
            if weights_NS is not None:
                texts[i].source_weights.append(weights_NS[row])
            if on_token and token != eos and not on_token(i, token, log_p):
                texts[i].is_over = True
        step += 1
        kept = [
            row
            for row, i in enumerate(live)
            if not texts[i].is_over and (should_continue is None or should_continue(i))
        ]
        if len(kept) < len(live):
            rows = torch.tensor(kept, dtype=torch.long, device=first.device)
            stepper.keep(rows)
            tokens_N, live = tokens_N[rows], [live[row] for row in kept]
    return [text.hypothesis(coverage, i) for i, text in enumerate(texts)]


def choose_tokens(logits_NV: Tensor, texts: Sequence[int], choose: Choose) -> tuple[Tensor, Sequence[float]]:
    """The next token of each row, and its log-probability."""
    tokens_N = choose(logits_NV, texts)
    log_probs: list[float] = logits_NV.log_softmax(dim=-1).gather(1, tokens_N[:, None])[:, 0].tolist()
    if any(math.isnan(log_p) for log_p in log_probs):
        is_forbidden = (logits_NV == FORBIDDEN).all(dim=-1).any()
        raise DataError(NO_TOKEN_ALLOWED if is_forbidden else NON_FINITE_LOGITS)
    return tokens_N, log_probs


def choose_unforced_tokens(
    logits_NV: Tensor, live: Sequence[int], choose: Choose, forced: Rows, step: int
) -> tuple[Tensor, Sequence[float | None]]:
    """`choose_tokens` while some rows have forced tokens left. Their log-probability is None."""
    tokens = [forced[i][step] if step < len(forced[i]) else 0 for i in live]
    tokens_N, log_probs = torch.tensor(tokens, device=logits_NV.device), list[float | None]([None]) * len(live)
    free = [row for row, i in enumerate(live) if step >= len(forced[i])]
    if free:
        tokens_N[free], free_log_probs = choose_tokens(logits_NV[free], [live[row] for row in free], choose)
        for row, log_p in zip(free, free_log_probs, strict=True):
            log_probs[row] = log_p
    return tokens_N, log_probs


class PartialHypothesis:
    """A text during generation."""

    def __init__(self, max_length: int):
        self.max_length = max_length
        self.tokens: list[int] = []
        self.token_log_probs: list[float] = []
        self.source_weights: list[Tensor] = []
        self.finished = self.is_over = False

    def add(self, token: int, log_p: float, eos: int) -> None:
        self.token_log_probs.append(log_p)
        self.finished = token == eos
        if not self.finished:
            self.tokens.append(token)
        self.is_over = self.finished or len(self.tokens) >= self.max_length

    def hypothesis(self, coverage: Coverage | None, i: int) -> Hypothesis:
        total = sum(self.token_log_probs)
        alignment = None if coverage is None else coverage.alignment(self.source_weights, i)
        return Hypothesis(self.tokens, total, total, self.finished, self.token_log_probs, alignment)
