"""English grammar: little agreement, but auxiliaries ("does not sleep", "does the cat sleep?")."""

from __future__ import annotations

from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from cutaway.data.builtin.tinyworld.meaning import (
    NP,
    Agreement,
    Clause,
    Coordination,
    Mood,
    ObjectPronoun,
    PrepositionalPhrase,
    Quality,
    RelativePronoun,
)
from cutaway.data.builtin.tinyworld.phrases import (
    ADJECTIVE,
    ASKING,
    DEGREE,
    DETERMINER,
    MODAL,
    MORE,
    NEGATION,
    NOUN,
    PREPOSITION,
    TENSE,
    VERB,
    Phrase,
    join,
    phrase,
    prepend,
    rootless_phrase,
)

if TYPE_CHECKING:
    from cutaway.data.builtin.tinyworld.lexicon import Verb

VOWELS = "aeiou"
# These verbs form negations and questions without "do".
AUXILIARIES = {"be", "will", "can", "must"}
Chain = list[tuple[str, int]]  # words with their meanings
DETERMINERS_WITHOUT_WORDS = {"name", "mass", "bare"}


class EnglishNoun(NamedTuple):
    singular: str
    plural: str


class EnglishAdjective(NamedTuple):
    plain: str
    comparative: tuple[str, ...]
    superlative: tuple[str, ...]


class EnglishVerb(NamedTuple):
    base: tuple[str, ...]  # ("look", "for")
    present: tuple[tuple[str, ...], ...]  # I, you, he, we, they
    past: tuple[tuple[str, ...], ...]


# ---- Parse a column of the word tables -------------------------------------------------------------------


def read_noun(column: str) -> EnglishNoun:
    singular, *plural = column.split()
    return EnglishNoun(singular, plural[0] if plural else with_s(singular))


def read_adjective(column: str) -> EnglishAdjective:
    plain, *degrees = column.split()
    if degrees == ["more"]:
        return EnglishAdjective(plain, ("more", plain), ("most", plain))
    if degrees:
        return EnglishAdjective(plain, (degrees[0],), (degrees[1],))
    return EnglishAdjective(plain, (), ())


def read_verb(column: str) -> EnglishVerb:
    base, *irregular = column.split()
    base, *particle = base.split("+")
    third, past = irregular or (with_s(base), with_ed(base))
    present = [(form, *particle) for form in (base, base, third, base, base)]
    return EnglishVerb((base, *particle), tuple(present), ((past, *particle),) * 5)


def read_helper(column: str) -> EnglishVerb:
    base, forms = column.split(":")
    present, past = (part.split() for part in forms.split(","))
    present_words = tuple(tuple(form.split("+")) for form in present)
    past_words = tuple(tuple(form.split("+")) for form in past)
    plain = (base,) if base in AUXILIARIES else present_words[0]
    return EnglishVerb(plain, present_words, past_words if len(past) == 5 else past_words * 5)


def with_s(word: str) -> str:
    if word.endswith("y") and word[-2] not in VOWELS:
        return word[:-1] + "ies"
    return word + ("es" if word.endswith(("s", "x", "ch", "sh", "o")) and word != "piano" else "s")


def with_ed(word: str) -> str:
    if word.endswith("y") and word[-2] not in VOWELS:
        return word[:-1] + "ied"
    return word + ("d" if word.endswith("e") else "ed")


# ---- Noun phrases ----------------------------------------------------------------------------------------


@lru_cache(maxsize=1 << 15, typed=True)
def phrase_of(value: Any, feature: str = "object") -> Phrase:
    """A noun phrase or a pronoun. The feature is "subject", "object" or a preposition ("with", "in_front_of")."""
    if isinstance(value, PrepositionalPhrase):
        return phrase_of(value.np, value.preposition.english)
    if isinstance(value, NP):
        return noun_phrase(value, feature)
    if isinstance(value, Coordination):
        return join(phrase_of(value.first, feature), "and", phrase_of(value.second, feature))
    return phrase([pronoun(value, feature)], [NOUN], 0)


def noun_phrase(np: NP, feature: str) -> Phrase:
    words: list[str] = []
    meanings: list[int] = []
    adjective = adjective_words(np)
    noun = np.noun.english.plural if np.plural else np.noun.english.singular
    for word in determiner_words(np, adjective[0] if adjective else noun):
        words.append(word)
        meanings.append(DETERMINER)
    for word in adjective:
        words.append(word)
        meanings.append(degree_meaning(word, len(adjective), np.most))
    result = phrase([*words, noun], [*meanings, NOUN], len(words))
    if feature in ("subject", "object"):
        return result
    prepositions = feature.split("_")
    return prepend(prepositions, [PREPOSITION] * len(prepositions), result)


def determiner_words(np: NP, next_word: str) -> list[str]:
    if np.determiner in DETERMINERS_WITHOUT_WORDS:
        return []
    if np.determiner == "a":
        return ["an" if next_word[0] in VOWELS else "a"]
    if np.determiner == "this":
        return ["these" if np.plural else "this"]
    return np.determiner.split("_")


