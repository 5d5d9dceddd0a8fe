"""Decoding rules that change the logits, for one text at a time.

decode/rules.py describes the rules and their order; it applies them to all texts of a batch.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cutaway.search.request import Search, Start
from cutaway.twin.ops import Array


class Rules:
    """The rules for one text."""

    def __init__(self, search: Search, start: Start, text: int):
        self.search, self.text = search, text
        self.n_forced = len(start.forced[text])
        self.prompt = list(start.prompts[text]) if start.is_history else []
        self.answer_start = start.answer_starts[text]

    def apply(self, logits_V: Array, tokens: Sequence[int]) -> Array:
        """Return the logits changed by the rules. `tokens`: the forced and the generated tokens so far."""
        if not self.search.has_rules:
            return logits_V
        x_V, decode, history = logits_V.copy(), self.search.decode, [*self.prompt, *tokens]
        if decode.repetition_penalty != 1 and history:
            seen = np.unique(history)
            x = x_V[seen]
            x_V[seen] = np.where(x > 0, x / decode.repetition_penalty, x * decode.repetition_penalty)
        if decode.no_repeat_ngram:
            x_V[continuations(history, decode.no_repeat_ngram)] = -np.inf
        x_V[list(decode.suppress)] = -np.inf
        if len(tokens) - self.n_forced < decode.min_length:
            x_V[self.search.eos] = -np.inf
        allowed = None if self.search.allowed is None else self.search.allowed(self.text, history[self.answer_start :])
        if allowed is not None:
            only_V = np.full_like(x_V, -np.inf)
            only_V[list(allowed)] = x_V[list(allowed)]
            return only_V
        return x_V


def continuations(history: Sequence[int], n: int) -> list[int]:
    """Tokens that followed earlier occurrences of the last n - 1 tokens in the history."""
    last = list(history[len(history) - n + 1 :])
    if len(last) < n - 1:
        return []
    starts = range(len(history) - n + 1)
    return [history[i + n - 1] for i in starts if list(history[i : i + n - 1]) == last]
