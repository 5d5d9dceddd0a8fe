"""The meaning of a sentence, independent of language: the values that fill the slots of a rule.

"The small cat sleeps."  =  Clause(rule "intransitive", subject=NP(the, cat, small), verb=sleep)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from cutaway.data.builtin.tinyworld.lexicon import Adjective, Noun, Preposition, Pronoun
    from cutaway.data.builtin.tinyworld.rules import GrammarRule

# Indices of the five verb forms: I, you, he, we, they. Tinyworld has no plural "you".
FIRST, SECOND, THIRD, FIRST_PLURAL, THIRD_PLURAL = range(5)


class NP(NamedTuple):
    """A noun phrase: ``NP("the", cat, small)``. Most determiners are singular or plural only; "the" can be both."""

    determiner: str
    noun: Noun
    adjective: Adjective | None = None
    plural: bool = False
    most: bool = False  # the superlative: "the smallest cat"


class Coordination(NamedTuple):
    """Two noun phrases joined by "and": "the cat and the dog"."""

    first: NP
    second: NP


class RelativePronoun(NamedTuple):
    """The pronoun at the start of a relative clause (who, qui, der). It agrees with its antecedent."""

    antecedent: NP


class ObjectPronoun(NamedTuple):
    """An object pronoun (it, le, ihn) for a noun phrase earlier in the sentence. It agrees with its antecedent."""

    antecedent: NP


class PrepositionalPhrase(NamedTuple):
    """A preposition and a noun phrase: "on the table"."""

    preposition: Preposition
    np: NP


class Quality(NamedTuple):
    """A predicative adjective: "small", "very small", "too small"; ``more`` for "smaller than"."""

    adjective: Adjective
    degree: str = ""
    more: bool = False


class Mood(NamedTuple):
    """Tense (or "command"), polarity ("", "not", "never") and modal ("", "can", ...) of a clause."""

    tense: str = "present"
    polarity: str = ""
    modal: str = ""


PLAIN = Mood()


class Clause(NamedTuple):
    """A rule with filled slots. A slot value is a class of this file, a row of the lexicon or a clause."""

    rule: GrammarRule
    slots: dict[str, Any]
    mood: Mood = PLAIN


class Agreement(NamedTuple):
    """The features of a noun phrase that other words agree with."""

    person: int
    plural: bool
    french: str  # m, f
    german: str  # m, f, n


IMPERSONAL = Agreement(THIRD, False, "m", "n")  # the "it" of "it rains"


def agreement(value: NP | Pronoun | Coordination | RelativePronoun | ObjectPronoun) -> Agreement:
    if isinstance(value, NP):
        return value.noun.agreements[value.plural]
    if isinstance(value, Coordination):
        first, second = agreement(value.first), agreement(value.second)
        french = "f" if first.french == second.french == "f" else "m"  # a mixed group is masculine
        return Agreement(THIRD_PLURAL, True, french, first.german)
    if isinstance(value, RelativePronoun | ObjectPronoun):
        return agreement(value.antecedent)
    return value.agreement