def adjective_words(np: NP) -> tuple[str, ...]:
    if np.adjective is None:
        return ()
    return np.adjective.english.superlative if np.most else (np.adjective.english.plain,)


def degree_meaning(word: str, count: int, compared: bool) -> int:
    """ "smaller" has the meanings ADJECTIVE and MORE. In "more dangerous", each word has one of them."""
    if count == 1:
        return ADJECTIVE | MORE if compared else ADJECTIVE
    return MORE if word in ("more", "most") else ADJECTIVE


def pronoun(value: Any, feature: str) -> str:
    if isinstance(value, RelativePronoun):
        return "who" if feature == "subject" and value.antecedent.noun.is_human else "that"
    if isinstance(value, ObjectPronoun):
        return "them" if value.antecedent.plural else "it"
    subject, other = value.english
    return str(subject if feature == "subject" else other)


@lru_cache(maxsize=1 << 12)
def quality(value: Quality, subject: Agreement) -> Phrase:
    adjective = value.adjective.english
    words = adjective.comparative if value.more else (adjective.plain,)
    meanings = [degree_meaning(word, len(words), value.more) for word in words]
    result = phrase(words, meanings, len(words) - 1)
    return prepend([value.degree], [DEGREE], result) if value.degree else result


# ---- Verbs -----------------------------------------------------------------------------------------------


@cache
def verb(row: Verb, modal: Verb | None, mood: Mood, subject: Agreement, asking: bool) -> dict[str, Phrase]:
    """The parts of a verb. In a question, ``front`` is before the subject and ``verb`` after it."""
    chain = verb_chain(row, modal, mood, subject.person, asking)
    words = [word for word, _ in chain]
    meanings = [meaning for _, meaning in chain]
    if not asking:
        return {"verb": phrase(words, meanings, verb_index(meanings)), "front": rootless_phrase([], [])}
    front, rest = split_at(words, meanings, 1)
    return {"front": front, "verb": rest}


def verb_chain(row: Verb, modal: Verb | None, mood: Mood, person: int, asking: bool) -> Chain:
    """All words of the verb with their meanings: did + not + want + to + sleep."""
    base = [(word, VERB) for word in row.english.base]
    if mood.tense == "command":
        return [*([("do", NEGATION), ("not", NEGATION)] if mood.polarity else []), *base]
    if mood.tense == "future":
        return negate([("will", TENSE)], mood, base)
    past = TENSE if mood.tense == "past" else 0
    leader, meaning, rest = (modal, MODAL, base) if modal else (row, VERB, [])
    forms = leader.english.past if past else leader.english.present
    finite = [(word, meaning if i else meaning | past) for i, word in enumerate(forms[person])]  # looked | for
    if leader.english.base[0] in AUXILIARIES:
        return negate(finite, mood, rest)
    if mood.polarity == "not" or asking:
        do = "did" if past else "does" if person == 2 else "do"
        asked = ASKING if asking else 0
        unmarked = [(word, meaning) for word in leader.english.base]
        denied = NEGATION if mood.polarity == "not" else 0
        return negate([(do, past | asked | denied)], mood, unmarked + rest)
    return [*([("never", NEGATION)] if mood.polarity else []), *finite, *rest]


def negate(auxiliary: Chain, mood: Mood, rest: Chain) -> Chain:
    if mood.polarity == "not" and auxiliary[0][0] == "can":
        return [("cannot", auxiliary[0][1] | NEGATION), *rest]
    return [*auxiliary, *([(mood.polarity, NEGATION)] if mood.polarity else []), *rest]


def verb_index(meanings: list[int]) -> int:
    return next((index for index, meaning in enumerate(meanings) if meaning & VERB), -1)


def split_at(words: list[str], meanings: list[int], index: int) -> tuple[Phrase, Phrase]:
    """Split a verb into two phrases. The main verb is the head of both."""
    parts = []
    for some_words, some_meanings in ((words[:index], meanings[:index]), (words[index:], meanings[index:])):
        head = verb_index(some_meanings)
        parts.append(
            rootless_phrase(some_words, some_meanings) if head < 0 else phrase(some_words, some_meanings, head)
        )
    return parts[0], parts[1]


def pieces(clause: Clause, row: Verb, modal: Verb | None, subject: Agreement, order: str) -> dict[str, Phrase]:
    return verb(row, modal, clause.mood, subject, "question" in order)


# ---- Word order ------------------------------------------------------------------------------------------


def arrange(parts: list[Any], order: str, front: Any) -> list[Any]:
    """The word order. "question": the auxiliary first. "fronted": the object first. "tail": without the subject."""
    if "tail" in order:
        return parts[1:]
    if "question" in order:
        parts = [front, *parts]
    if "fronted" in order:
        parts = [p for p in parts if p.name == "object"] + [p for p in parts if p.name != "object"]
    return parts


def finish(words: list[str]) -> list[str]:
    return words
