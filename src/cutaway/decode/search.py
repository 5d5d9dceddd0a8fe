"""Writing one token after the other, with no way back: greedily, or by drawing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from cutaway.decode.filters import Filter
from cutaway.decode.stepper import Stepper

Choose = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Hypothesis:
    """A text that a search has written.

    tokens            without <s> and </s>
    log_probability   the sum over its tokens, </s> included
    score             what the search ranks by: here the same; in beam search with the length penalty
    finished          ended by </s>, rather than cut off at the greatest length
    """

    tokens: list[int]
    log_probability: float
    score: float
    finished: bool


def greedy(stepper: Stepper, first: Tensor, max_lengths: Sequence[int], eos: int) -> list[Hypothesis]:
    """At each step the likeliest token. `first` [B] is what a row begins with, and `max_lengths` count </s>."""
    return write(stepper, first, max_lengths, eos, lambda logits: logits.argmax(dim=-1))


def sample(
    stepper: Stepper,
    first: Tensor,
    max_lengths: Sequence[int],
    eos: int,
    filters: Sequence[Filter] = (),
    generator: torch.Generator | None = None,
) -> list[Hypothesis]:
    """At each step a token drawn from softmax(filters(logits))."""

    def draw(logits_NV: Tensor) -> Tensor:
        for apply in filters:
            logits_NV = apply(logits_NV)
        return torch.multinomial(logits_NV.softmax(dim=-1), 1, generator=generator)[:, 0]

    return write(stepper, first, max_lengths, eos, draw)


def write(stepper: Stepper, first: Tensor, max_lengths: Sequence[int], eos: int, choose: Choose) -> list[Hypothesis]:
    """The loop that greedy search and sampling share. A row that ends leaves the batch, so the others go faster."""
    texts = [Writing(limit) for limit in max_lengths]
    live, tokens = list(texts), first
    while live:
        logits_NV = stepper.step(tokens)
        tokens = choose(logits_NV)
        gained_N = logits_NV.log_softmax(dim=-1).gather(1, tokens[:, None])[:, 0]
        for text, token, gain in zip(live, tokens.tolist(), gained_N.tolist(), strict=True):
            text.add(token, gain, eos)
        still = [i for i, text in enumerate(live) if not text.is_over]
        if len(still) < len(live):
            rows = torch.tensor(still, dtype=torch.long, device=first.device)
            stepper.keep(rows)
            tokens, live = tokens[rows], [live[i] for i in still]
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
