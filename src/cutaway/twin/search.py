"""Greedy search and sampling, and the loop in which all searches share the model's steps.

A *stepper* runs the model for several texts, one or more rows each. A *search* belongs to one text: it receives the
logits of its rows, and returns which rows continue and with which token.

    search A  row 0 ─┐                ┌─▶ logits 0    ──▶ A: row 0 continues with 17
    search B  row 1 ─┼─▶ one step ────┼─▶ logits 1, 2 ──▶ B: row 2 continues with 5, and with 9
              row 2 ─┘                └
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np

from cutaway.errors import DataError
from cutaway.search.request import NO_TOKEN_ALLOWED, NON_FINITE_LOGITS, Hypothesis, Search, ShouldContinue
from cutaway.twin.ops import Array, log_softmax, softmax
from cutaway.twin.rules import Rules
from cutaway.twin.stepper import Stepper


class Continuation(NamedTuple):
    """The rows of a search that continue, each with its next token. No rows: the search has ended."""

    rows: list[int]
    tokens: list[int]


DONE = Continuation([], [])


class SearchTask(NamedTuple):
    """The input of one search."""

    limit: int  # largest number of new tokens, </s> included
    forced: Sequence[int]  # tokens that the output must start with
    rules: Rules
    search: Search
    source_length: int = 0  # translation only


class TextSearch(Protocol):
    def extend(self, logits: Array, source_weights: Array | None) -> Continuation:
        """Logits [K,V] and cross-attention weights [K,S] of this search's rows -> the rows that continue."""
        ...

    def best(self) -> list[Hypothesis]: ...


def run_searches(
    stepper: Stepper,
    first: Sequence[int],
    searches: Sequence[TextSearch],
    should_continue: ShouldContinue | None = None,
) -> list[list[Hypothesis]]:
    """Run all searches until each has ended or `should_continue` is False for it.

    Row i of the stepper is the first row of search i; it starts with the token first[i].
    """
    live, widths, tokens = list(searches), [1] * len(searches), list(first)
    index_of = {id(search): i for i, search in enumerate(searches)}
    while live:
        logits_NV = stepper.step(np.array(tokens))
        weights_NS = getattr(stepper, "source_weights", None)
        continuations, start = [], 0
        for search, width in zip(live, widths, strict=True):
            rows_of_search = slice(start, start + width)
            extended = search.extend(
                logits_NV[rows_of_search], None if weights_NS is None else weights_NS[rows_of_search]
            )
            is_stopped = should_continue is not None and not should_continue(index_of[id(search)])
            continuations.append((start, DONE if is_stopped else extended))
            start += width
        rows = [start + row for start, extended in continuations for row in extended.rows]
        tokens = [token for _, extended in continuations for token in extended.tokens]
        live = [search for search, (_, extended) in zip(live, continuations, strict=True) if extended.rows]
        widths = [len(extended.rows) for _, extended in continuations if extended.rows]
        if rows and rows != list(range(start)):
            stepper.keep(np.array(rows))
    return [search.best() for search in searches]


class GreedySearch:
    """Choose the most probable token at each step. One row."""

    def __init__(self, task: SearchTask):
        self.task = task
        self.tokens: list[int] = []  # with the forced tokens
        self.token_log_probs: list[float] = []
        self.source_weights: list[Array] = []
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
            raise DataError(NO_TOKEN_ALLOWED)
        token = self.choose(logits_V)
        log_p = float(log_softmax(logits_V)[token])
        if np.isnan(log_p):
            raise DataError(NON_FINITE_LOGITS)
        self.token_log_probs.append(log_p)
        if source_weights is not None:
            self.source_weights.append(source_weights[0])
        self.finished = token == task.search.eos
        if self.finished:
            return DONE
        self.tokens.append(token)
        on_token = task.search.on_token
        is_stopped = on_token is not None and not on_token(task.rules.text, token, log_p)
        return DONE if is_stopped or len(self.token_log_probs) >= task.limit else Continuation([0], [token])

    def best(self) -> list[Hypothesis]:
        total, tokens = sum(self.token_log_probs), self.tokens[len(self.task.forced) :]
        alignment = source_alignment(self.task, self.source_weights)
        return [Hypothesis(tokens, total, total, self.finished, self.token_log_probs, alignment)]


class SamplingSearch(GreedySearch):
    """Sample each token from softmax(logits / temperature), restricted by top-k, top-p and min-p.

    Inverse transform sampling: a random u in [0, 1) selects the first token whose cumulative probability exceeds u.
    """

    def __init__(self, task: SearchTask, generator: np.random.Generator):
        super().__init__(task)
        self.decode, self.generator = task.search.decode, generator

    def choose(self, logits_V: Array) -> int:
        if not np.isfinite(logits_V.max()):  # the maximum is NaN if any logit is NaN
            raise DataError(NON_FINITE_LOGITS)
        p_V, _ = softmax(self.filter(logits_V.astype(np.float64) / self.decode.temperature))
        cumulative_V = p_V.cumsum()
        # keep u below the total, also after rounding
        u = min(self.generator.random() * cumulative_V[-1], np.nextafter(cumulative_V[-1], 0))
        return int(np.searchsorted(cumulative_V, u, side="right"))

    def filter(self, logits_V: Array) -> Array:
        """Set the logits of tokens outside top-k, top-p or min-p to -inf."""
        if self.decode.top_k:
            kth = np.sort(logits_V)[-min(self.decode.top_k, len(logits_V))]
            logits_V = np.where(logits_V < kth, -np.inf, logits_V)
        if self.decode.top_p < 1:
            order = np.argsort(-logits_V, kind="stable")
            p_V, _ = softmax(logits_V[order])
            # keep a token if the more probable tokens sum to less than top_p; the first is always kept
            outside = order[p_V.cumsum() - p_V >= self.decode.top_p]
            logits_V = logits_V.copy()
            logits_V[outside] = -np.inf
        if self.decode.min_p > 0:
            logits_V = np.where(logits_V < logits_V.max() + np.log(self.decode.min_p), -np.inf, logits_V)
        return logits_V


def source_alignment(task: SearchTask, source_weights: Sequence[Array]) -> list[list[float]] | None:
    """The cross-attention weights of each generated token, without the padding of the source."""
    if not task.search.with_alignment:
        return None
    return [weights_S[: task.source_length].tolist() for weights_S in source_weights]
