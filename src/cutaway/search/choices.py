"""Answers that must be one of several: which tokens may come next. No torch here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from cutaway.config import DecodeConfig
from cutaway.errors import DataError
from cutaway.search.request import Rows


def for_choices(decode: DecodeConfig, choices: Sequence[str] | None) -> DecodeConfig:
    """A run's own way of searching, where nobody asks for another. But what is to be chosen is not left to chance: a
    run that draws looks for the likeliest of the choices, in a beam with room for all of them."""
    if not choices or decode.strategy != "sample":
        return decode
    return replace(decode, strategy="beam", beam_size=len(choices), length_penalty=0.0)


Branch = dict[int, "Branch"]


class OneOf:
    """The answer is exactly one of these texts. For `Search.allowed`, whatever the row.

    The texts are a tree whose branches are tokens: what may come after a beginning is what branches off there, and </s>
    where a text ends. A beginning that no text has may go on with nothing.

        choices "ja", "jain", "nein"        j ── a ──┬── </s>
                                        ──┤          └── i ── n ── </s>
                                            n ── e ── i ── n ── </s>
    """

    def __init__(self, choices: Rows, eos: int):
        if not choices:
            raise DataError("there is nothing to choose from: the choices are empty. Give at least one.")
        self.longest = max(len(choice) for choice in choices) + 1  # with </s>
        self.root: Branch = {}
        for choice in choices:
            branch = self.root
            for token in (*choice, eos):
                branch = branch.setdefault(token, {})

    def __call__(self, row: int, tokens: Sequence[int]) -> list[int]:
        branch = self.root
        for token in tokens:
            if token not in branch:
                return []
            branch = branch[token]
        return list(branch)
