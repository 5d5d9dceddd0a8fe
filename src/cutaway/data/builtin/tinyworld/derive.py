"""Write a derivation yourself, to realise a given sentence in every language.

derive(world, "transitive", "past not", subject="the small cat", verb="see", object="the tree")
derive(world, "because", clause=derive(...), other=derive(...))
"""

from __future__ import annotations

from typing import Any

from cutaway.data.builtin.tinyworld.grammar import World
from cutaway.data.builtin.tinyworld.lexicon import Noun, Preposition
from cutaway.data.builtin.tinyworld.meaning import NP, Clause, Coordination, Mood, PrepositionalPhrase, Quality
from cutaway.data.builtin.tinyworld.templates import CLAUSE_SLOTS, FIXED_SLOTS

MODALS = ("can", "must", "want", "like")


def derive(world: World, rule: str, mood: str = "", **slots: Any) -> Clause:
    """A rule with filled slots. A slot is a derivation, or English text such as "the small cat"."""
    found = next((r for r in (*world.clauses, *world.sentences) if r.name == rule), None)
    if found is None:
        names = ", ".join(r.name for r in (*world.clauses, *world.sentences))
        raise ValueError(f"tinyworld has no rule {rule!r}. Choose one of {names}.")
    filled = {name: read_slot(world, name, value) for name, value in slots.items()}
    return Clause(found, filled, read_mood(mood))


def sentence(world: World, derivation: Clause) -> Clause:
    """A clause becomes a statement. A sentence stays unchanged."""
    if derivation.rule in world.sentences:
        return derivation
    return derive(world, "statement", clause=derivation)


def read_mood(text: str) -> Mood:
    words = text.split()
    tense = next((word for word in words if word in ("past", "future", "command")), "present")
    polarity = next((word for word in words if word in ("not", "never")), "")
    return Mood(tense, polarity, next((word for word in words if word in MODALS), ""))


def read_slot(world: World, name: str, value: Any) -> Any:
    if not isinstance(value, str):
        return value
    lexicon = world.lexicon
    if name == "verb":
        return lexicon.verbs[value]
    if name in FIXED_SLOTS:
        return next(table[value] for table in lexicon.fixed.values() if value in table)
    if name == "quality":
        return read_quality(world, value)
    if name in ("place", "spot"):
        return read_prepositional_phrase(world, value)
    assert name not in CLAUSE_SLOTS, f"{name} must be a derivation, not {value!r}"
    return read_participant(world, value)


def read_participant(world: World, text: str) -> Any:
    """A pronoun, name or noun phrase: "she", "Anna", "the small cat", "the cat and the dog"."""
    first, conjunction, second = text.partition(" and ")
    if conjunction:
        return Coordination(read_noun_phrase(world, first), read_noun_phrase(world, second))
    for pronoun in world.lexicon.pronouns.values():
        if text in pronoun.english:
            return pronoun
    return read_noun_phrase(world, text)


def read_noun_phrase(world: World, text: str) -> NP:
    *words, last = text.replace("how many", "how_many").split()
    noun, plural = find_noun(world, last)
    if "name" in noun.kinds:
        return NP("name", noun)
    for adjective in world.lexicon.adjectives.values():
        plain, most = [adjective.name], list(adjective.english.superlative)
        if words and words[-1:] == plain and words[-2:] != most:
            return NP(determiner_of(words[:-1], plural), noun, adjective, plural)
        if most and words[-len(most) :] == most:
            return NP(determiner_of(words[: -len(most)], plural), noun, adjective, plural, most=True)
    return NP(determiner_of(words, plural), noun, None, plural)


def find_noun(world: World, word: str) -> tuple[Noun, bool]:
    for noun in world.lexicon.nouns.values():
        if word in noun.english:
            return noun, word == noun.english.plural
    raise ValueError(f"tinyworld has no noun {word!r}. Add a row to NOUNS in words.py.")


def determiner_of(words: list[str], plural: bool) -> str:
    if not words:
        return "bare" if plural else "mass"
    return {"an": "a", "these": "this"}.get(words[0], words[0])


def read_quality(world: World, text: str) -> Quality:
    *degree, last = text.split()
    for adjective in world.lexicon.adjectives.values():
        if tuple(text.split()) == adjective.english.comparative:
            return Quality(adjective, more=True)
    return Quality(world.lexicon.adjectives[last], degree[0] if degree else "")


def read_prepositional_phrase(world: World, text: str) -> PrepositionalPhrase:
    """The row of the noun has prepositions (at the market, to the market). The others are in SPOTS."""
    text = text.replace("in front of", "in_front_of")
    word, _, rest = text.partition(" ")
    np = read_noun_phrase(world, rest)
    options: list[Preposition | None] = [np.noun.at, np.noun.to]
    options += [preposition for preposition, kinds in world.lexicon.spots if kinds & np.noun.kinds]
    for preposition in options:
        if preposition is not None and preposition.english == word:
            return PrepositionalPhrase(preposition, np)
    raise ValueError(f"tinyworld cannot say {text!r}. The prepositions of {np.noun.name!r} are {options}.")
