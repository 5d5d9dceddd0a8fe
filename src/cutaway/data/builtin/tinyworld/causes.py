"""Why a target word has its form: the source words that decide its gender, number, person, tense, case or elision.

    on the small beach        sur la petite plage
    la ← beach (gender; else le), beach (number; else les), small (elision; else l')

A source word is a *cause* of a feature if another word in its place can change the feature of the target word, where
the English words that only agree with it follow (the cat sleeps, the cats sleep). So "beach" decides the gender of
"la", and "the" does not. If several words say the same value ("these cats"), all of them are causes.

The causes are not written down as rules. ``interventions.py`` changes one feature of the derivation, the grammar
realises it again, and the target words that change are decided by that feature. The changed word is the ``rival``.

    gender      the noun, or the antecedent of a pronoun (la for "it"); "him" and "her" for their own form
    number      the noun, and its determiner if that says the number (these, two, a, every; not "the"). For a verb or a
                pronoun also the English word that agrees in the same way ("is" for est, "them" for les)
    person      the subject, and the English verb that agrees with it
    tense       the finite verb: ate, did, will
    auxiliary   the main verb
    case        the verb for its object; a preposition for its noun phrase, also "to" and "of" for dative and genitive
    declension  the determiner, which decides the ending of a German adjective: der kleine, ein kleiner
    elision     the words behind the next target word, and all that decides whether that word opens with a vowel (also
                for mon and ma, cet and ce, bel and beau)
    article     the adjective that changes des to de: de bons gâteaux
    order       the conjunction or relative pronoun that joins a German verb with its prefix: weil er ankommt

In a coordination, a noun that can change the feature alone is the only cause: "le roi et la reine sont vieux" is
masculine because of "king". Otherwise both are.

These have no cause: a word whose other form is the same word (gender of les); nominatives; the form of a command, which
no word decides; a French participle in its tense, which its auxiliary shows; an infinitive after a modal; fixed phrases
(la semaine dernière), which tinyworld does not inflect. A contraction stands for two words. Its rival is the
preposition (au ← market, else à), and an article that would merge has no rival (no gender for la in à la gare; à has
it). The rival of a tense is the word that would stand in this place in another tense, if possible in a tense with the
same number of words: mange / mangera, est / était, a (mangé) / mange, isst / hat, hat / wird.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from cutaway.data.builtin.tinyworld.french import ELIDED, finish
from cutaway.data.builtin.tinyworld.grammar import AlignedPair, World, default_world
from cutaway.data.builtin.tinyworld.interventions import Intervention, Interventions, other_opening
from cutaway.data.builtin.tinyworld.lexicon import Lexicon
from cutaway.data.builtin.tinyworld.phrases import DETERMINER, MORE, NEGATION, NOUN
from cutaway.data.builtin.tinyworld.places import FINITE, NON_FINITE, OTHER, Place, SaidSentence, say

FEATURES = (
    "gender", "number", "person", "tense", "auxiliary", "case", "declension", "elision", "article", "order",
)  # fmt: skip
NO_FORM = ("", "-")


class Cause(NamedTuple):
    """Why a target word has its form."""

    target: int  # the index of the target word
    feature: str  # one of FEATURES
    sources: tuple[int, ...]  # the indices of the source words that decide the feature
    rival: str  # the form with another value of the feature


class Difference(NamedTuple):
    target: int
    rival: str
    is_elision: bool


def causes(direction: str, pair: AlignedPair, world: World | None = None) -> tuple[Cause, ...]:
    """The causes of every target word, in the order of the words. ``world`` is only needed for words that you added."""
    lexicon, code = (world or default_world()).lexicon, direction.removeprefix("en-")
    english, target = say(lexicon, pair.derivation, "en"), say(lexicon, pair.derivation, code)
    found: dict[tuple[int, str], Cause] = {}
    for intervention in Interventions(lexicon, pair.derivation, code, english):
        new = [] if not intervention.sources else list(effects(intervention, lexicon, code, english, target))
        for cause in new:
            known = found.get((cause.target, cause.feature))
            if known is None:
                found[cause.target, cause.feature] = cause
            elif not intervention.is_joint:
                found[cause.target, cause.feature] = known._replace(sources=union(known.sources, cause.sources))
    if code == "fr":
        for cause in elisions(pair, english, target):
            known = found.get((cause.target, cause.feature), cause)
            found[cause.target, cause.feature] = known._replace(sources=union(known.sources, cause.sources))
    return tuple(with_capital(cause) for cause in sorted(found.values(), key=in_order))


def union(some: tuple[int, ...], others: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(sorted({*some, *others}))


def in_order(cause: Cause) -> tuple[int, int]:
    return cause.target, FEATURES.index(cause.feature)


def with_capital(cause: Cause) -> Cause:
    return cause if cause.target else cause._replace(rival=cause.rival[0].upper() + cause.rival[1:])


# ---- Effects of an intervention --------------------------------------------------------------------------


def effects(
    intervention: Intervention, lexicon: Lexicon, code: str, english: SaidSentence, target: SaidSentence
) -> Iterator[Cause]:
    """The target words that change. The first other value that changes a word gives its rival."""
    seen: set[int] = set()
    for sentence in intervention.sentences:
        other = say(lexicon, sentence, code)
        seen |= merged_words(target, other)
        for difference in differences(target, other):
            place = target.places[difference.target]
            if difference.target in seen or not is_effect(intervention, difference, place):
                continue
            seen.add(difference.target)
            feature = "elision" if difference.is_elision else intervention.feature
            sources = union(intervention.sources, ())
            if feature in ("number", "person"):
                sources = union(sources, agreeing_words(intervention, place, english, say(lexicon, sentence, "en")))
            yield Cause(difference.target, feature, sources, difference.rival)


def merged_words(one: SaidSentence, other: SaidSentence) -> set[int]:
    """The words of phrases that are not in the other sentence, such as "den" of "in den Park" in "im Park"."""
    found = {i for i, _ in same_places(one.places, other.places)}
    return {i for i, place in enumerate(one.places) if i not in found and place.kind == "phrase"}


def is_effect(intervention: Intervention, difference: Difference, place: Place) -> bool:
    if difference.is_elision and intervention.feature != "elision":
        return (place.path, place.slot) not in intervention.sites
    return intervention.is_compared(place)


def differences(one: SaidSentence, other: SaidSentence) -> Iterator[Difference]:
    for i, j in same_places(one.places, other.places):
        if one.words[i] != other.words[j] and other.words[j] not in NO_FORM:
            yield Difference(i, other.words[j], one.raw[i] == other.raw[j])


def same_places(places: tuple[Place, ...], others: tuple[Place, ...]) -> Iterator[tuple[int, int]]:
    """Index pairs of words with the same place. Phrases of the same length are compared word by word."""
    own, candidates = by_group(places), by_group(others)
    for group, indices in own.items():
        found = candidates.get(group, [])
        if len(found) == len(indices) and places[indices[0]].kind != "verb":
            yield from zip(indices, found, strict=True)
        else:
            matches = {(others[j].role, others[j].order): j for j in found}
            if not any(places[i].role == NON_FINITE for i in indices):  # er isst, er hat gegessen, weil er gegessen hat
                first = next((j for j in found if others[j].role in (FINITE, NON_FINITE)), None)
                matches |= {} if first is None else {(FINITE, 0): first}
            keys = [(i, (places[i].role, places[i].order)) for i in indices]
            yield from ((i, matches[key]) for i, key in keys if key in matches)


def by_group(places: tuple[Place, ...]) -> dict[object, list[int]]:
    groups: dict[object, list[int]] = {}
    for index, place in enumerate(places):
        groups.setdefault(place.group, []).append(index)
    return groups


def agreeing_words(
    intervention: Intervention, place: Place, english: SaidSentence, other: SaidSentence
) -> tuple[int, ...]:
    """The English verb or pronoun that agrees as the target word does: "is" for est, "them" for les."""
    found = []
    for i, j in same_places(english.places, other.places):
        candidate = english.places[i]
        is_verb = place.role == FINITE == candidate.role and place.path == candidate.path
        site = (place.path, place.slot)
        is_pronoun = site in intervention.sites[1:] and site == (candidate.path, candidate.slot)
        if (is_verb or is_pronoun) and english.words[i] != other.words[j]:
            found.append(i)
    return tuple(found)


# ---- Elision at the border of two phrases ----------------------------------------------------------------


def elisions(pair: AlignedPair, english: SaidSentence, target: SaidSentence) -> Iterator[Cause]:
    """Elision depends on the opening of the next word. Its causes are the source words behind that word."""
    for index, word in enumerate(target.raw[:-1]):
        if (word in ELIDED or word == "si") and can_open_otherwise(word, target, index + 1):
            words = list(target.raw)
            words[index + 1] = other_neighbour(word, words[index + 1])
            rival = finish(words)[index]
            sources = sources_of(pair, english, index + 1)
            if rival != target.words[index] and sources:
                yield Cause(index, "elision", sources, rival)


def can_open_otherwise(word: str, target: SaidSentence, index: int) -> bool:
    """Whether another word can stand there that opens differently. Not for ne, plus, est-ce, object pronouns and the
    second word of a partitive article (de la soupe)."""
    place, before = target.places[index], target.places[index - 1]
    if place.piece in ("front", "clitic") or place.role in (NEGATION, MORE, OTHER):
        return False
    if place.group == before.group and place.role == before.role == DETERMINER:
        return False
    return word != "si" or place.kind == "word" or place.role == NOUN  # si + pronoun or name


def other_neighbour(word: str, neighbour: str) -> str:
    if word == "si" and neighbour not in ("il", "ils"):
        return "il"
    return other_opening(neighbour)


def sources_of(pair: AlignedPair, english: SaidSentence, target: int) -> tuple[int, ...]:
    """The source words behind a target word, without "to" in "wants to". An article without a counterpart (des) comes
    with its noun."""
    aligned = [i for i, j in pair.alignment if j == target and not is_infinitive_marker(english, i)]
    return tuple(aligned or [i for i, j in pair.alignment if j == pair.target_heads[target]])


def is_infinitive_marker(english: SaidSentence, index: int) -> bool:
    return english.words[index] == "to" and english.places[index].kind == "verb"
