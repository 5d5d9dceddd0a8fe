"""Sentence pairs: one derivation realised in two languages, with alignment and heads."""

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

# One in this many combinations of words is withheld from training.
WITHHELD_ONE_IN = 20
# Percentages of the sentences without a withheld combination.
SHARES = {"train": 90, "valid": 5, "test": 5}


class Derivations:
    """The derivations of a chooser, drawn when they are needed. To keep them all would slow down the training data."""

    def __init__(self, chooser: Chooser) -> None:
        self.chooser = chooser
        self.drawn: list[Clause] = []

    def __getitem__(self, number: int) -> Clause:
        while len(self.drawn) <= number:
            self.drawn.append(self.chooser.sentence())
        return self.drawn[number]


@dataclass(frozen=True, slots=True)
class AlignedPair:
    """A sentence in two languages. Alignment and heads are computed on access.

    ``causes.py`` computes from the derivation why a target word has its form.
    """

    source: str
    target: str
    source_words: tuple[str, ...]
    target_words: tuple[str, ...]
    construction: str
    layouts: tuple[SentenceLayout, SentenceLayout] = field(repr=False, compare=False)
    derivations: Derivations | list[Clause] = field(repr=False, compare=False)
    number: int = field(repr=False, compare=False)  # of its derivation

    @property
    def alignment(self) -> tuple[tuple[int, int], ...]:
        """Sorted index pairs (source word, target word) of words that translate each other."""
        return align(*self.layouts)

    @property
    def derivation(self) -> Clause:
        return self.derivations[self.number]

    @property
    def source_heads(self) -> tuple[int, ...]:
        """The index of each source word's head, -1 for the root."""
        return self.layouts[0].heads

    @property
    def target_heads(self) -> tuple[int, ...]:
        return self.layouts[1].heads


class RealisedSentence(NamedTuple):
    """A sentence in one language."""

    text: str
    words: tuple[str, ...]
    layout: SentenceLayout


@dataclass(frozen=True)
class World:
    """A lexicon and grammar rules."""

    lexicon: Lexicon
    clauses: tuple[GrammarRule, ...]
    sentences: tuple[GrammarRule, ...]
    pools: dict[Any, list[Any]] = field(default_factory=dict)

    def extend(
        self, nouns: str = "", adjectives: str = "", verbs: str = "", clauses: Iterable[GrammarRule] = (),
        sentences: Iterable[GrammarRule] = (),
    ) -> World:  # fmt: skip
        """A new world with more words and rules, in the formats of ``words.py`` and ``rules.py``."""
        lexicon = self.lexicon.extend(nouns, adjectives, verbs)
        return World(lexicon, (*self.clauses, *clauses), (*self.sentences, *sentences))

    def chooser(self, seed: int) -> Chooser:
        return Chooser(self.lexicon, self.clauses, self.sentences, Random(seed), self.pools)

    def say(self, sentence: Clause, language: str) -> RealisedSentence:
        """Realise a sentence in one language: "en", "fr" or "de"."""
        words: list[str] = []
        layout = realise(self.lexicon, sentence, language, "", words)
        words = LANGUAGES[language].finish(words)
        words[0] = words[0][0].upper() + words[0][1:]
        return RealisedSentence(join_words(words), tuple(words), layout)

    def pair(self, sentence: Clause, target: str) -> AlignedPair:
        return make_pair(sentence, self.say(sentence, "en"), self.say(sentence, target), [sentence], 0)


@cache
def default_world() -> World:
    return World(read_lexicon(), tuple(CLAUSES), tuple(SENTENCES))


def make_pair(
    sentence: Clause,
    source: RealisedSentence,
    target: RealisedSentence,
    derivations: Derivations | list[Clause],
    number: int,
) -> AlignedPair:
    name, layouts = construction_name(sentence), (source.layout, target.layout)
    return AlignedPair(source.text, target.text, source.words, target.words, name, layouts, derivations, number)


def join_words(words: list[str]) -> str:
    """Join words with spaces, but without a space after an apostrophe or before a punctuation mark."""
    line = " ".join(words[:-1]).replace("' ", "'").replace(" ,", ",")
    return line + words[-1]


def construction_name(sentence: Clause) -> str:
    """The name of the rule. For a plain statement: the name of the rule of its clause."""
    return sentence.slots["clause"].rule.name if sentence.rule.name == "statement" else sentence.rule.name


def split_of(sentence: Clause, english: str) -> str:
    """The split of a sentence. It depends only on the sentence, not on the order of drawing."""
    for one, other in combinations(sentence):
        if is_withheld(one, other):
            return "unseen"
    remainder = crc32(english.encode()) % sum(SHARES.values())
    for name, share in SHARES.items():
        if remainder < share:
            return name
        remainder -= share
    raise AssertionError("the shares cover every remainder")


@cache
def is_withheld(one: str, other: str) -> bool:
    return crc32(f"{one} {other}".encode()) % WITHHELD_ONE_IN == 0
