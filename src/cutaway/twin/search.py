"""How text comes out of the twin: greedy search and sampling; and how writers share the model's steps.

A *stepper* is a model in the middle of writing several texts, a row each. A *writer* looks after one text: it is shown
the logits of its rows, and says which of them go on, and with which token. All writers share the model's steps.

    writer A  row 0 ─┐                ┌─▶ logits 0    ──▶ A: row 0 goes on with 17
    writer B  row 1 ─┼─▶ one step ────┼─▶ logits 1, 2 ──▶ B: row 2 goes on with 5, and with 9
              row 2 ─┘                └
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np

from cutaway.errors import DataError
from cutaway.search.request import NO_NUMBERS, NOTHING_ALLOWED, Hypothesis, Search, Wanted
from cutaway.twin.ops import Array, log_softmax, softmax
from cutaway.twin.rules import Rules
from cutaway.twin.stepper import Stepper


class Continuation(NamedTuple):
    """How a writer goes on: with these of its rows (none: it is done), each with its next token."""

    rows: list[int]
    tokens: list[int]


DONE = Continuation([], [])


class SearchTask(NamedTuple):
    """What a writer is to write."""

    limit: int  # tokens of its own, </s> counted
    forced: Sequence[int]  # what it begins with, whatever it would choose
    rules: Rules
    search: Search
    source_length: int = 0  # of a translation


class TextSearch(Protocol):
    def extend(self, logits: Array, source_weights: Array | None) -> Continuation:
        """Logits [K,V] of the rows, and where they looked [K,S] -> how it goes on."""
        ...

    def best(self) -> list[Hypothesis]: ...


def run_searches(
    stepper: Stepper, first: Sequence[int], writers: Sequence[TextSearch], wanted: Wanted | None = None
) -> list[list[Hypothesis]]:
    """Let all writers write to their end, or as long as they are `wanted`; row i of the stepper is the first row of
    writer i."""
    live, widths, tokens = list(writers), [1] * len(writers), list(first)
    place = {id(writer): i for i, writer in enumerate(writers)}
    while live:
        logits_NV = stepper.step(np.array(tokens))
        looked_NS = getattr(stepper, "source_weights", None)
        choices, start = [], 0
        for writer, width in zip(live, widths, strict=True):
            own = slice(start, start + width)
            choice = writer.extend(logits_NV[own], None if looked_NS is None else looked_NS[own])
            choices.append((start, choice if wanted is None or wanted(place[id(writer)]) else DONE))
            start += width
        rows = [start + row for start, choice in choices for row in choice.rows]
        tokens = [token for _, choice in choices for token in choice.tokens]
        live = [writer for writer, (_, choice) in zip(live, choices, strict=True) if choice.rows]
        widths = [len(choice.rows) for _, choice in choices if choice.rows]
        if rows and rows != list(range(start)):
            stepper.keep(np.array(rows))
    return [writer.best() for writer in writers]


class GreedySearch:
    """A writer of one row, with no way back: greedy search, or sampling."""

    def __init__(self, task: SearchTask):
        self.task = task
        self.tokens: list[int] = []  # with those that it is forced to begin with
        self.gains: list[float] = []
        self.looks: list[Array] = []
        self.finished = False

    def choose(self, logits_V: Array) -> int:
        return int(logits_V.argmax())

    def extend(self, logits: Array, source_weights: Array | None) -> Continuation:
        task = self.task
        if len(self.tokens) < len(task.forced):
            self.tokens.append(task.forced[len(self.tokens)])
            return Continuation([0], self.tokens[-1:])
        logits_V = task.rules.apply(logits[0], self.tokens)
        if logits_V.max() == -np.inf:
            raise DataError(NOTHING_ALLOWED)
        token = self.choose(logits_V)
        self.gains.append(float(log_softmax(logits_V)[token]))
        if np.isnan(self.gains[-1]):
            raise DataError(NO_NUMBERS)
        if source_weights is not None:
            self.looks.append(source_weights[0])
        self.finished = token == task.search.eos
        if self.finished:
            return DONE
        self.tokens.append(token)
        heard = task.search.heard
        goes_on = heard is None or heard(task.rules.text, token, self.gains[-1])
        return Continuation([0], [token]) if goes_on and len(self.gains) < task.limit else DONE

    def best(self) -> list[Hypothesis]:
        total, tokens = sum(self.gains), self.tokens[len(self.task.forced) :]
        return [Hypothesis(tokens, total, total, self.finished, self.gains, source_alignment(self.task, self.looks))]


class SamplingSearch(GreedySearch):
    """Draws each token from softmax(logits / temperature), cut down to the k likeliest, to the nucleus p, and to those
    that are not too unlikely beside the likeliest.

    The draw is an inverse distribution function: a number u from [0, 1) falls into the stretch of one token.
    """

    def __init__(self, task: SearchTask, generator: np.random.Generator):
        super().__init__(task)
        self.decode, self.generator = task.search.decode, generator

    def choose(self, logits_V: Array) -> int:
        if not np.isfinite(logits_V.max()):  # -inf is a token that does not exist; NaN is greater than anything
            raise DataError(NO_NUMBERS)
        p_V, _ = softmax(self.allowed(logits_V.astype(np.float64) / self.decode.temperature))
        reached = p_V.cumsum()
        # below the total, whatever is rounded: beyond it there is no token
        point = min(self.generator.random() * reached[-1], np.nextafter(reached[-1], 0))
        return int(np.searchsorted(reached, point, side="right"))

    def allowed(self, logits_V: Array) -> Array:
        """-inf for tokens that may not be drawn."""
        if self.decode.top_k:
            kth = np.sort(logits_V)[-min(self.decode.top_k, len(logits_V))]
            logits_V = np.where(logits_V < kth, -np.inf, logits_V)
        if self.decode.top_p < 1:
            order = np.argsort(-logits_V, kind="stable")
            p_V, _ = softmax(logits_V[order])
            # a token is in the nucleus if those before it have not reached p; the first one always is
            outside = order[p_V.cumsum() - p_V >= self.decode.top_p]
            logits_V = logits_V.copy()
            logits_V[outside] = -np.inf
        if self.decode.min_p > 0:
            logits_V = np.where(logits_V < logits_V.max() + np.log(self.decode.min_p), -np.inf, logits_V)
        return logits_V


def source_alignment(task: SearchTask, looks: Sequence[Array]) -> list[list[float]] | None:
    """Where the model looked, without what a source was padded with."""
    return [look[: task.source_length].tolist() for look in looks] if task.search.aligned else None
