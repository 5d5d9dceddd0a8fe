"""What a sentence says, before any language has its say: the values that fill the slots of a rule.

"The small cat sleeps."  =  Clause(rule "intransitive", subject=NP(the, cat, small), verb=sleep)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from cutaway.data.builtin.tinyworld.lexicon import Adjective, Noun, Preposition, Pronoun
    from cutaway.data.builtin.tinyworld.rules import GrammarRule

# Places in a row of five verb forms: I, you, he, we, they. Plural "you" is not part of this world.
FIRST, SECOND, THIRD, FIRST_PLURAL, THIRD_PLURAL = range(5)


class NP(NamedTuple):
    """A noun phrase: ``NP("the", cat, small)``. The determiner settles singular or plural unless it is "the"."""

    determiner: str
    noun: Noun
    adjective: Adjective | None = None
    plural: bool = False
    most: bool = False  # the superlative: "the smallest cat"


class Both(NamedTuple):
    """Two noun phrases that act together: "the cat and the dog"."""

    first: NP
    second: NP


class Relative(NamedTuple):
    """The pronoun that opens a relative clause (who, qui, der); it agrees with its antecedent."""

    antecedent: NP


class It(NamedTuple):
    """An object pronoun for something said earlier in the same sentence, whose gender is therefore known."""

    antecedent: NP


class Placed(NamedTuple):
    """A noun phrase behind a preposition that its noun, or the situation, has chosen: "on the table"."""

    preposition: Preposition
    np: NP


class Quality(NamedTuple):
    """An adjective said of the subject: "small", "very small", "too small"; ``more`` for "smaller than"."""

    adjective: Adjective
    degree: str = ""
    more: bool = False


class Mood(NamedTuple):
    """How a clause is meant: tense (or "command"), polarity ("", "not", "never") and modal ("", "can", ...)."""

    tense: str = "present"
    polarity: str = ""
    modal: str = ""


PLAIN = Mood()


class Clause(NamedTuple):
    """One rule with its slots filled. Slots hold values of this file, rows of the lexicon, or clauses."""

    rule: GrammarRule
    slots: dict[str, Any]
    mood: Mood = PLAIN


class Agreement(NamedTuple):
    """What other words must know of a noun phrase in order to agree with it."""

    person: int
    plural: bool
    french: str  # m, f
    german: str  # m, f, n


NOBODY = Agreement(THIRD, False, "m", "n")  # the "it" of "it rains"


def agreement(value: NP | Pronoun | Both | Relative | It) -> Agreement:
    if isinstance(value, NP):
        return value.noun.agreements[value.plural]
    if isinstance(value, Both):
        first, second = agreement(value.first), agreement(value.second)
        french = "f" if first.french == second.french == "f" else "m"  # one masculine makes the group masculine
        return Agreement(THIRD_PLURAL, True, french, first.german)
    if isinstance(value, Relative | It):
        return agreement(value.antecedent)
    return value.agreement
