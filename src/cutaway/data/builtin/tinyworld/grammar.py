"""Pairs of sentences: one derivation said in two languages, with what belongs to what."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from random import Random
from typing import Any, NamedTuple
from zlib import crc32

from cutaway.data.builtin.tinyworld.choices import Chooser, combinations
from cutaway.data.builtin.tinyworld.lexicon import Lexicon, read_lexicon
from cutaway.data.builtin.tinyworld.meaning import Clause
from cutaway.data.builtin.tinyworld.rules import CLAUSES, SENTENCES, GrammarRule
from cutaway.data.builtin.tinyworld.templates import LANGUAGES, SentenceLayout, align, realise

# One combination of words in this many is kept out of training.
WITHHELD = 20
# Of a hundred sentences without such a combination, this many are for training, for validation and for the test.
SHARES = {"train": 90, "valid": 5, "test": 5}


@dataclass(frozen=True, slots=True)
class AlignedPair:
    """A sentence in two languages, which knows what belongs to what. That is worked out when it is asked for."""

    source: str
    target: str
    source_words: tuple[str, ...]
    target_words: tuple[str, ...]
    construction: str
    layouts: tuple[SentenceLayout, SentenceLayout] = field(repr=False, compare=False)

    @property
    def alignment(self) -> tuple[tuple[int, int], ...]:
        """(source word, target word) for every two words that translate each other, sorted."""
        return align(*self.layouts)

    @property
    def source_heads(self) -> tuple[int, ...]:
        """The place of each source word's head, -1 for the root."""
        return self.layouts[0].heads

    @property
    def target_heads(self) -> tuple[int, ...]:
        return self.layouts[1].heads


class Said(NamedTuple):
    """A sentence in one language."""

    text: str
    words: tuple[str, ...]
    layout: SentenceLayout


@dataclass(frozen=True)
class World:
    """A lexicon and its rules."""

    lexicon: Lexicon
    clauses: tuple[GrammarRule, ...]
    sentences: tuple[GrammarRule, ...]
    pools: dict[Any, list[Any]] = field(default_factory=dict)

    def extended(
        self, nouns: str = "", adjectives: str = "", verbs: str = "", clauses: Iterable[GrammarRule] = (),
        sentences: Iterable[GrammarRule] = (),
    ) -> World:  # fmt: skip
        """This world with more words and rules, written as in ``words.py`` and ``rules.py``."""
        lexicon = self.lexicon.extended(nouns, adjectives, verbs)
        return World(lexicon, (*self.clauses, *clauses), (*self.sentences, *sentences))

    def chooser(self, seed: int) -> Chooser:
        return Chooser(self.lexicon, self.clauses, self.sentences, Random(seed), self.pools)

    def say(self, sentence: Clause, language: str) -> Said:
        """A whole sentence in one language: "en", "fr" or "de"."""
        words: list[str] = []
        layout = realise(self.lexicon, sentence, language, "", words)
        words = LANGUAGES[language].finish(words)
        words[0] = words[0][0].upper() + words[0][1:]
        return Said(text(words), tuple(words), layout)

    def pair(self, sentence: Clause, target: str) -> AlignedPair:
        return aligned(self.say(sentence, "en"), self.say(sentence, target), construction(sentence))


@cache
def small_world() -> World:
    return World(read_lexicon(), tuple(CLAUSES), tuple(SENTENCES))


def aligned(source: Said, target: Said, name: str) -> AlignedPair:
    return AlignedPair(source.text, target.text, source.words, target.words, name, (source.layout, target.layout))


def text(words: list[str]) -> str:
    """Words are joined by spaces, but nothing follows an apostrophe and nothing precedes a punctuation mark."""
    line = " ".join(words[:-1]).replace("' ", "'").replace(" ,", ",")
    return line + words[-1]


def construction(sentence: Clause) -> str:
    """The name of the rule; a plain statement goes by the name of its clause."""
    return sentence.slots["clause"].rule.name if sentence.rule.name == "statement" else sentence.rule.name


def split_of(sentence: Clause, english: str) -> str:
    """Where a sentence belongs: settled by what it says, never by when it was drawn."""
    for one, other in combinations(sentence):
        if is_withheld(one, other):
            return "unseen"
    place = crc32(english.encode()) % sum(SHARES.values())
    for name, share in SHARES.items():
        if place < share:
            return name
        place -= share
    raise AssertionError("the shares cover every remainder")


@cache
def is_withheld(one: str, other: str) -> bool:
    return crc32(f"{one} {other}".encode()) % WITHHELD == 0
