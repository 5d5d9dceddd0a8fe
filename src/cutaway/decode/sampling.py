"""Writing one token after the other, with no way back: greedily, or by drawing.

What a text is *forced* to begin with is read and not chosen: it counts neither for its length nor for its probability.
Rows may be forced for longer or shorter, and share each step all the same.

    row 0   forced a b c │ writes x y z
    row 1   forced d │ writes u v w x y
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
from cutaway.search.request import NO_NUMBERS, NOTHING_ALLOWED, Heard, Hypothesis, Rows, Wanted

Choose = Callable[[Tensor, Sequence[int]], Tensor]  # logits [N,V], which texts they are of -> tokens [N]
FORBIDDEN = float("-inf")


def greedy(
    stepper: Stepper,
    first: Tensor,
    max_lengths: Sequence[int],
    eos: int,
    forced: Rows = (),
    heard: Heard | None = None,
    coverage: Coverage | None = None,
    wanted: Wanted | None = None,
) -> list[Hypothesis]:
    """At each step the likeliest token. `first` [B] is what a row begins with, and `max_lengths` count </s>.

    Each text is `forced` to begin with some tokens, is told to those who want to hear it, knows where the model looked,
    if `coverage` asks for it, and ends when it is no longer `wanted`.
    """
    return generate(
        stepper, first, max_lengths, eos, lambda logits_NV, texts: argmax(logits_NV), forced, heard, coverage, wanted
    )


def sample(
    stepper: Stepper,
    first: Tensor,
    max_lengths: Sequence[int],
    eos: int,
    filters: Sequence[Filter],
    draws: Sequence[np.random.Generator],
    forced: Rows = (),
    heard: Heard | None = None,
    coverage: Coverage | None = None,
    wanted: Wanted | None = None,
) -> list[Hypothesis]:
    """At each step a token drawn from softmax(filters(logits)), for each text from its own source of chance.

    The tokens lie side by side on a line, each as long as it is likely; a number from [0, 1) falls on one of them.
    The filters decide what is drawn, not how likely it was: the log-probability is that of softmax(logits).
    """

    def draw(logits_NV: Tensor, texts: Sequence[int]) -> Tensor:
        precision = torch.float32 if logits_NV.device.type == "mps" else torch.float64  # Apple's GPUs have no double
        logits_NV = logits_NV.to(precision)
        for apply in filters:
            logits_NV = apply(logits_NV)
        reached_NV = logits_NV.softmax(dim=-1).cumsum(dim=-1)
        total_N1 = reached_NV[:, -1:]
        if not total_N1.isfinite().all():
            is_forbidden = (logits_NV == FORBIDDEN).all(dim=-1).any()
            raise DataError(NOTHING_ALLOWED if is_forbidden else NO_NUMBERS)
        u_N1 = torch.tensor([[draws[i].random()] for i in texts], dtype=precision, device=logits_NV.device)
        # below the total, whatever is rounded: beyond it there is no token
        point_N1 = torch.minimum(u_N1 * total_N1, torch.nextafter(total_N1, torch.zeros_like(total_N1)))
        return torch.searchsorted(reached_NV, point_N1, right=True)[:, 0]

    return generate(stepper, first, max_lengths, eos, draw, forced, heard, coverage, wanted)


def generate(
    stepper: Stepper,
    first: Tensor,
    max_lengths: Sequence[int],
    eos: int,
    choose: Choose,
    forced: Rows = (),
    heard: Heard | None = None,
    coverage: Coverage | None = None,
    wanted: Wanted | None = None,
) -> list[Hypothesis]:
    """The loop that greedy search and sampling share. A row that ends leaves the batch, so the others go faster."""
    texts = [PartialHypothesis(limit) for limit in max_lengths]
    live, tokens_N, step = list(range(len(texts))), first, 0
    longest_forced = max(map(len, forced), default=0)
    while live:
        logits_NV = stepper.step(tokens_N)
        gains: Sequence[float | None]
        if step < longest_forced:
            tokens_N, gains = choose_unforced_tokens(logits_NV, live, choose, forced, step)
        else:
            tokens_N, gains = choose_tokens(logits_NV, live, choose)
        looked_NS = get_source_weights(stepper, coverage)
        for row, (i, token, gain) in enumerate(zip(live, tokens_N.tolist(), gains, strict=True)):
            if gain is None:
                continue  # forced, not written
            texts[i].add(token, gain, eos)
            if looked_NS is not None:
                texts[i].looks.append(looked_NS[row])
            if heard and token != eos and not heard(i, token, gain):
                texts[i].is_over = True
        step += 1
        still = [row for row, i in enumerate(live) if not texts[i].is_over and (wanted is None or wanted(i))]
        if len(still) < len(live):
            rows = torch.tensor(still, dtype=torch.long, device=first.device)
            stepper.keep(rows)
            tokens_N, live = tokens_N[rows], [live[row] for row in still]
    return [text.hypothesis(coverage, i) for i, text in enumerate(texts)]


def choose_tokens(logits_NV: Tensor, texts: Sequence[int], choose: Choose) -> tuple[Tensor, Sequence[float]]:
    """The next token of each row, and its log-probability."""
    tokens_N = choose(logits_NV, texts)
    gains: list[float] = logits_NV.log_softmax(dim=-1).gather(1, tokens_N[:, None])[:, 0].tolist()
    if any(math.isnan(gain) for gain in gains):
        is_forbidden = (logits_NV == FORBIDDEN).all(dim=-1).any()
        raise DataError(NOTHING_ALLOWED if is_forbidden else NO_NUMBERS)
    return tokens_N, gains


def choose_unforced_tokens(
    logits_NV: Tensor, live: Sequence[int], choose: Choose, forced: Rows, step: int
) -> tuple[Tensor, Sequence[float | None]]:
    """The same while some rows still read what they are forced to begin with; these have gained nothing (None)."""
    tokens = [forced[i][step] if step < len(forced[i]) else 0 for i in live]
    tokens_N, gains = torch.tensor(tokens, device=logits_NV.device), list[float | None]([None]) * len(live)
    free = [row for row, i in enumerate(live) if step >= len(forced[i])]
    if free:
        tokens_N[free], gained = choose_tokens(logits_NV[free], [live[row] for row in free], choose)
        for row, gain in zip(free, gained, strict=True):
            gains[row] = gain
    return tokens_N, gains


class PartialHypothesis:
    """A text while it grows."""

    def __init__(self, max_length: int):
        self.max_length = max_length
        self.tokens: list[int] = []
        self.gains: list[float] = []
        self.looks: list[Tensor] = []
        self.finished = self.is_over = False

    def add(self, token: int, gain: float, eos: int) -> None:
        self.gains.append(gain)
        self.finished = token == eos
        if not self.finished:
            self.tokens.append(token)
        self.is_over = self.finished or len(self.tokens) >= self.max_length

    def hypothesis(self, coverage: Coverage | None, i: int) -> Hypothesis:
        total = sum(self.gains)
        alignment = None if coverage is None else coverage.alignment(self.looks, i)
        return Hypothesis(self.tokens, total, total, self.finished, self.gains, alignment)
