"""Rules that change the logits before the softmax. The order is the same for all strategies:

    repetition_penalty   the logit x of each token in the history becomes x / r if x > 0, else x · r
                         (Keskar et al. 2019; once, even if the token is there several times)
    no_repeat_ngram      forbid a token that would complete an n-gram of the history
    suppress             forbid these tokens always
    min_length           forbid </s> until this many tokens are generated
    allowed              forbid all tokens except those that a function returns

A forbidden token has the logit -inf. Log-probabilities are those of the changed distribution.

The history is everything that the decoder has read. For a text generator: prompt, prefix and generated tokens. For a
translator: prefix and generated tokens, without <s>. min_length counts only tokens after the prefix.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from cutaway.decode.stepper import Stepper
from cutaway.search.request import Allowed, Search, Start

FORBIDDEN = float("-inf")


class TokenHistory:
    """The tokens that each row has read [N, T], and the text that each row belongs to."""

    def __init__(self, start: Start, device: torch.device):
        self.text_N = torch.arange(len(start.forced), device=device)
        self.answer_starts = list(start.answer_starts)
        read = len(start.history[0]) if start.history else 0
        forced = [len(tokens) for tokens in start.forced]
        # the column of the first generated token of each text
        self.generated_from = [read + start.is_history + length for length in forced]
        self.generated_from_N = torch.tensor(self.generated_from, device=device)
        self.skip_first = not start.is_history  # <s> of a translation is not part of the history
        self.buffer_NT = torch.zeros(len(forced), read + max(forced, default=0) + 32, dtype=torch.long, device=device)
        self.length = read
        if read:
            self.buffer_NT[:, :read] = torch.tensor(start.history, device=device)

    @property
    def tokens(self) -> Tensor:
        return self.buffer_NT[:, : self.length]

    def add(self, tokens_N: Tensor) -> None:
        if self.skip_first:
            self.skip_first = False
            return
        if self.length == self.buffer_NT.size(1):
            self.buffer_NT = torch.cat([self.buffer_NT, torch.zeros_like(self.buffer_NT)], dim=1)
        self.buffer_NT[:, self.length] = tokens_N
        self.length += 1

    def keep(self, rows: Tensor) -> None:
        self.text_N, self.buffer_NT = self.text_N[rows], self.buffer_NT[rows]
        self.generated_from_N = self.generated_from_N[rows]


LogitsRule = Callable[[Tensor, TokenHistory], None]  # changes logits [N, V]


class RuledStepper:
    """A stepper that applies rules to the logits."""

    def __init__(self, stepper: Stepper, rules: Sequence[LogitsRule], history: TokenHistory):
        self.stepper, self.rules, self.history = stepper, rules, history

    def step(self, tokens: Tensor) -> Tensor:
        self.history.add(tokens)
        logits_NV = self.stepper.step(tokens).clone()
        for rule in self.rules:
            rule(logits_NV, self.history)
        return logits_NV

    def keep(self, rows: Tensor) -> None:
        self.stepper.keep(rows)
        self.history.keep(rows)

    @property
    def source_weights(self) -> Tensor:
        source_weights: Tensor = self.stepper.source_weights  # type: ignore[attr-defined]
        return source_weights


def build_rules(search: Search) -> list[LogitsRule]:
    """Those that change anything."""
    decode, rules = search.decode, list[LogitsRule]()
    if decode.repetition_penalty != 1:
        rules.append(repetition_penalty(decode.repetition_penalty))
    if decode.no_repeat_ngram:
        rules.append(no_repeat_ngram(decode.no_repeat_ngram))
    if decode.suppress:
        rules.append(suppress(decode.suppress))
    if decode.min_length:
        rules.append(min_length(decode.min_length, search.eos))
    if search.allowed is not None:
        rules.append(allow_only(search.allowed))
    return rules


def repetition_penalty(penalty: float) -> LogitsRule:
    """x / r if x > 0, else x · r, once for each distinct token of the history."""

    def penalize(logits_NV: Tensor, history: TokenHistory) -> None:
        history_NT = history.tokens
        x_NT = logits_NV.gather(1, history_NT)
        logits_NV.scatter_(1, history_NT, torch.where(x_NT > 0, x_NT / penalty, x_NT * penalty))

    return penalize


def no_repeat_ngram(n: int) -> LogitsRule:
    """Forbid each token that followed the last n - 1 tokens earlier in the history."""

    def forbid(logits_NV: Tensor, history: TokenHistory) -> None:
        history_NT, starts = history.tokens, history.length - n + 1  # where an n-gram can start
        if starts < 1:
            return
        same_NP = torch.ones(len(history_NT), starts, dtype=torch.bool, device=history_NT.device)
        for i in range(n - 1):
            same_NP &= history_NT[:, i : i + starts] == history_NT[:, starts + i, None]
        rows, start = same_NP.nonzero(as_tuple=True)
        logits_NV[rows, history_NT[rows, start + n - 1]] = FORBIDDEN

    return forbid


def suppress(tokens: Sequence[int]) -> LogitsRule:
    def forbid(logits_NV: Tensor, history: TokenHistory) -> None:
        logits_NV.index_fill_(1, torch.tensor(tokens, device=logits_NV.device), FORBIDDEN)

    return forbid


def min_length(length: int, eos: int) -> LogitsRule:
    def forbid(logits_NV: Tensor, history: TokenHistory) -> None:
        if history.length < max(history.generated_from) + length:
            logits_NV[history.length < history.generated_from_N + length, eos] = FORBIDDEN

    return forbid


def allow_only(allowed: Allowed) -> LogitsRule:
    """Forbid all tokens except those that `allowed` returns, after the forced tokens."""

    def forbid(logits_NV: Tensor, history: TokenHistory) -> None:
        for row, text in enumerate(history.text_N.tolist()):
            if history.length < history.generated_from[text]:
                continue
            tokens = allowed(text, history.tokens[row, history.answer_starts[text] :].tolist())
            if tokens is not None:
                chosen = torch.tensor(list(tokens), dtype=torch.long, device=logits_NV.device)
                kept = logits_NV[row, chosen]
                logits_NV[row] = FORBIDDEN
                logits_NV[row, chosen] = kept

    return forbid
