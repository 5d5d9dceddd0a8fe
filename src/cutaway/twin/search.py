"""How text comes out of the twin: greedy search, sampling, beam search.

A *stepper* is a model in the middle of writing several texts, a row each: `step` takes the token just written in each
row and gives the logits of the next; `keep` drops, repeats or reorders rows. A *writer* looks after one text: it is
shown the logits of its rows, and says which of them go on, and with which token. All writers share the model's steps.

    writer A  row 0 ─┐                ┌─▶ logits 0    ──▶ A: row 0 goes on with 17
    writer B  row 1 ─┼─▶ one step ────┼─▶ logits 1, 2 ──▶ B: row 2 goes on with 5, and with 9
              row 2 ─┘                └
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import NamedTuple, Protocol

import numpy as np

from cutaway.decode.request import NO_NUMBERS, NOTHING_ALLOWED, Hypothesis, Search, Wanted
from cutaway.errors import DataError
from cutaway.twin.model import DecoderOnly, EncoderDecoder
from cutaway.twin.ops import Array, log_softmax, softmax
from cutaway.twin.parts import Variable
from cutaway.twin.rules import Rules

LEAST = 1e-9  # where the model looked less, it counts as this much, so that no score is infinite
LOOKING = threading.Lock()  # a probe has one listener, and a model may be at work in several threads


class Stepper(Protocol):
    def step(self, tokens: Array) -> Array: ...
    def keep(self, rows: Array) -> None: ...


class TranslationStepper:
    """An EncoderDecoder writing translations of source [B,S]: it reads once, then takes a cached step a token.

    If asked, it tells where it looked in its last step: `looked` [N,S], of the last layer, averaged over the heads.
    """

    def __init__(self, model: EncoderDecoder, source: Array, source_mask: Array | None, is_looking: bool = False):
        self.model, self.source_mask, self.cache = model, source_mask, model.new_cache()
        self.memory = Variable(model.encode(source, source_mask, one_way=True)[0])
        self.text_of_row = np.arange(len(source))
        self.is_looking = is_looking
        self.looked: Array | None = None

    def step(self, tokens: Array) -> Array:
        with self.watched() if self.is_looking else nullcontext():
            x_N1D, _ = self.model.decode(tokens[:, None], self.memory, self.source_mask, cache=self.cache)
        return self.model.head(x_N1D[:, 0])[0]

    @contextmanager
    def watched(self) -> Iterator[None]:
        attention, mine = self.model.decoder.layers[-1].cross_attention, threading.get_ident()
        assert attention is not None, "a decoder that translates looks at the source"

        def note(which: str, weights_NHQS: Array) -> None:
            if threading.get_ident() == mine:
                self.looked = weights_NHQS.mean(axis=1)[:, 0]

        with LOOKING:
            attention.weights.note = note
            try:
                yield
            finally:
                attention.weights.note = None

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


class Choice(NamedTuple):
    """How a writer goes on: with these of its rows (none: it is done), each with its next token."""

    rows: list[int]
    tokens: list[int]


DONE = Choice([], [])


class Task(NamedTuple):
    """What a writer is to write."""

    limit: int  # tokens of its own, </s> counted
    forced: Sequence[int]  # what it begins with, whatever it would choose
    rules: Rules
    search: Search
    source_length: int = 0  # of a translation


class Writer(Protocol):
    def extend(self, logits: Array, looked: Array | None) -> Choice:
        """Logits [K,V] of the rows, and where they looked [K,S] -> how it goes on."""
        ...

    def best(self) -> list[Hypothesis]: ...


def write(
    stepper: Stepper, first: Sequence[int], writers: Sequence[Writer], wanted: Wanted | None = None
) -> list[list[Hypothesis]]:
    """Let all writers write to their end, or as long as they are `wanted`; row i of the stepper is the first row of
    writer i."""
    live, widths, tokens = list(writers), [1] * len(writers), list(first)
    place = {id(writer): i for i, writer in enumerate(writers)}
    while live:
        logits_NV = stepper.step(np.array(tokens))
        looked_NS = getattr(stepper, "looked", None)
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


class Line:
    """A writer of one row, with no way back: greedy search, or sampling."""

    def __init__(self, task: Task):
        self.task = task
        self.tokens: list[int] = []  # with those that it is forced to begin with
        self.gains: list[float] = []
        self.looks: list[Array] = []
        self.finished = False

    def choose(self, logits_V: Array) -> int:
        return int(logits_V.argmax())

    def extend(self, logits: Array, looked: Array | None) -> Choice:
        task = self.task
        if len(self.tokens) < len(task.forced):
            self.tokens.append(task.forced[len(self.tokens)])
            return Choice([0], self.tokens[-1:])
        logits_V = task.rules.changed(logits[0], self.tokens)
        if logits_V.max() == -np.inf:
            raise DataError(NOTHING_ALLOWED)
        token = self.choose(logits_V)
        self.gains.append(float(log_softmax(logits_V)[token]))
        if np.isnan(self.gains[-1]):
            raise DataError(NO_NUMBERS)
        if looked is not None:
            self.looks.append(looked[0])
        self.finished = token == task.search.eos
        if self.finished:
            return DONE
        self.tokens.append(token)
        heard = task.search.heard
        goes_on = heard is None or heard(task.rules.text, token, self.gains[-1])
        return Choice([0], [token]) if goes_on and len(self.gains) < task.limit else DONE

    def best(self) -> list[Hypothesis]:
        total, tokens = sum(self.gains), self.tokens[len(self.task.forced) :]
        return [Hypothesis(tokens, total, total, self.finished, self.gains, aligned(self.task, self.looks))]


class Sample(Line):
    """Draws each token from softmax(logits / temperature), cut down to the k likeliest, to the nucleus p, and to those
    that are not too unlikely beside the likeliest.

    The draw is an inverse distribution function: a number u from [0, 1) falls into the stretch of one token.
    """

    def __init__(self, task: Task, draw: np.random.Generator):
        super().__init__(task)
        self.decode, self.draw = task.search.decode, draw

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
        if self.decode.min_p > 0:
            logits_V = np.where(logits_V < logits_V.max() + np.log(self.decode.min_p), -np.inf, logits_V)
        return logits_V


class Beginning(NamedTuple):
    """A beginning that a beam follows: its tokens (with those that it is forced to begin with), how much each of its
    own gained, and where the model looked for each token."""

    tokens: list[int]
    gains: list[float]
    looks: list[Array]


class Beam:
    """Follows the k likeliest beginnings, and keeps every whole text that it comes across.

    score(y) = log p(y) / ((5 + |y|) / 6)^α + β Σ_i log(min(Σ_j a_ij, 1)), where |y| counts </s>, and a_ij says how much
    the model looked at token i of the source for token j. At each step, the k likeliest extensions by a token go on; an
    extension by </s> is found, a whole text, if fewer than k of those are likelier. At the limit, what would go on is
    found as it is. The search is over when no beginning can still reach the worst of the n best.
    """

    def __init__(self, task: Task):
        self.task, self.size, self.n_best = task, task.search.decode.beam_size, task.search.n_best
        self.live = [Beginning([], [], [])]
        self.log_p_K = np.zeros(1)
        self.found: list[Hypothesis] = []

    def extend(self, logits: Array, looked: Array | None) -> Choice:
        task, live, eos = self.task, self.live, self.task.search.eos
        looks = [None] * len(live) if looked is None else list(looked)
        if (length := len(live[0].tokens)) < len(task.forced):
            self.live = [longer(live[0], task.forced[length], None, looks[0])]
            return Choice([0], self.live[0].tokens[-1:])
        gain_KV = np.stack([gains_of(task.rules.changed(x, b.tokens)) for x, b in zip(logits, live, strict=True)])
        if np.isnan(gain_KV[0, 0]):
            raise DataError(NO_NUMBERS)
        total_KV = self.log_p_K[:, None] + gain_KV
        ended_K = total_KV[:, eos].copy()
        total_KV[:, eos] = -np.inf
        best = likeliest(total_KV.ravel(), self.size)
        rows, tokens = (best // total_KV.shape[1]).tolist(), (best % total_KV.shape[1]).tolist()
        self.log_p_K = total_KV.ravel()[best]
        # an end is found if fewer than k of those that go on are likelier than it
        threshold = self.log_p_K[-1] if len(best) == self.size else -np.inf
        for row, log_p in enumerate(ended_K.tolist()):
            if log_p >= threshold and log_p > -np.inf:
                self.note(longer(live[row], None, float(gain_KV[row, eos]), looks[row]), log_p, finished=True)
        extended = zip(rows, tokens, self.log_p_K.tolist(), strict=True)
        alive = [(row, token, log_p) for row, token, log_p in extended if log_p != -np.inf]
        self.live = [longer(live[row], token, float(gain_KV[row, token]), looks[row]) for row, token, _ in alive]
        self.log_p_K = np.array([log_p for _, _, log_p in alive])
        if is_cut := length + 1 - len(task.forced) == task.limit:
            for beginning, log_p in zip(self.live, self.log_p_K.tolist(), strict=True):
                if log_p > -np.inf:  # and not NaN
                    self.note(beginning, log_p, finished=False)
        is_over = is_cut or self.is_settled()
        return DONE if is_over else Choice([row for row, _, _ in alive], [token for _, token, _ in alive])

    def note(self, text: Beginning, log_p: float, finished: bool) -> None:
        n = len(self.task.forced)
        score = log_p / self.penalty(len(text.gains)) + self.coverage_penalty(text.looks)
        alignment = aligned(self.task, text.looks[n:])
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


def longer(beginning: Beginning, token: int | None, gain: float | None, look: Array | None) -> Beginning:
    """By a token that is forced (None: no gain) or chosen; by </s> (None), which is no token of the text."""
    tokens, gains, looks = beginning
    return Beginning(
        tokens if token is None else [*tokens, token],
        gains if gain is None else [*gains, gain],
        looks if look is None else [*looks, look],
    )


def gains_of(logits_V: Array) -> Array:
    """log softmax; where every token is forbidden, nothing is gained."""
    return logits_V if logits_V.max() == -np.inf else log_softmax(logits_V)


def aligned(task: Task, looks: Sequence[Array]) -> list[list[float]] | None:
    """Where the model looked, without what a source was padded with."""
    return [look[: task.source_length].tolist() for look in looks] if task.search.aligned else None


def likeliest(x: Array, k: int) -> Array:
    """The indices of the k greatest numbers, greatest first."""
    k = min(k, len(x))
    top = np.argpartition(-x, k - 1)[:k]
    return top[np.argsort(-x[top], kind="stable")]
