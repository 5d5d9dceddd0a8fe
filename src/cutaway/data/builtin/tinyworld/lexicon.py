"""The lexicon: rows parsed from the word tables of ``words.py``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from cutaway.data.builtin.tinyworld import english, french, german, words
from cutaway.data.builtin.tinyworld.meaning import THIRD, THIRD_PLURAL, Agreement
from cutaway.data.builtin.tinyworld.phrases import Phrase, fixed_phrase


class Preposition(NamedTuple):
    """A preposition in three languages: on, sur, auf+dat."""

    english: str
    french: str
    german: str


# Rows are compared by identity, not by value.
@dataclass(frozen=True, eq=False, slots=True)
class Noun:
    name: str
    english: english.EnglishNoun
    french: french.FrenchNoun
    german: german.GermanNoun
    kinds: frozenset[str]
    agreements: tuple[Agreement, Agreement]  # singular, plural
    at: Preposition | None = None
    to: Preposition | None = None

    @property
    def is_human(self) -> bool:
        return not self.kinds.isdisjoint(("person", "family"))


@dataclass(frozen=True, eq=False, slots=True)
class Adjective:
    name: str
    english: english.EnglishAdjective
    french: french.FrenchAdjective
    german: german.GermanAdjective
    kinds: frozenset[str]


@dataclass(frozen=True, eq=False, slots=True)
class Verb:
    name: str
    english: english.EnglishVerb
    french: french.FrenchVerb
    german: german.GermanVerb
    frames: frozenset[str] = frozenset()
    subjects: frozenset[str] = frozenset()
    objects: frozenset[str] = frozenset()


@dataclass(frozen=True, eq=False, slots=True)
class Pronoun:
    name: str
    english: tuple[str, ...]
    french: tuple[str, ...]
    german: tuple[str, ...]
    agreement: Agreement


@dataclass(frozen=True, eq=False, slots=True)
class FixedPhrase:
    """Words without inflection: "every morning", chaque matin, jeden Morgen."""

    name: str
    phrases: dict[str, Phrase]


@dataclass(frozen=True)
class Lexicon:
    nouns: dict[str, Noun]
    adjectives: dict[str, Adjective]
    verbs: dict[str, Verb]  # also under their French and German names: templates call "être" and "sein"
    pronouns: dict[str, Pronoun]
    spots: list[tuple[Preposition, frozenset[str]]]
    fixed: dict[str, dict[str, FixedPhrase]] = field(default_factory=dict)

    def verbs_in(self, frames: frozenset[str]) -> list[Verb]:
        return [verb for name, verb in self.verbs.items() if verb.name == name and verb.frames & frames]

    def extend(self, nouns: str = "", adjectives: str = "", verbs: str = "") -> Lexicon:
        """A new lexicon with more rows, in the format of ``words.py``."""
        return Lexicon(
            {**self.nouns, **read_nouns(nouns)},
            {**self.adjectives, **read_adjectives(adjectives)},
            {**self.verbs, **read_verbs(verbs)},
            self.pronouns,
            self.spots,
            self.fixed,
        )


def rows(table: str) -> Iterator[list[str]]:
    for line in table.strip().splitlines():
        if line.strip():
            yield [column.strip() for column in line.split("|")]


def kinds_of(text: str) -> frozenset[str]:
    return frozenset(kind for name in text.split() for kind in words.KINDS.get(name, name).split())


def read_nouns(table: str) -> dict[str, Noun]:
    nouns = (read_noun(columns) for columns in rows(table))
    return {noun.name: noun for noun in nouns}


def read_noun(columns: list[str]) -> Noun:
    at, to = ([*columns[4:], "", ""])[:2]
    return noun_row(
        english.read_noun(columns[0]),
        french.read_noun(columns[1]),
        german.read_noun(columns[2]),
        kinds_of(columns[3]),
        read_at(at) if at else None,
        read_to(to) if to else None,
    )


def noun_row(
    in_english: english.EnglishNoun,
    in_french: french.FrenchNoun,
    in_german: german.GermanNoun,
    kinds: frozenset[str],
    at: Preposition | None = None,
    to: Preposition | None = None,
) -> Noun:
    genders = (in_french.gender, in_german.gender)
    agreements = (Agreement(THIRD, False, *genders), Agreement(THIRD_PLURAL, True, *genders))
    name = in_english.singular  # also a kind, so that rows and rules can select a single noun
    return Noun(name, in_english, in_french, in_german, kinds | {name}, agreements, at, to)


def read_at(text: str) -> Preposition:
    in_english, in_french, in_german = text.split()
    return Preposition(in_english, in_french, f"{in_german}+dat")


def read_to(text: str) -> Preposition:
    in_french, in_german = text.split()
    return Preposition("to", in_french, "zu" if in_german == "zu" else f"{in_german}+acc")


def read_names(table: str) -> dict[str, Noun]:
    result = {}
    for column in (column for columns in rows(table) for column in columns):
        name, gender = column.split()
        forms = (english.EnglishNoun(name, ""), french.FrenchNoun(name, "", gender))
        result[name] = noun_row(*forms, german.GermanNoun(name, "", gender, False), frozenset(("name", "person")))
    return result


def read_adjectives(table: str) -> dict[str, Adjective]:
    result = {}
    for in_english, in_french, in_german, kinds in rows(table):
        forms = english.read_adjective(in_english)
        result[forms.plain] = Adjective(
            forms.plain, forms, french.read_adjective(in_french), german.read_adjective(in_german), kinds_of(kinds)
        )
    return result


def read_verbs(table: str) -> dict[str, Verb]:
    result = {}
    for in_english, in_french, in_german, frames, kinds in rows(table):
        subjects, _, objects = kinds.partition(">")
        forms = english.read_verb(in_english)
        name = " ".join(forms.base)
        result[name] = Verb(
            name,
            forms,
            french.read_verb(in_french),
            german.read_verb(in_german),
            frozenset(frames.split()),
            kinds_of(subjects),
            kinds_of(objects),
        )
    return result


def read_helpers(table: str) -> dict[str, Verb]:
    result = {}
    for in_english, in_french, in_german in rows(table):
        name = in_english.split(":")[0]
        verb = Verb(
            name,
            english.read_helper(in_english),
            french.read_helper(in_french),
            german.read_helper(in_german),
        )
        result.update({name: verb, verb.french.infinitive: verb, verb.german.infinitive: verb})
    return result


def read_pronouns(table: str) -> dict[str, Pronoun]:
    result = {}
    for in_english, in_french, in_german, shape in rows(table):
        person, gender = shape.split()
        forms = in_english.split()
        agreement = Agreement(int(person), person in "34", gender, gender)
        result[forms[0]] = Pronoun(
            forms[0], tuple(forms), tuple(in_french.split()), tuple(in_german.split()), agreement
        )
    return result


def read_fixed(table: str) -> dict[str, FixedPhrase]:
    result = {}
    for columns in rows(table):
        phrases = {name: fixed_phrase(column) for name, column in zip(("en", "fr", "de"), columns, strict=True)}
        name = " ".join(phrases["en"].words)
        result[name] = FixedPhrase(name, phrases)
    return result


def read_spots(table: str) -> list[tuple[Preposition, frozenset[str]]]:
    return [(Preposition(*columns[:3]), kinds_of(columns[3])) for columns in rows(table)]


FIXED_TABLES = {
    "number": words.NUMBERS,
    "feeling": words.FEELINGS,
    "habit": words.HABITS,
    "manner": words.MANNERS,
    "present time": words.TIMES_PRESENT,
    "past time": words.TIMES_PAST,
    "future time": words.TIMES_FUTURE,
}


def read_lexicon() -> Lexicon:
    return Lexicon(
        {**read_nouns(words.NOUNS), **read_names(words.NAMES)},
        read_adjectives(words.ADJECTIVES),
        {**read_helpers(words.HELPERS), **read_verbs(words.VERBS)},
        read_pronouns(words.PRONOUNS),
        read_spots(words.SPOTS),
        {name: read_fixed(table) for name, table in FIXED_TABLES.items()},
    )
