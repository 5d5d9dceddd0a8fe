"""Phrases: words that know what they mean and which word they lean on.

A word carries its *meanings* as a set of bits. A word of the source and a word of the target are aligned
exactly when they share a meaning, so the gold alignment needs no guessing:

    the   small   cat             le    petit   chat          (du = PREPOSITION | DETERMINER)
    DET   ADJ     NOUN            DET   ADJ     NOUN

A word also carries how far away its head is (+2 = two words to the right, 0 = the head of the phrase), so
that a phrase keeps its tree wherever it is put.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

# Meanings inside a noun phrase or a quality ...
PREPOSITION, DETERMINER, ADJECTIVE, MORE, NOUN, DEGREE, JOIN = (1 << bit for bit in range(7))
# ... and inside a verb.
VERB, TENSE, NEGATION, MODAL, ASKING = (1 << bit for bit in range(5))
# Each slot of a template has this many bits to itself, and each clause inside a sentence its own stretch.
# A phrase of two noun phrases ("the cat and the dog") needs twice the seven bits above.
BITS_PER_SLOT = 16
BITS_PER_CLAUSE = 16 * BITS_PER_SLOT


class Phrase(NamedTuple):
    """Some words in a row. ``root`` is the place of the head, or -1 when the head stands elsewhere."""

    words: tuple[str, ...]
    meanings: tuple[int, ...]
    leans: tuple[int, ...]
    root: int


NOTHING = Phrase((), (), (), -1)


def phrase(words: Sequence[str], meanings: Sequence[int], head: int) -> Phrase:
    """The common case: every word leans on the word at ``head``."""
    return Phrase(tuple(words), tuple(meanings), tuple(head - i for i in range(len(words))), head)


def rootless(words: Sequence[str], meanings: Sequence[int]) -> Phrase:
    """Words whose head is somewhere else in the clause, such as the auxiliary of a distant participle."""
    return Phrase(tuple(words), tuple(meanings), (0,) * len(words), -1)


def in_front(words: Sequence[str], meanings: Sequence[int], rest: Phrase) -> Phrase:
    """Put small words before a phrase; they lean on its head."""
    count = len(words)
    leans = tuple(count + rest.root - i for i in range(count))
    return Phrase((*words, *rest.words), (*meanings, *rest.meanings), leans + rest.leans, count + rest.root)


def joined(first: Phrase, conjunction: str, second: Phrase) -> Phrase:
    """first + conjunction + second, headed by the first; the second has its meanings moved out of the way."""
    start = len(first.words) + 1
    second_root = start + second.root
    leans = [*first.leans, second_root - (start - 1), *second.leans]
    leans[second_root] = first.root - second_root
    moved = tuple(meaning << 8 for meaning in second.meanings)
    words = (*first.words, conjunction, *second.words)
    return Phrase(words, (*first.meanings, JOIN, *moved), tuple(leans), first.root)


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
