"""Outputs that must be one of several choices: the tokens that may come next. No torch here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from cutaway.config import DecodeConfig
from cutaway.errors import DataError
from cutaway.search.request import Rows


def config_for_choices(decode: DecodeConfig, choices: Sequence[str] | None) -> DecodeConfig:
    """The decoding settings of a run, without sampling if there are choices.

    A run that samples uses a beam as wide as the number of choices instead, which finds the most probable one.
    """
    if not choices or decode.strategy != "sample":
        return decode
    return replace(decode, strategy="beam", beam_size=len(choices), length_penalty=0.0)


TrieNode = dict[int, "TrieNode"]


class ChoiceTrie:
    """The output is exactly one of these texts. A function for `Search.allowed`, the same for every row.

    The texts form a trie of tokens. The children of a node are the tokens that may come next; </s> ends a text. After a
    beginning that is not in the trie, no token is allowed.

        choices "ja", "jain", "nein"        j ── a ──┬── </s>
                                        ──┤          └── i ── n ── </s>
                                            n ── e ── i ── n ── </s>
    """

    def __init__(self, choices: Rows, eos: int):
        if not choices:
            raise DataError("the list of choices is empty. Give at least one choice.")
        self.longest = max(len(choice) for choice in choices) + 1  # with </s>
        self.root: TrieNode = {}
        for choice in choices:
            node = self.root
            for token in (*choice, eos):
                node = node.setdefault(token, {})

    def __call__(self, row: int, tokens: Sequence[int]) -> list[int]:
        node = self.root
        for token in tokens:
            if token not in node:
                return []
            node = node[token]
        return list(node)
