"""Phrases: words that know what they mean and which word they lean on.

A word carries its *meanings* as a set of bits. A word of the source and a word of the target are aligned
exactly when they fill the same slot and share a meaning, so the gold alignment needs no guessing:

    the         small      cat           le          petit      chat
    DETERMINER  ADJECTIVE  NOUN          DETERMINER  ADJECTIVE  NOUN        (du = PREPOSITION | DETERMINER)

A word also carries how far away its head is (+2 = two words to the right, 0 = the head of the phrase), so
that a phrase keeps its tree wherever it is put.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

# Meanings inside a noun phrase or a quality ...
PREPOSITION, DETERMINER, ADJECTIVE, MORE, NOUN, DEGREE, JOIN = (1 << bit for bit in range(7))
# ... and inside a verb.
VERB, TENSE, NEGATION, MODAL, ASKING = (1 << bit for bit in range(5))


@dataclass(frozen=True, eq=False, slots=True)
class Shape:
    """All of a phrase but its words. There are few shapes, and each exists once, so they are compared by identity.

    ``root`` is the place of the head, or -1 when the head stands elsewhere.
    """

    meanings: tuple[int, ...]
    leans: tuple[int, ...]
    root: int


@cache
def shape(meanings: tuple[int, ...], leans: tuple[int, ...], root: int) -> Shape:
    return Shape(meanings, leans, root)


@cache
def flat(meanings: tuple[int, ...], head: int) -> Shape:
    """The common shape: every word leans on the word at ``head``."""
    return shape(meanings, tuple(head - place for place in range(len(meanings))), head)


class Phrase(NamedTuple):
    """Some words in a row, and their shape."""

    words: tuple[str, ...]
    shape: Shape


def phrase(words: Sequence[str], meanings: Sequence[int], head: int) -> Phrase:
    return Phrase(tuple(words), flat(tuple(meanings), head))


def rootless(words: Sequence[str], meanings: Sequence[int]) -> Phrase:
    """Words whose head is somewhere else in the clause, such as the auxiliary of a distant participle."""
    return Phrase(tuple(words), shape(tuple(meanings), (0,) * len(words), -1))


NOTHING = rootless([], [])


def in_front(words: Sequence[str], meanings: Sequence[int], rest: Phrase) -> Phrase:
    """Put small words before a phrase; they lean on its head."""
    root = len(words) + rest.shape.root
    leans = (*(root - place for place in range(len(words))), *rest.shape.leans)
    return Phrase((*words, *rest.words), shape((*meanings, *rest.shape.meanings), leans, root))


def joined(first: Phrase, conjunction: str, second: Phrase) -> Phrase:
    """first + conjunction + second, headed by the first; the second has its meanings moved out of the way."""
    start = len(first.words) + 1
    second_root = start + second.shape.root
    leans = [*first.shape.leans, second_root - (start - 1), *second.shape.leans]
    leans[second_root] = first.shape.root - second_root
    meanings = (*first.shape.meanings, JOIN, *(meaning << 8 for meaning in second.shape.meanings))
    return Phrase((*first.words, conjunction, *second.words), shape(meanings, tuple(leans), first.shape.root))


@cache
def fixed_phrase(text: str) -> Phrase:
    """Words that never change, written with footnotes: ``"la:1 semaine*:2 dernière:3"``.

    Words of two languages that carry the same number are aligned; a text without numbers is one meaning. The
    star marks the head, which is otherwise the last word.
    """
    words, meanings, head = [], [], -1
    for place, piece in enumerate(text.split()):
        word, _, label = piece.partition(":")
        if word.endswith("*"):
            word, head = word[:-1], place
        words.append(word)
        meanings.append(1 << int(label or 0))
    return phrase(words, meanings, head if head >= 0 else len(words) - 1)
