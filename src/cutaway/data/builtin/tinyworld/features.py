"""What the grammar knows of each source word: the gender and number of its noun phrase, the tense of its clause.

    The small beach is here.   the, small: gender f (of "plage"), number singular     is: tense present, number singular

The English words "the" and "small" do not show a gender. A model that has it at these words has computed it.
"""

from __future__ import annotations

from typing import NamedTuple

from cutaway.data.builtin.tinyworld.grammar import AlignedPair, default_world
from cutaway.data.builtin.tinyworld.lexicon import Pronoun
from cutaway.data.builtin.tinyworld.meaning import Clause, agreement
from cutaway.data.builtin.tinyworld.phrases import ADJECTIVE, DETERMINER, NOUN
from cutaway.data.builtin.tinyworld.places import FINITE, Place, say
from cutaway.data.builtin.tinyworld.referents import clause_at, named_in

ROLES = {DETERMINER: "determiner", ADJECTIVE: "adjective", NOUN: "noun"}
PERSONS = "12313"  # of I, you, he, we, they
SECOND_PART = 8  # bits by which the roles of the second part of a coordination are shifted


class WordFeatures(NamedTuple):
    """The part of speech of a source word, and the values of its features: {"gender": "f", "number": "singular"}."""

    role: str
    values: dict[str, str]


def source_features(direction: str, pair: AlignedPair) -> list[WordFeatures | None]:
    """The features of each source word; None for other words, such as prepositions."""
    english = say(default_world().lexicon, pair.derivation, "en")
    code = direction.removeprefix("en-")
    return [features_at(pair.derivation, place, code) for place in english.places]


def features_at(sentence: Clause, place: Place, code: str) -> WordFeatures | None:
    clause = clause_at(sentence, place.path)
    if place.kind == "verb" and place.role == FINITE and clause.mood.tense != "command":
        values = {"tense": clause.mood.tense}
        subject = clause.slots.get("subject")
        return WordFeatures("verb", values if subject is None else {**values, **person_and_number(subject)})
    is_second = place.role not in ROLES and place.role >> SECOND_PART in ROLES
    role = ROLES.get(place.role >> SECOND_PART if is_second else place.role)
    named = named_in(clause.slots.get(place.slot))
    if place.kind != "phrase" or role is None or not named:
        return None
    value, _ = named[1] if is_second and len(named) > 1 else named[0]
    shape = agreement(value)
    gender = shape.french if code == "fr" else shape.german
    if isinstance(value, Pronoun):
        return WordFeatures("pronoun", person_and_number(value))
    return WordFeatures(role, {"gender": gender, "number": "plural" if value.plural else "singular"})


def person_and_number(value: object) -> dict[str, str]:
    shape = agreement(value)  # type: ignore[arg-type]
    return {"person": PERSONS[shape.person], "number": "plural" if shape.plural else "singular"}
