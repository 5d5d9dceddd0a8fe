"""The place of each word: the slot that it comes from, and its role there.

Two realisations of a sentence differ in their words. The word with the same place in both is the same word in another
form: "le" in "le chat" and "les" in "les chats".
"""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from typing import Any, NamedTuple

from cutaway.data.builtin.tinyworld.german import CASES
from cutaway.data.builtin.tinyworld.lexicon import Lexicon
from cutaway.data.builtin.tinyworld.meaning import Clause
from cutaway.data.builtin.tinyworld.phrases import DETERMINER, MODAL, NEGATION, PREPOSITION, TENSE, VERB
from cutaway.data.builtin.tinyworld.templates import LANGUAGES, SentenceLayout, TemplateItem, realise

# Roles in a verb. In a phrase, the role of a word is the first of its meanings: PREPOSITION, DETERMINER, NOUN, ...
FINITE, NON_FINITE, PARTICLE, OTHER = (1 << bit for bit in range(20, 24))
BARE_CASES = (*CASES[1:], "governed")  # features of German phrases without a preposition

Path = tuple[str, ...]  # the slots from the sentence to a clause: ("other",)


class Place(NamedTuple):
    path: Path
    kind: str  # of the template's item: word, phrase, fixed, quality, verb
    slot: str
    piece: str  # of a verb: "not", "front", ...; "clitic" for an object pronoun before the verb
    role: int
    order: int  # among the words with the same role in the same slot

    @property
    def group(self) -> tuple[Path, str, str]:
        """What words are compared within: a slot of a clause, or its verb."""
        return (self.path, self.kind, "" if self.kind == "verb" else self.slot)


class SaidSentence(NamedTuple):
    """A sentence in one language. ``raw`` has the words before elision."""

    raw: tuple[str, ...]
    words: tuple[str, ...]  # without the capital at the start
    places: tuple[Place, ...]


def say(lexicon: Lexicon, sentence: Clause, code: str) -> SaidSentence:
    words: list[str] = []
    layout = realise(lexicon, sentence, code, "", words)
    return SaidSentence(tuple(words), tuple(LANGUAGES[code].finish(list(words))), places(layout, code))


@lru_cache(maxsize=1 << 14)
def places(layout: SentenceLayout, code: str) -> tuple[Place, ...]:
    """The place of each word, in the order of the words."""
    found: list[Place] = []
    seen: Counter[Any] = Counter()
    for path, part, role in located(layout, code, ()):
        piece = part.feature if part.kind == "verb" or part.feature == "clitic" else ""
        place = Place(path, part.kind, part.name, piece, role, 0)
        key = (*place.group, role)
        found.append(place._replace(order=seen[key]))
        seen[key] += 1
    return tuple(found)


def located(layout: SentenceLayout, code: str, path: Path) -> list[tuple[Path, TemplateItem, int]]:
    """(path, item of the template, role) of each word."""
    arranged, items = layout.items[0], iter(layout.items[1:])
    found: list[tuple[Path, TemplateItem, int]] = []
    verb: list[tuple[int, str, int]] = []  # index in `found`, piece, meaning
    for part in arranged.parts:
        if part.kind == "word":
            found.append((path, part, 0))
            continue
        item = next(items)
        if part.kind == "clause":
            found += located(item, code, (*path, part.name))
            continue
        if part.kind == "verb":
            verb += [(len(found) + i, part.feature, meaning) for i, meaning in enumerate(item.meanings)]
        found += [(path, part, phrase_role(meaning, part.feature)) for meaning in item.meanings]
    for (index, _, _), role in zip(verb, verb_roles(verb, code), strict=True):
        found[index] = (*found[index][:2], role)
    return found


def phrase_role(meaning: int, feature: str) -> int:
    """The first meaning. A partitive article (du pain) has none; it is a determiner. So is a dative or genitive
    article (dem, des), which also means "to" or "of"."""
    if feature in BARE_CASES:
        meaning &= ~PREPOSITION
    return meaning & -meaning or DETERMINER


def verb_roles(verb: list[tuple[int, str, int]], code: str) -> list[int]:
    """The roles of the words of a verb: FINITE (mange, a, does), NON_FINITE (mangé, manger), PARTICLE (an, for), ..."""
    finite = finite_word([(piece, meaning) for _, piece, meaning in verb], code)
    is_one_word = finite >= 0 and bool(verb[finite][2] & VERB)
    roles = []
    for index, (_, _, meaning) in enumerate(verb):
        if index == finite:
            roles.append(FINITE)
        elif meaning & VERB:
            roles.append(PARTICLE if is_one_word or NON_FINITE in roles else NON_FINITE)
        else:
            roles.append(NEGATION if meaning & NEGATION else OTHER)
    return roles


def finite_word(verb: list[tuple[str, int]], code: str) -> int:
    """The index of the finite word, or -1."""
    if code == "de":
        return next((i for i, (piece, _) in enumerate(verb) if piece == "verb"), -1)
    if code == "fr":
        return next((i for i, (_, meaning) in enumerate(verb) if meaning & (VERB | TENSE | MODAL)), -1)
    meanings = [meaning for _, meaning in verb]
    starts_with_never = meanings[:1] == [NEGATION] and meanings[1:2] != [NEGATION]
    return int(starts_with_never) if meanings else -1
