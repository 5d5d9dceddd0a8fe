"""BPE dropout (Provilkov et al. 2020): the same text, segmented another way each time that it is drawn. No torch here.

    p = 0      ␣outside                                          as `Tokenizer.encode` gives it, always
    p = 0.1    ␣outside     ␣out s ide     ␣out side     …       the first in three cases of four

A model that meets a word in many ways learns what its pieces have to do with each other. Examples are kept as ids that
were encoded without dropout; when a batch is drawn, each row is segmented anew:

    ids ──spell──▶ bytes ──pre-tokenizer──▶ words ──bytes again, then merges, some of them left out──▶ ids

`tokenizers` has dropout too, but draws from a generator that cannot be seeded, so a resumed run could not repeat it;
here all chance comes from `rng`. Nor is it the paper's: whenever a merge that has become impossible comes up in its
queue, those that were left out get another chance, and of a long word most is merged after all.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from functools import lru_cache
from itertools import count, groupby, pairwise
from typing import Any

import numpy as np

from cutaway.data.tokenizer import Tokenizer
from cutaway.errors import ConfigError

REMEMBERED = 2**17  # words with what is left out of them: about 70 MB when full
LONGEST_REMEMBERED = 32  # bytes; longer words hardly ever come twice
NEVER = sys.maxsize  # the rank of two ids that do not merge
NOT_TEXT = re.compile("([\udc80-\udcff]+)")  # bytes that are no character, the way "surrogateescape" decodes them


class BpeDropout:
    """Segments rows of ids anew, each possible merge being left out with probability `p` at each step."""

    def __init__(self, tokenizer: Tokenizer, p: float):
        if not 0 <= p < 1:
            raise ConfigError(
                f"BPE dropout with probability {p} is impossible: it must be at least 0 and below 1. "
                '0.1 is usual; at 1 nothing would be left but bytes, which data.tokenizer = "byte" has from the start.'
            )
        self.p = p
        settings = _byte_level_bpe(json.loads(tokenizer.to_json()))
        vocabulary: dict[str, int] = settings["model"]["vocab"]
        self.base = {name: vocabulary[name] for name in NAME_OF_BYTE if name in vocabulary}
        merges: list[tuple[str, str]] = settings["model"]["merges"]  # what was learned first comes first
        self.rank = {(vocabulary[left], vocabulary[right]): rank for rank, (left, right) in enumerate(merges)}
        self.merged = [vocabulary[left + right] for left, right in merges]
        # Special and added tokens stand for themselves: they were never merged, so they cannot be taken apart.
        whole = tokenizer.special_ids | {added["id"] for added in settings["added_tokens"]}
        self.spelling = {
            id: bytes(BYTE_OF_NAME[symbol] for symbol in name)
            for name, id in vocabulary.items()
            if id not in whole and self.base.keys() >= set(name)
        }
        self.pre_tokenizer = Tokenizer.from_json(json.dumps(settings), tokenizer.roles).backend.pre_tokenizer
        self._remembered_merge = lru_cache(REMEMBERED)(self._merge)

    def __call__(self, ids: Sequence[int], rng: np.random.Generator) -> list[int]:
        """Other ids for the same text. What comes out follows from the ids and the state of `rng` alone."""
        if self.p == 0:
            return list(ids)
        segmented: list[int] = []
        for can_be_spelled, run in groupby(ids, self.spelling.__contains__):
            row = list(run)
            segmented += self._segment(row, rng) if can_be_spelled else row
        return segmented

    def _segment(self, ids: Sequence[int], rng: np.random.Generator) -> list[int]:
        spelled = b"".join([self.spelling[id] for id in ids])
        # Of the possible merges, best first, the first that is not left out is made. How many are left out before it
        # is geometric: P(n) = pⁿ (1 - p). A word of n bytes cannot have more than n - 1 merges.
        # As bytes, which are quick to cut and to look up; more than 255 at once are too rare to tell from 255.
        left_out = (np.minimum(rng.geometric(1 - self.p, len(spelled)), 256) - 1).astype(np.uint8).tobytes()
        segmented: list[int] = []
        start = 0
        for word in self._words(spelled):
            end = start + len(word)
            merge = self._remembered_merge if len(word) <= LONGEST_REMEMBERED else self._merge
            segmented += merge(word, left_out[start : end - 1])
            start = end
        return segmented

    def _words(self, spelled: bytes) -> list[str]:
        """The words that merges stay within, as the tokenizer found them, in the characters that stand for bytes."""
        try:
            return self._words_of_text(spelled.decode())
        except UnicodeDecodeError:
            # A row cut out of a longer text may begin or end within a character: such bytes are a word of their own.
            words: list[str] = []
            for part in NOT_TEXT.split(spelled.decode(errors="surrogateescape")):
                is_text = not NOT_TEXT.match(part)
                words += self._words_of_text(part) if is_text else [_named(part.encode(errors="surrogateescape"))]
            return words

    def _words_of_text(self, text: str) -> list[str]:
        return [word for word, _ in self.pre_tokenizer.pre_tokenize_str(text)]

    def _merge(self, word: str, left_out: bytes) -> tuple[int, ...]:
        """From bytes to ids; `left_out` says for each step how many of the best merges are not to be had."""
        split = [self.base[symbol] for symbol in word]
        ranks = [self.rank.get(pair, NEVER) for pair in pairwise(split)]  # of each id with the one after it
        for n in left_out:
            if n >= len(ranks) or (rank := ranks[place := _nth_best(ranks, n)]) == NEVER:
                break
            split[place : place + 2] = [self.merged[rank]]
            del ranks[place]
            for beside in (place - 1, place):  # the new id has new neighbours
                if 0 <= beside < len(ranks):
                    ranks[beside] = self.rank.get((split[beside], split[beside + 1]), NEVER)
        return tuple(split)


def _nth_best(ranks: list[int], n: int) -> int:
    """Where the lowest rank but `n` stands; among equals the left one comes first."""
    if n == 0:  # nearly always, and quicker so
        return ranks.index(min(ranks))
    return sorted(range(len(ranks)), key=ranks.__getitem__)[n]


def _byte_names() -> list[str]:
    """The character that stands for each byte: printable ones for themselves, the rest from 256 on (GPT-2)."""
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = count(256)
    return [chr(byte if byte in printable else next(others)) for byte in range(256)]


def _named(spelled: bytes) -> str:
    return "".join(NAME_OF_BYTE[byte] for byte in spelled)


NAME_OF_BYTE = _byte_names()
BYTE_OF_NAME = {name: byte for byte, name in enumerate(NAME_OF_BYTE)}


def _byte_level_bpe(settings: dict[str, Any]) -> dict[str, Any]:
    """A tokenizer.json whose words can be found again in its ids, or a refusal that says why they cannot."""
    model = settings["model"]
    if model["type"] != "BPE":
        raise _refused(f"its model is {model['type']}, which merges nothing")
    if not model["merges"]:
        raise _refused("it knows single bytes only, and no merges")
    for setting in ("continuing_subword_prefix", "end_of_word_suffix"):
        if model.get(setting):
            raise _refused(f"it marks the parts of words with {setting} = {model[setting]!r}")
    before = settings["pre_tokenizer"] or {"type": "none"}
    steps = before["pretokenizers"] if before["type"] == "Sequence" else [before]
    if steps[-1]["type"] != "ByteLevel":
        raise _refused(f"its last pre-tokenizer is {steps[-1]['type']}, not ByteLevel")
    for step in steps[:-1]:
        if step["type"] not in ("Split", "Digits") or (step.get("behavior") == "Removed" and not step["invert"]):
            raise _refused(f"its pre-tokenizer {step['type']} may leave out what stands between words")
    steps[-1]["add_prefix_space"] = False  # the ids have it already, and not every row begins where a text does
    return settings


def _refused(why: str) -> ConfigError:
    return ConfigError(
        f"BPE dropout needs a byte-level BPE tokenizer, and this is none: {why}. "
        'Train one with data.tokenizer = "bpe", or do without BPE dropout.'
    )
