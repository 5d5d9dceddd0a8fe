"""Rules: what may come next, and how likely it is, beside what the model says. In this order, whatever the strategy:

    repetition_penalty   the logit x of each token in the history becomes x / r if x > 0, else x · r
                         (Keskar et al. 2019; once, however often the token is there)
    no_repeat_ngram      a token is forbidden that would end n tokens in a row which the history has already
    suppress             tokens that are never written
    min_length           </s> is forbidden before so many tokens are written
    allowed              all tokens are forbidden but those that a function names

A forbidden token has the logit -inf. The rules come before the softmax: the others share what it had, and all
log-probabilities are those of the changed distribution.

The history is what the decoder has read: of a text generator the prompt, the prefix and what was written, of a
translator the prefix and what was written, but not <s>. Only what comes after the prefix counts for min_length.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from cutaway.decode.stepper import Stepper
from cutaway.search.request import Allowed, Search, Start

FORBIDDEN = float("-inf")


class TokenHistory:
    """What each row has read, a column a token [N, T], and which text each row is a beginning of."""

    def __init__(self, start: Start, device: torch.device):
        self.text_N = torch.arange(len(start.forced), device=device)
        self.before = list(start.before)
        read = len(start.history[0]) if start.history else 0
        forced = [len(tokens) for tokens in start.forced]
        # the column of the first token that is a row's own choice
        self.own_from = [read + start.is_history + length for length in forced]
        self.own_from_N = torch.tensor(self.own_from, device=device)
        self.to_come = not start.is_history  # <s> of a translation is read, but no part of the history
        self.room_NT = torch.zeros(len(forced), read + max(forced, default=0) + 32, dtype=torch.long, device=device)
        self.length = read
        if read:
            self.room_NT[:, :read] = torch.tensor(start.history, device=device)

    @property
    def tokens(self) -> Tensor:
        return self.room_NT[:, : self.length]

    def add(self, tokens_N: Tensor) -> None:
        if self.to_come:
            self.to_come = False
            return
        if self.length == self.room_NT.size(1):
            self.room_NT = torch.cat([self.room_NT, torch.zeros_like(self.room_NT)], dim=1)
        self.room_NT[:, self.length] = tokens_N
        self.length += 1

    def keep(self, rows: Tensor) -> None:
        self.text_N, self.room_NT, self.own_from_N = self.text_N[rows], self.room_NT[rows], self.own_from_N[rows]


LogitsRule = Callable[[Tensor, TokenHistory], None]  # changes logits [N, V]


class RuledStepper:
    """A stepper that obeys rules."""

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
        seen_NT = history.tokens
        x_NT = logits_NV.gather(1, seen_NT)
        logits_NV.scatter_(1, seen_NT, torch.where(x_NT > 0, x_NT / penalty, x_NT * penalty))

    return penalize


def no_repeat_ngram(n: int) -> LogitsRule:
    """After the same n - 1 tokens, what came after them before may not come again."""

    def forbid(logits_NV: Tensor, history: TokenHistory) -> None:
        seen_NT, places = history.tokens, history.length - n + 1  # where an n-gram may begin
        if places < 1:
            return
        same_NP = torch.ones(len(seen_NT), places, dtype=torch.bool, device=seen_NT.device)
        for i in range(n - 1):
            same_NP &= seen_NT[:, i : i + places] == seen_NT[:, places + i, None]
        rows, begin = same_NP.nonzero(as_tuple=True)
        logits_NV[rows, seen_NT[rows, begin + n - 1]] = FORBIDDEN

    return forbid


def suppress(tokens: Sequence[int]) -> LogitsRule:
    def forbid(logits_NV: Tensor, history: TokenHistory) -> None:
        logits_NV.index_fill_(1, torch.tensor(tokens, device=logits_NV.device), FORBIDDEN)

    return forbid


def min_length(length: int, eos: int) -> LogitsRule:
    def forbid(logits_NV: Tensor, history: TokenHistory) -> None:
        if history.length < max(history.own_from) + length:
            logits_NV[history.length < history.own_from_N + length, eos] = FORBIDDEN

    return forbid


def allow_only(allowed: Allowed) -> LogitsRule:
    """What `allowed` names, for rows that choose for themselves already."""

    def forbid(logits_NV: Tensor, history: TokenHistory) -> None:
        for row, text in enumerate(history.text_N.tolist()):
            if history.length < history.own_from[text]:
                continue
            tokens = allowed(text, history.tokens[row, history.before[text] :].tolist())
            if tokens is not None:
                chosen = torch.tensor(list(tokens), dtype=torch.long, device=logits_NV.device)
                kept = logits_NV[row, chosen]
                logits_NV[row] = FORBIDDEN
                logits_NV[row, chosen] = kept

    return forbid
