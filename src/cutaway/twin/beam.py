"""Beam search, one text at a time. Exactly the search of decode/beam.py, where it is done with tensors for all at once.

score(y) = log p(y) / ((5 + |y|) / 6)^α + β Σ_i log(min(Σ_j a_ij, 1)), where |y| counts </s>, and a_ij says how much
the model looked at token i of the source for token j. At each step, the k likeliest extensions by a token go on; an
extension by </s> is found, a whole text, if fewer than k of those are likelier. At the limit, what would go on is found
as it is. The search is over when no beginning can still reach the worst of the n best.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from cutaway.errors import DataError
from cutaway.search.request import NO_NUMBERS, NOTHING_ALLOWED, Hypothesis
from cutaway.twin.ops import Array, log_softmax
from cutaway.twin.search import DONE, Continuation, SearchTask, source_alignment

LEAST = 1e-9  # where the model looked less, it counts as this much, so that no score is infinite


class BeamPrefix(NamedTuple):
    """A beginning that a beam follows: its tokens (with those that it is forced to begin with), how much each of its
    own gained, and where the model looked for each token."""

    tokens: list[int]
    gains: list[float]
    looks: list[Array]


class Beam:
    """A writer that follows the k likeliest beginnings, and keeps every whole text that it comes across."""

    def __init__(self, task: SearchTask):
        self.task, self.size, self.n_best = task, task.search.decode.beam_size, task.search.n_best
        self.live = [BeamPrefix([], [], [])]
        self.log_p_K = np.zeros(1)
        self.found: list[Hypothesis] = []

    def extend(self, logits: Array, source_weights: Array | None) -> Continuation:
        task, live, eos = self.task, self.live, self.task.search.eos
        looks = [None] * len(live) if source_weights is None else list(source_weights)
        if (length := len(live[0].tokens)) < len(task.forced):
            self.live = [extend_prefix(live[0], task.forced[length], None, looks[0])]
            return Continuation([0], self.live[0].tokens[-1:])
        gain_KV = np.stack(
            [log_probabilities(task.rules.apply(x, b.tokens)) for x, b in zip(logits, live, strict=True)]
        )
        if np.isnan(gain_KV[0, 0]):
            raise DataError(NO_NUMBERS)
        total_KV = self.log_p_K[:, None] + gain_KV
        ended_K = total_KV[:, eos].copy()
        total_KV[:, eos] = -np.inf
        best = argtopk(total_KV.ravel(), self.size)
        rows, tokens = (best // total_KV.shape[1]).tolist(), (best % total_KV.shape[1]).tolist()
        self.log_p_K = total_KV.ravel()[best]
        # an end is found if fewer than k of those that go on are likelier than it
        threshold = self.log_p_K[-1] if len(best) == self.size else -np.inf
        for row, log_p in enumerate(ended_K.tolist()):
            if log_p >= threshold and log_p > -np.inf:
                self.note(extend_prefix(live[row], None, float(gain_KV[row, eos]), looks[row]), log_p, finished=True)
        extended = zip(rows, tokens, self.log_p_K.tolist(), strict=True)
        alive = [(row, token, log_p) for row, token, log_p in extended if log_p != -np.inf]
        self.live = [extend_prefix(live[row], token, float(gain_KV[row, token]), looks[row]) for row, token, _ in alive]
        self.log_p_K = np.array([log_p for _, _, log_p in alive])
        if is_cut := length + 1 - len(task.forced) == task.limit:
            for beginning, log_p in zip(self.live, self.log_p_K.tolist(), strict=True):
                if log_p > -np.inf:  # and not NaN
                    self.note(beginning, log_p, finished=False)
        is_over = is_cut or self.is_settled()
        return DONE if is_over else Continuation([row for row, _, _ in alive], [token for _, token, _ in alive])

    def note(self, text: BeamPrefix, log_p: float, finished: bool) -> None:
        n = len(self.task.forced)
        score = log_p / self.penalty(len(text.gains)) + self.coverage_penalty(text.looks)
        alignment = source_alignment(self.task, text.looks[n:])
        self.found.append(Hypothesis(text.tokens[n:], log_p, score, finished, text.gains, alignment))

    def is_settled(self) -> bool:
        """A beginning only gets less likely, so the best it can reach is its log p over the greatest penalty."""
        if not self.live:
            return True
        if len(self.found) < self.n_best:
            return False
        return self.size == 1 or self.best()[-1].score >= self.log_p_K[0] / self.penalty(self.task.limit)

    def penalty(self, length: int) -> float:
        return float(((5 + length) / 6) ** self.task.search.decode.length_penalty)

    def coverage_penalty(self, looks: Sequence[Array]) -> float:
        if not self.task.search.has_coverage:
            return 0.0
        covered_S = np.sum(looks, axis=0)[: self.task.source_length]
        return float(self.task.search.decode.coverage_penalty * np.log(np.clip(covered_S, LEAST, 1)).sum())

    def best(self) -> list[Hypothesis]:
        if not self.found and not self.live:
            raise DataError(NOTHING_ALLOWED)
        return sorted(self.found, key=lambda text: text.score, reverse=True)[: self.n_best]


def extend_prefix(beginning: BeamPrefix, token: int | None, gain: float | None, look: Array | None) -> BeamPrefix:
    """By a token that is forced (None: no gain) or chosen; by </s> (None), which is no token of the text."""
    tokens, gains, looks = beginning
    return BeamPrefix(
        tokens if token is None else [*tokens, token],
        gains if gain is None else [*gains, gain],
        looks if look is None else [*looks, look],
    )


def log_probabilities(logits_V: Array) -> Array:
    """log softmax; where every token is forbidden, nothing is gained."""
    return logits_V if logits_V.max() == -np.inf else log_softmax(logits_V)


def argtopk(x: Array, k: int) -> Array:
    """The indices of the k greatest numbers, greatest first."""
    k = min(k, len(x))
    top = np.argpartition(-x, k - 1)[:k]
    return top[np.argsort(-x[top], kind="stable")]
