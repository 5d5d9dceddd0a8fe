"""How text comes out of the twin: greedy search, sampling, beam search.

A *stepper* is a model in the middle of writing several texts, a row each: `step` takes the token just written in each
row and gives the logits of the next; `keep` drops, repeats or reorders rows. A *writer* looks after one text: it is
shown the logits of its rows, and says which of them go on, and with which token. All writers share the model's steps.

    writer A  row 0 ─┐                ┌─▶ logits 0    ──▶ A: row 0 goes on with 17
    writer B  row 1 ─┼─▶ one step ────┼─▶ logits 1, 2 ──▶ B: row 2 goes on with 5, and with 9
              row 2 ─┘                └
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np

from cutaway.config import DecodeConfig
from cutaway.decode.request import NO_NUMBERS, Hypothesis
from cutaway.errors import DataError
from cutaway.twin.model import DecoderOnly, EncoderDecoder
from cutaway.twin.ops import Array, log_softmax, softmax
from cutaway.twin.parts import Variable


class Stepper(Protocol):
    def step(self, tokens: Array) -> Array: ...
    def keep(self, rows: Array) -> None: ...


class TranslationStepper:
    """An EncoderDecoder writing translations of source [B,S]: it reads once, then takes a cached step a token."""

    def __init__(self, model: EncoderDecoder, source: Array, source_mask: Array | None):
        self.model, self.source_mask, self.cache = model, source_mask, model.new_cache()
        self.memory = Variable(model.encode(source, source_mask, one_way=True)[0])
        self.text_of_row = np.arange(len(source))

    def step(self, tokens: Array) -> Array:
        x_N1D, _ = self.model.decode(tokens[:, None], self.memory, self.source_mask, cache=self.cache)
        return self.model.head(x_N1D[:, 0])[0]

    def keep(self, rows: Array) -> None:
        before, self.text_of_row = self.text_of_row, self.text_of_row[rows]
        same_texts = np.array_equal(before, self.text_of_row)  # then every row looks at the source that it looked at
        self.cache.keep(rows, crossed=not same_texts)
        if self.source_mask is not None and not same_texts:
            self.source_mask = self.source_mask[rows]


class TextStepper:
    """A DecoderOnly going on with prompts [B,T]; their last token is left for the first step."""

    def __init__(self, model: DecoderOnly, prompts: Array):
        self.model, self.cache = model, model.new_cache()
        if prompts.shape[1] > 1:
            model.decode(prompts[:, :-1], cache=self.cache)

    def step(self, tokens: Array) -> Array:
        return self.model.head(self.model.decode(tokens[:, None], cache=self.cache)[0][:, 0])[0]

    def keep(self, rows: Array) -> None:
        self.cache.keep(rows)


class Without:
    """A stepper for which some tokens do not exist."""

    def __init__(self, stepper: Stepper, suppressed: Sequence[int]):
        self.stepper, self.suppressed = stepper, list(suppressed)

    def step(self, tokens: Array) -> Array:
        logits_NV = self.stepper.step(tokens).copy()
        logits_NV[:, self.suppressed] = -np.inf
        return logits_NV

    def keep(self, rows: Array) -> None:
        self.stepper.keep(rows)


class Choice(NamedTuple):
    """How a writer goes on: with these of its rows (none: it is done), each with its next token."""

    rows: list[int]
    tokens: list[int]


DONE = Choice([], [])


class Writer(Protocol):
    def extend(self, logits: Array) -> Choice: ...
    def best(self) -> list[Hypothesis]: ...


def write(stepper: Stepper, first: Sequence[int], writers: Sequence[Writer]) -> list[list[Hypothesis]]:
    """Let all writers write to their end; row i of the stepper is the first row of writer i."""
    live, widths, tokens = list(writers), [1] * len(writers), list(first)
    while live:
        logits_NV = stepper.step(np.array(tokens))
        choices, start = [], 0
        for writer, width in zip(live, widths, strict=True):
            choices.append((start, writer.extend(logits_NV[start : start + width])))
            start += width
        rows = [start + row for start, choice in choices for row in choice.rows]
        tokens = [token for _, choice in choices for token in choice.tokens]
        live = [writer for writer, (_, choice) in zip(live, choices, strict=True) if choice.rows]
        widths = [len(choice.rows) for _, choice in choices if choice.rows]
        if rows and rows != list(range(start)):
            stepper.keep(np.array(rows))
    return [writer.best() for writer in writers]


class Line:
    """A writer of one row, with no way back: greedy search, or sampling."""

    def __init__(self, limit: int, eos: int):
        self.limit, self.eos = limit, eos
        self.tokens: list[int] = []
        self.log_probability = 0.0
        self.finished = False

    def choose(self, logits_V: Array) -> int:
        return int(logits_V.argmax())

    def extend(self, logits: Array) -> Choice:
        token = self.choose(logits[0])
        self.log_probability += float(log_softmax(logits[0])[token])
        self.finished = token == self.eos
        if not self.finished:
            self.tokens.append(token)
        is_over = self.finished or len(self.tokens) >= self.limit
        return DONE if is_over else Choice([0], [token])

    def best(self) -> list[Hypothesis]:
        return [Hypothesis(self.tokens, self.log_probability, self.log_probability, self.finished)]


class Sample(Line):
    """Draws each token from softmax(logits / temperature), cut down to the k likeliest and to the nucleus p.

    The draw is an inverse distribution function: a number u from [0, 1) falls into the stretch of one token.
    """

    def __init__(self, limit: int, eos: int, decode: DecodeConfig, draw: np.random.Generator):
        super().__init__(limit, eos)
        self.decode, self.draw = decode, draw

    def choose(self, logits_V: Array) -> int:
        if not np.isfinite(logits_V.max()):  # -inf is a token that does not exist; NaN is greater than anything
            raise DataError(NO_NUMBERS)
        p_V, _ = softmax(self.allowed(logits_V.astype(np.float64) / self.decode.temperature))
        reached = p_V.cumsum()
        # below the total, whatever is rounded: beyond it there is no token
        point = min(self.draw.random() * reached[-1], np.nextafter(reached[-1], 0))
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
        return logits_V


class Beam:
    """Follows the k likeliest beginnings, and keeps every whole text that it comes across.

    score(y) = log p(y) / ((5 + |y|) / 6)^α, where |y| counts </s>. At each step, the k likeliest extensions by a token
    go on; an extension by </s> is found, a whole text, if fewer than k of those are likelier. At the limit, what would
    go on is found as it is. The search is over when no beginning can still reach the worst of the n best.
    """

    def __init__(self, limit: int, eos: int, size: int, alpha: float, n_best: int):
        self.limit, self.eos, self.size, self.alpha, self.n_best = limit, eos, size, alpha, n_best
        self.prefixes: list[list[int]] = [[]]
        self.log_p_K = np.zeros(1)
        self.found: list[Hypothesis] = []

    def extend(self, logits: Array) -> Choice:
        total_KV = self.log_p_K[:, None] + log_softmax(logits)
        ended_K = total_KV[:, self.eos].copy()
        total_KV[:, self.eos] = -np.inf
        best = likeliest(total_KV.ravel(), self.size)
        rows, tokens = (best // total_KV.shape[1]).tolist(), (best % total_KV.shape[1]).tolist()
        self.log_p_K = total_KV.ravel()[best]
        length = len(self.prefixes[0]) + 1
        # an end is found if fewer than k of those that go on are likelier than it
        threshold = self.log_p_K[-1] if len(best) == self.size else -np.inf
        for prefix, log_p in zip(self.prefixes, ended_K.tolist(), strict=True):
            if log_p >= threshold and log_p > -np.inf:
                self.note(prefix, log_p, length, finished=True)
        self.prefixes = [[*self.prefixes[row], token] for row, token in zip(rows, tokens, strict=True)]
        if length == self.limit:
            for prefix, log_p in zip(self.prefixes, self.log_p_K.tolist(), strict=True):
                if log_p > -np.inf:
                    self.note(prefix, log_p, length, finished=False)
        return DONE if length == self.limit or self.is_settled() else Choice(rows, tokens)

    def note(self, tokens: list[int], log_p: float, length: int, finished: bool) -> None:
        self.found.append(Hypothesis(tokens, log_p, log_p / self.penalty(length), finished))

    def is_settled(self) -> bool:
        """A beginning only gets less likely, so the best it can reach is its log p over the greatest penalty."""
        if self.log_p_K[0] == -np.inf:
            return True
        if len(self.found) < self.n_best:
            return False
        return self.size == 1 or self.best()[-1].score >= self.log_p_K[0] / self.penalty(self.limit)

    def penalty(self, length: int) -> float:
        return float(((5 + length) / 6) ** self.alpha)

    def best(self) -> list[Hypothesis]:
        return sorted(self.found, key=lambda text: text.score, reverse=True)[: self.n_best]


def likeliest(x: Array, k: int) -> Array:
    """The indices of the k greatest numbers, greatest first."""
    k = min(k, len(x))
    top = np.argpartition(-x, k - 1)[:k]
    return top[np.argsort(-x[top], kind="stable")]
