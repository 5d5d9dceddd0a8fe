"""Phrases: words with their meanings and their syntactic heads.

The *meanings* of a word are a set of bits. A source word and a target word are aligned exactly if they belong to the
same slot and share a meaning. So the alignment is exact:

    the         small      cat           le          petit      chat
    DETERMINER  ADJECTIVE  NOUN          DETERMINER  ADJECTIVE  NOUN        (du = PREPOSITION | DETERMINER)

The *head offset* of a word is the distance to its head (+2 = two words to the right, 0 = the head of the phrase). It
is relative, so it stays the same when a phrase is moved.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

# Meanings in a noun phrase or a quality.
PREPOSITION, DETERMINER, ADJECTIVE, MORE, NOUN, DEGREE, JOIN = (1 << bit for bit in range(7))
# Meanings in a verb.
VERB, TENSE, NEGATION, MODAL, ASKING = (1 << bit for bit in range(5))


@dataclass(frozen=True, eq=False, slots=True)
class Shape:
    """A phrase without its words. There are few shapes, and each exists once, so they are compared by identity.

    ``root`` is the index of the head, or -1 if the head is outside the phrase.
    """

    meanings: tuple[int, ...]
    head_offsets: tuple[int, ...]
    root: int


@cache
def shape(meanings: tuple[int, ...], head_offsets: tuple[int, ...], root: int) -> Shape:
    return Shape(meanings, head_offsets, root)


@cache
def flat_shape(meanings: tuple[int, ...], head: int) -> Shape:
    """The usual shape: the word at index ``head`` is the head of all others."""
    return shape(meanings, tuple(head - index for index in range(len(meanings))), head)


class Phrase(NamedTuple):
    """A sequence of words, and its shape."""

    words: tuple[str, ...]
    shape: Shape


def phrase(words: Sequence[str], meanings: Sequence[int], head: int) -> Phrase:
    return Phrase(tuple(words), flat_shape(tuple(meanings), head))


def rootless_phrase(words: Sequence[str], meanings: Sequence[int]) -> Phrase:
    """Words whose head is outside the phrase, such as an auxiliary separated from its participle."""
    return Phrase(tuple(words), shape(tuple(meanings), (0,) * len(words), -1))


NOTHING = rootless_phrase([], [])


def prepend(words: Sequence[str], meanings: Sequence[int], rest: Phrase) -> Phrase:
    """Put function words before a phrase. Their head is the head of the phrase."""
    root = len(words) + rest.shape.root
    head_offsets = (*(root - index for index in range(len(words))), *rest.shape.head_offsets)
    return Phrase((*words, *rest.words), shape((*meanings, *rest.shape.meanings), head_offsets, root))


def join(first: Phrase, conjunction: str, second: Phrase) -> Phrase:
    """first + conjunction + second. The first is the head. The meanings of the second are shifted to other bits."""
    start = len(first.words) + 1
    second_root = start + second.shape.root
    head_offsets = [*first.shape.head_offsets, second_root - (start - 1), *second.shape.head_offsets]
    head_offsets[second_root] = first.shape.root - second_root
    meanings = (*first.shape.meanings, JOIN, *(meaning << 8 for meaning in second.shape.meanings))
    return Phrase((*first.words, conjunction, *second.words), shape(meanings, tuple(head_offsets), first.shape.root))


@cache
def fixed_phrase(text: str) -> Phrase:
    """Words without inflection, with alignment numbers: ``"la:1 semaine*:2 dernière:3"``.

    Words of two languages with the same number are aligned. Without numbers, each word is aligned with each. The star
    marks the head; the default is the last word.
    """
    words, meanings, head = [], [], -1
    for index, piece in enumerate(text.split()):
        word, _, label = piece.partition(":")
        if word.endswith("*"):
            word, head = word[:-1], index
        words.append(word)
        meanings.append(1 << int(label or 0))
    return phrase(words, meanings, head if head >= 0 else len(words) - 1)
