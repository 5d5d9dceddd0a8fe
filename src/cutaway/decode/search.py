"""Writing one token after the other, with no way back: greedily, or by drawing."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from cutaway.decode.filters import Filter
from cutaway.decode.request import NO_NUMBERS, Hypothesis
from cutaway.decode.stepper import Stepper
from cutaway.errors import DataError

Choose = Callable[[Tensor, Sequence[int]], Tensor]  # logits [N,V], which texts they are of -> tokens [N]


def greedy(stepper: Stepper, first: Tensor, max_lengths: Sequence[int], eos: int) -> list[Hypothesis]:
    """At each step the likeliest token. `first` [B] is what a row begins with, and `max_lengths` count </s>."""
    return write(stepper, first, max_lengths, eos, lambda logits, live: logits.argmax(dim=-1))


def sample(
    stepper: Stepper,
    first: Tensor,
    max_lengths: Sequence[int],
    eos: int,
    filters: Sequence[Filter],
    draws: Sequence[np.random.Generator],
) -> list[Hypothesis]:
    """At each step a token drawn from softmax(filters(logits)), for each text from its own source of chance.

    The tokens lie side by side on a line, each as long as it is likely; a number from [0, 1) falls on one of them.
    """

    def draw(logits_NV: Tensor, live: Sequence[int]) -> Tensor:
        precision = torch.float32 if logits_NV.device.type == "mps" else torch.float64  # Apple's GPUs have no double
        logits_NV = logits_NV.to(precision)
        for apply in filters:
            logits_NV = apply(logits_NV)
        reached_NV = logits_NV.softmax(dim=-1).cumsum(dim=-1)
        total_N1 = reached_NV[:, -1:]
        if not total_N1.isfinite().all():
            raise DataError(NO_NUMBERS)
        u_N1 = torch.tensor([[draws[i].random()] for i in live], dtype=precision, device=logits_NV.device)
        # below the total, whatever is rounded: beyond it there is no token
        point_N1 = torch.minimum(u_N1 * total_N1, torch.nextafter(total_N1, torch.zeros_like(total_N1)))
        return torch.searchsorted(reached_NV, point_N1, right=True)[:, 0]

    return write(stepper, first, max_lengths, eos, draw)


def write(stepper: Stepper, first: Tensor, max_lengths: Sequence[int], eos: int, choose: Choose) -> list[Hypothesis]:
    """The loop that greedy search and sampling share. A row that ends leaves the batch, so the others go faster."""
    texts = [Writing(limit) for limit in max_lengths]
    live, tokens = list(range(len(texts))), first
    while live:
        logits_NV = stepper.step(tokens)
        tokens = choose(logits_NV, live)
        gained_N = logits_NV.log_softmax(dim=-1).gather(1, tokens[:, None])[:, 0]
        for i, token, gain in zip(live, tokens.tolist(), gained_N.tolist(), strict=True):
            texts[i].add(token, gain, eos)
        still = [row for row, i in enumerate(live) if not texts[i].is_over]
        if len(still) < len(live):
            rows = torch.tensor(still, dtype=torch.long, device=first.device)
            stepper.keep(rows)
            tokens, live = tokens[rows], [live[row] for row in still]
    return [Hypothesis(t.tokens, t.log_probability, t.log_probability, t.finished) for t in texts]


class Writing:
    """A text while it grows."""

    def __init__(self, max_length: int):
        self.max_length = max_length
        self.tokens: list[int] = []
        self.log_probability = 0.0
        self.finished = False

    def add(self, token: int, gain: float, eos: int) -> None:
        self.log_probability += gain
        self.finished = token == eos
        if not self.finished:
            self.tokens.append(token)

    @property
    def is_over(self) -> bool:
        return self.finished or len(self.tokens) >= self.max_length
