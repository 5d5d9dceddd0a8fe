"""Beam search for one text at a time: the same search as decode/beam.py, which runs on tensors for a whole batch.

score(y) = log p(y) / ((5 + |y|) / 6)^α + β Σ_i log(min(Σ_j a_ij, 1))

|y| counts </s>. a_ij is the cross-attention weight of source token i when token j was generated. At each step:
1. The k most probable extensions by a token other than </s> stay in the beam.
2. An extension by </s> is a finished text if fewer than k of those extensions are more probable.
3. At the length limit, the texts in the beam are returned unfinished.
4. The search ends when no text in the beam can reach the score of the n-th best finished text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from cutaway.errors import DataError
from cutaway.search.request import NO_TOKEN_ALLOWED, NON_FINITE_LOGITS, Hypothesis
from cutaway.twin.ops import Array, log_softmax
from cutaway.twin.search import DONE, Continuation, SearchTask, source_alignment

MIN_COVERAGE = 1e-9  # lower bound of the coverage of a source token, so that log is finite


class BeamPrefix(NamedTuple):
    """An unfinished text in the beam."""

    tokens: list[int]  # with the forced tokens
    token_log_probs: list[float]  # without the forced tokens
    source_weights: list[Array]  # cross-attention weights for each token


class Beam:
    """Beam search: extends the k most probable unfinished texts, and collects finished ones."""

    def __init__(self, task: SearchTask):
        self.task, self.size, self.n_best = task, task.search.decode.beam_size, task.search.n_best
        self.live = [BeamPrefix([], [], [])]
        self.log_p_K = np.zeros(1)
        self.found: list[Hypothesis] = []

    def extend(self, logits: Array, source_weights: Array | None) -> Continuation:
        task, live, eos = self.task, self.live, self.task.search.eos
        weights = [None] * len(live) if source_weights is None else list(source_weights)
        if (length := len(live[0].tokens)) < len(task.forced):
            self.live = [extend_prefix(live[0], task.forced[length], None, weights[0])]
            return Continuation([0], self.live[0].tokens[-1:])
        token_log_p_KV = np.stack(
            [log_probabilities(task.rules.apply(x, prefix.tokens)) for x, prefix in zip(logits, live, strict=True)]
        )
        if np.isnan(token_log_p_KV[0, 0]):
            raise DataError(NON_FINITE_LOGITS)
        total_KV = self.log_p_K[:, None] + token_log_p_KV
        ended_K = total_KV[:, eos].copy()
        total_KV[:, eos] = -np.inf
        best = argtopk(total_KV.ravel(), self.size)
        rows, tokens = (best // total_KV.shape[1]).tolist(), (best % total_KV.shape[1]).tolist()
        self.log_p_K = total_KV.ravel()[best]
        # </s> ends a text if fewer than k of the other extensions are more probable
        threshold = self.log_p_K[-1] if len(best) == self.size else -np.inf
        for row, log_p in enumerate(ended_K.tolist()):
            if log_p >= threshold and log_p > -np.inf:
                text = extend_prefix(live[row], None, float(token_log_p_KV[row, eos]), weights[row])
                self.add_found(text, log_p, finished=True)
        extended = zip(rows, tokens, self.log_p_K.tolist(), strict=True)
        alive = [(row, token, log_p) for row, token, log_p in extended if log_p != -np.inf]
        self.live = [
            extend_prefix(live[row], token, float(token_log_p_KV[row, token]), weights[row]) for row, token, _ in alive
        ]
        self.log_p_K = np.array([log_p for _, _, log_p in alive])
        if is_at_limit := length + 1 - len(task.forced) == task.limit:
            for prefix, log_p in zip(self.live, self.log_p_K.tolist(), strict=True):
                if log_p > -np.inf:  # False for NaN
                    self.add_found(prefix, log_p, finished=False)
        if is_at_limit or self.is_settled():
            return DONE
        return Continuation([row for row, _, _ in alive], [token for _, token, _ in alive])

    def add_found(self, text: BeamPrefix, log_p: float, finished: bool) -> None:
        n = len(self.task.forced)
        score = log_p / self.length_penalty(len(text.token_log_probs)) + self.coverage_penalty(text.source_weights)
        alignment = source_alignment(self.task, text.source_weights[n:])
        self.found.append(Hypothesis(text.tokens[n:], log_p, score, finished, text.token_log_probs, alignment))

    def is_settled(self) -> bool:
        """Whether no text in the beam can still improve the n best.

        log p only decreases as a text grows, so its score is at most log p / (largest length penalty).
        """
        if not self.live:
            return True
        if len(self.found) < self.n_best:
            return False
        return self.size == 1 or self.best()[-1].score >= self.log_p_K[0] / self.length_penalty(self.task.limit)

    def length_penalty(self, length: int) -> float:
        return float(((5 + length) / 6) ** self.task.search.decode.length_penalty)

    def coverage_penalty(self, source_weights: Sequence[Array]) -> float:
        if not self.task.search.has_coverage:
            return 0.0
        coverage_S = np.sum(source_weights, axis=0)[: self.task.source_length]
        return float(self.task.search.decode.coverage_penalty * np.log(np.clip(coverage_S, MIN_COVERAGE, 1)).sum())

    def best(self) -> list[Hypothesis]:
        if not self.found and not self.live:
            raise DataError(NO_TOKEN_ALLOWED)
        return sorted(self.found, key=lambda text: text.score, reverse=True)[: self.n_best]


def extend_prefix(prefix: BeamPrefix, token: int | None, log_p: float | None, weights_S: Array | None) -> BeamPrefix:
    """Append a token with its log-probability. token None: </s>, which is not stored; log_p None: a forced token."""
    tokens, token_log_probs, source_weights = prefix
    return BeamPrefix(
        tokens if token is None else [*tokens, token],
        token_log_probs if log_p is None else [*token_log_probs, log_p],
        source_weights if weights_S is None else [*source_weights, weights_S],
    )


def log_probabilities(logits_V: Array) -> Array:
    """log softmax; -inf everywhere if all tokens are forbidden."""
    return logits_V if logits_V.max() == -np.inf else log_softmax(logits_V)


def argtopk(x: Array, k: int) -> Array:
    """The indices of the k largest numbers, largest first."""
    k = min(k, len(x))
    top = np.argpartition(-x, k - 1)[:k]
    return top[np.argsort(-x[top], kind="stable")]
