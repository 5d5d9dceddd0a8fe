"""BPE dropout (Provilkov et al. 2020): a random segmentation of the same text in each epoch. No torch here.

    p = 0      ␣outside                                          always the segmentation of `Tokenizer.encode`
    p = 0.1    ␣outside     ␣out s ide     ␣out side     …       the first in three of four cases

The model sees a word in several segmentations and learns how its parts are related. Examples are stored as ids without
dropout. When a batch is made, each row is segmented again:

    ids ──spelling──▶ bytes ──pre-tokenizer──▶ words ──single bytes, then merges, some of them dropped──▶ ids

Why not the dropout of `tokenizers`? Its random generator cannot be seeded, so a resumed run could not repeat it. It
also differs from the paper: when its queue contains a merge that has become impossible, dropped merges get another
chance. As a result, most of a long word is merged.
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

CACHED_WORDS = 2**17  # entries of the cache (word, dropped merges): about 70 MB when full
MAX_CACHED_BYTES = 32  # longer words rarely occur twice
NO_MERGE = sys.maxsize  # the rank of two ids that do not merge
INVALID_BYTES = re.compile("([\udc80-\udcff]+)")  # bytes that are not UTF-8, as "surrogateescape" decodes them


class BpeDropout:
    """Segments rows of ids again. Each possible merge is dropped with probability `p` at each step."""

    def __init__(self, tokenizer: Tokenizer, p: float):
        if not 0 <= p < 1:
            raise ConfigError(
                f"data.bpe_dropout = {p} is not possible: it must be at least 0 and below 1. "
                '0.1 is usual. For single bytes, set data.tokenizer = "byte".'
            )
        self.p = p
        settings = _byte_level_bpe(json.loads(tokenizer.to_json()))
        vocabulary: dict[str, int] = settings["model"]["vocab"]
        self.base = {name: vocabulary[name] for name in NAME_OF_BYTE if name in vocabulary}
        merges: list[tuple[str, str]] = settings["model"]["merges"]  # in the order in which they were learned
        self.rank = {(vocabulary[left], vocabulary[right]): rank for rank, (left, right) in enumerate(merges)}
        self.merged = [vocabulary[left + right] for left, right in merges]
        # Special and added tokens are not the result of merges, so they cannot be split.
        unsplittable = tokenizer.special_ids | {added["id"] for added in settings["added_tokens"]}
        self.spelling = {
            id: bytes(BYTE_OF_NAME[symbol] for symbol in name)
            for name, id in vocabulary.items()
            if id not in unsplittable and self.base.keys() >= set(name)
        }
        self.pre_tokenizer = Tokenizer.from_json(json.dumps(settings), tokenizer.roles).backend.pre_tokenizer
        self._cached_merge = lru_cache(CACHED_WORDS)(self._merge)

    def __call__(self, ids: Sequence[int], rng: np.random.Generator) -> list[int]:
        """Other ids for the same text. The result depends only on the ids and the state of `rng`."""
        if self.p == 0:
            return list(ids)
        segmented: list[int] = []
        for can_be_spelled, run in groupby(ids, self.spelling.__contains__):
            row = list(run)
            segmented += self._segment(row, rng) if can_be_spelled else row
        return segmented

    def _segment(self, ids: Sequence[int], rng: np.random.Generator) -> list[int]:
        spelled = b"".join([self.spelling[id] for id in ids])
        # Each step makes the best merge that is not dropped. The number of dropped merges before it has a geometric
        # distribution: P(n) = pⁿ (1 - p). A word of n bytes has at most n - 1 merges.
        # The numbers are stored as bytes, which are fast to slice and to hash. More than 255 are too rare to matter.
        dropped = (np.minimum(rng.geometric(1 - self.p, len(spelled)), 256) - 1).astype(np.uint8).tobytes()
        segmented: list[int] = []
        start = 0
        for word in self._split_words(spelled):
            end = start + len(word)
            merge = self._cached_merge if len(word) <= MAX_CACHED_BYTES else self._merge
            segmented += merge(word, dropped[start : end - 1])
            start = end
        return segmented

    def _split_words(self, spelled: bytes) -> list[str]:
        """The words of the pre-tokenizer, in byte-level characters. Merges do not cross word boundaries."""
        try:
            return self._split_text(spelled.decode())
        except UnicodeDecodeError:
            # A chunk of a longer text may begin or end inside a UTF-8 character. These bytes become a separate word.
            words: list[str] = []
            for part in INVALID_BYTES.split(spelled.decode(errors="surrogateescape")):
                is_text = not INVALID_BYTES.match(part)
                words += self._split_text(part) if is_text else [_byte_names_of(part.encode(errors="surrogateescape"))]
            return words

    def _split_text(self, text: str) -> list[str]:
        return [word for word, _ in self.pre_tokenizer.pre_tokenize_str(text)]

    def _merge(self, word: str, dropped: bytes) -> tuple[int, ...]:
        """Merge the bytes of a word to ids. `dropped`: how many of the best merges each step drops."""
        split = [self.base[symbol] for symbol in word]
        ranks = [self.rank.get(pair, NO_MERGE) for pair in pairwise(split)]  # of each id with the next
        for n in dropped:
            if n >= len(ranks) or (rank := ranks[index := _nth_best(ranks, n)]) == NO_MERGE:
                break
            split[index : index + 2] = [self.merged[rank]]
            del ranks[index]
            for left in (index - 1, index):  # the new id has new neighbours
                if 0 <= left < len(ranks):
                    ranks[left] = self.rank.get((split[left], split[left + 1]), NO_MERGE)
        return tuple(split)


def _nth_best(ranks: list[int], n: int) -> int:
    """The index of rank number `n` in ascending order. Ties: left to right."""
    if n == 0:  # the most frequent case, and faster
        return ranks.index(min(ranks))
    return sorted(range(len(ranks)), key=ranks.__getitem__)[n]


def _byte_names() -> list[str]:
    """The character for each byte: printable bytes stay, the others are numbered from 256 (GPT-2)."""
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = count(256)
    return [chr(byte if byte in printable else next(others)) for byte in range(256)]


def _byte_names_of(spelled: bytes) -> str:
    return "".join(NAME_OF_BYTE[byte] for byte in spelled)


NAME_OF_BYTE = _byte_names()
BYTE_OF_NAME = {name: byte for byte, name in enumerate(NAME_OF_BYTE)}


def _byte_level_bpe(settings: dict[str, Any]) -> dict[str, Any]:
    """Check that words can be restored from ids. Return the settings without a prefix space."""
    model = settings["model"]
    if model["type"] != "BPE":
        raise _unsupported_error(f"its model is {model['type']}, which has no merges")
    if not model["merges"]:
        raise _unsupported_error("it has single bytes only, and no merges")
    for setting in ("continuing_subword_prefix", "end_of_word_suffix"):
        if model.get(setting):
            raise _unsupported_error(f"it has {setting} = {model[setting]!r}")
    before = settings["pre_tokenizer"] or {"type": "none"}
    steps = before["pretokenizers"] if before["type"] == "Sequence" else [before]
    if steps[-1]["type"] != "ByteLevel":
        raise _unsupported_error(f"its last pre-tokenizer is {steps[-1]['type']}, not ByteLevel")
    for step in steps[:-1]:
        if step["type"] not in ("Split", "Digits") or (step.get("behavior") == "Removed" and not step["invert"]):
            raise _unsupported_error(f"its pre-tokenizer {step['type']} may remove characters between words")
    steps[-1]["add_prefix_space"] = False  # the ids contain it already, and a row may begin inside a text
    return settings


def _unsupported_error(why: str) -> ConfigError:
    return ConfigError(
        f"data.bpe_dropout needs a byte-level BPE tokenizer. This one is different: {why}. "
        'Train one with data.tokenizer = "bpe", or set data.bpe_dropout = 0.'
    )
