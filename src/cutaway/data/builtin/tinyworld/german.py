"""German grammar: three genders, four cases, and a verb position that depends on the clause.

Die Katze schläft.   Heute schläft die Katze.   ..., weil die Katze schläft.   Die Katze hat geschlafen.
"""

from __future__ import annotations

import re
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
    agreement,
)
from cutaway.data.builtin.tinyworld.phrases import (
    ADJECTIVE,
    ASKING,
    DEGREE,
    DETERMINER,
    MODAL,
    MORE,
    NEGATION,
    NOTHING,
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

VOWELS = "aeiouäöüy"
CASES = ("nom", "acc", "dat", "gen")
# Rows: nominative, accusative, dative, genitive. Columns: masculine, feminine, neuter, plural.
THE = (
    ("der", "die", "das", "die"),
    ("den", "die", "das", "die"),
    ("dem", "der", "dem", "den"),
    ("des", "der", "des", "der"),
)
# The endings of dieser, jeder, welcher, viele. The strong endings of adjectives are similar.
STRONG = (("er", "e", "es", "e"), ("en", "e", "es", "e"), ("em", "er", "em", "en"), ("es", "er", "es", "er"))
# ein, mein, kein: the strong endings, but three of them are empty.
MIXED_DETERMINER = (("", "e", "", "e"), ("en", "e", "", "e"), ("em", "er", "em", "en"), ("es", "er", "es", "er"))
# Adjectives: after der or dieser (weak), after ein or mein (mixed), and without an article (strong).
WEAK = (("e", "e", "e", "en"), ("en", "e", "e", "en"), ("en", "en", "en", "en"), ("en", "en", "en", "en"))
MIXED = (("er", "e", "es", "en"), ("en", "e", "es", "en"), ("en", "en", "en", "en"), ("en", "en", "en", "en"))
STRONG_ADJECTIVE = (*STRONG[:3], ("en", "er", "en", "er"))

STEMS_LIKE_DER = {"this": "dies", "every": "jed", "which": "welch"}
STEMS_LIKE_EIN = {"a": "ein", "my": "mein", "your": "dein", "his": "sein", "her": "ihr", "our": "unser", "their": "ihr"}
STEMS_STRONG = {"some": "einig", "many": "viel", "how_many": "wie viel"}
NUMBERS = {
    "two": "zwei",
    "three": "drei",
    "four": "vier",
    "five": "fünf",
    "six": "sechs",
    "seven": "sieben",
    "eight": "acht",
    "nine": "neun",
    "ten": "zehn",
    "eleven": "elf",
    "twelve": "zwölf",
}
PREPOSITION_CASES = {"mit": "dat", "für": "acc", "ohne": "acc", "zu": "dat", "von": "dat"}
CONTRACTED = {"in dem": "im", "in das": "ins", "an dem": "am", "an das": "ans", "zu dem": "zum", "zu der": "zur",
              "von dem": "vom", "bei dem": "beim"}  # fmt: skip
NEGATIVES = {"not": "nicht", "never": "nie"}
RELATIVE_DATIVE_PLURAL = "denen"


class GermanNoun(NamedTuple):
    singular: str
    plural: str
    gender: str
    weak: bool


class GermanAdjective(NamedTuple):
    plain: str
    comparative: str
    superlative: str


class GermanVerb(NamedTuple):
    infinitive: str  # with its prefix: ankommen
    present: tuple[str, ...]  # without its prefix: ich, du, er, wir, sie
    participle: str  # "" for the helpers, which use the simple past
    past: tuple[str, ...]
    with_sein: bool
    prefix: str
    case: str  # of its object
    command: str


# ---- Parse a column of the word tables -------------------------------------------------------------------


def read_noun(column: str) -> GermanNoun:
    singular, gender, plural, *weak = column.split()
    return GermanNoun(singular, plural, gender, bool(weak))


def read_adjective(column: str) -> GermanAdjective:
    plain, *degrees = column.split()
    softened = "est" if plain.endswith(("t", "d", "s", "ß", "z", "sch")) else "st"
    comparative, superlative = degrees or (plain + "er", plain + softened)
    return GermanAdjective(plain, comparative, superlative)


def read_verb(column: str) -> GermanVerb:
    infinitive, third, *rest = column.split()
    prefix, _, base = infinitive.rpartition("+")
    case = "dat" if "dat" in rest else "acc"
    participle = next(part for part in rest if part not in ("ist", "dat"))
    present = present_forms(base, third)
    command_form = command(base, third, participle)
    return GermanVerb(prefix + base, present, participle, (), "ist" in rest, prefix, case, command_form)


def present_forms(infinitive: str, third: str) -> tuple[str, ...]:
    """ich sehe, du siehst, er sieht, wir sehen, sie sehen: du like er, the others like the infinitive."""
    if third == "weiß":
        return ("weiß", "weißt", "weiß", infinitive, infinitive)
    stem = third.removesuffix("t")
    second = stem + ("t" if stem.endswith(("s", "ß", "z")) else "st")
    return (first_person(infinitive), second, third, infinitive, infinitive)


def first_person(infinitive: str) -> str:
    return infinitive[:-1] + "e" if infinitive.endswith("ern") else infinitive[:-2] + "e"


def command(infinitive: str, third: str, participle: str) -> str:
    """The imperative. Iss! Nimm! have the stem of er isst, er nimmt. Others have the form of ich: Kaufe! Warte! Strong
    verbs drop the e: Geh! Schlaf!"""
    stem = third.removesuffix("t")
    if "e" in infinitive[:-2] and "i" in stem and "i" not in infinitive[:-2]:
        return stem
    first = first_person(infinitive)
    is_strong = participle.endswith("en") and not third.endswith("et")
    return first[:-1] if is_strong else first


def read_helper(column: str) -> GermanVerb:
    infinitive, forms = column.split(":")
    present, (past,) = (part.split() for part in forms.split(","))
    plural = past + ("n" if past.endswith("e") else "en")
    simple_past = (past, past + "st", past, plural, plural)
    return GermanVerb(infinitive, tuple(present), "", simple_past, False, "", "acc", "")


# ---- Noun phrases ----------------------------------------------------------------------------------------


@lru_cache(maxsize=1 << 15, typed=True)
def phrase_of(value: Any, feature: str = "nom") -> Phrase:
    """A noun phrase or a pronoun. The feature is a case, a preposition ("mit", "in+dat") or "bare" (no determiner)."""
    if isinstance(value, PrepositionalPhrase):
        return phrase_of(value.np, value.preposition.german)
    if isinstance(value, NP):
        return noun_phrase(value, feature)
    if isinstance(value, Coordination):
        return join(phrase_of(value.first, feature), "und", phrase_of(value.second, feature))
    return phrase([pronoun(value, feature)], [NOUN], 0)


def noun_phrase(np: NP, feature: str) -> Phrase:
    preposition, case = preposition_and_case(feature)
    words = [*determiner_words(np, case, feature), *adjective_words(np, case), noun_form(np, case)]
    meanings = [DETERMINER] * (len(words) - 1 - (np.adjective is not None))
    meanings += [ADJECTIVE | MORE if np.most else ADJECTIVE] if np.adjective else []
    meanings.append(NOUN)
    if not preposition and case in ("dat", "gen"):
        meanings[0] |= PREPOSITION  # dative and genitive correspond to "to" and "of" in English
    result = phrase(words, meanings, len(words) - 1)
    return with_preposition(preposition, result) if preposition else result


def preposition_and_case(feature: str) -> tuple[str, str]:
    if feature in CASES:
        return "", feature
    if feature == "bare":
        return "", "nom"
    preposition, _, case = feature.partition("+")
    return preposition, case or PREPOSITION_CASES[preposition]


def with_preposition(preposition: str, rest: Phrase) -> Phrase:
    short = CONTRACTED.get(f"{preposition} {rest.words[0]}")
    if short is None:
        return prepend([preposition], [PREPOSITION], rest)
    meanings = [PREPOSITION | DETERMINER, *rest.shape.meanings[1:]]
    return phrase([short, *rest.words[1:]], meanings, rest.shape.root)


def column(np: NP) -> int:
    return 3 if np.plural else "mfn".index(np.noun.german.gender)


def determiner_words(np: NP, case: str, feature: str) -> list[str]:
    row, name = CASES.index(case), np.determiner
    if feature == "bare" or name in ("name", "mass", "bare"):
        return []
    if name == "the":
        return [THE[row][column(np)]]
    if name in NUMBERS:
        return [NUMBERS[name]]
    if name in STEMS_LIKE_EIN:
        return [STEMS_LIKE_EIN[name] + MIXED_DETERMINER[row][column(np)]]
    stem = STEMS_LIKE_DER.get(name) or STEMS_STRONG[name]
    return (stem + STRONG[row][column(np)]).split()


def adjective_words(np: NP, case: str) -> list[str]:
    if np.adjective is None:
        return []
    if np.determiner == "the" or np.determiner in STEMS_LIKE_DER:
        endings = WEAK
    else:
        endings = MIXED if np.determiner in STEMS_LIKE_EIN else STRONG_ADJECTIVE
    adjective = np.adjective.german
    stem = adjective.superlative if np.most else adjective.plain
    if stem.endswith("el"):  # dunkel: der dunkle Wald
        stem = stem[:-2] + "l"
    return [stem.removesuffix("e") + endings[CASES.index(case)][column(np)]]


@cache
def noun_form(np: NP, case: str) -> str:
    noun = np.noun.german
    if np.plural:
        return noun.plural + ("n" if case == "dat" and not noun.plural.endswith(("n", "s")) else "")
    if noun.weak:
        return noun.singular if case == "nom" else noun.plural
    if case == "gen" and noun.gender != "f":
        return noun.singular + genitive_ending(noun)
    return noun.singular


def genitive_ending(noun: GermanNoun) -> str:
    """des Hauses, des Kindes, but des Gartens, des Autos: nouns of one syllable and nouns in -s have -es."""
    word = noun.singular.lower()
    if word[-1] in VOWELS or noun.plural == noun.singular + "s":
        return "s"
    is_short = len(re.findall(f"[{VOWELS}]+", word)) == 1
    return "es" if is_short or word.endswith(("s", "ß", "z")) else "s"


def pronoun(value: Any, feature: str) -> str:
    case = CASES.index(feature)
    if isinstance(value, RelativePronoun | ObjectPronoun):
        shape = agreement(value)
        gender = 3 if shape.plural else "mfn".index(shape.german)
        if isinstance(value, RelativePronoun):
            return RELATIVE_DATIVE_PLURAL if (case, gender) == (2, 3) else THE[case][gender]
        return (("er", "sie", "es", "sie"), ("ihn", "sie", "es", "sie"), ("ihm", "ihr", "ihm", "ihnen"))[case][gender]
    return str(value.german[case])


@lru_cache(maxsize=1 << 12)
def quality(value: Quality, subject: Agreement) -> Phrase:
    adjective = value.adjective.german
    if value.more:
        return phrase([adjective.comparative], [ADJECTIVE | MORE], 0)
    result = phrase([adjective.plain], [ADJECTIVE], 0)
    degree = {"very": "sehr", "too": "zu"}.get(value.degree)
    return prepend([degree], [DEGREE], result) if degree else result


# ---- Verbs -----------------------------------------------------------------------------------------------


@cache
def verb(row: Verb, modal: Verb | None, mood: Mood, subject: Agreement, order: str) -> dict[str, Phrase]:
    """The parts of a verb: the finite ``verb``, and the ``end`` of the clause (prefix, participle, infinitive). If the
    finite verb is last, it includes the prefix (dass er ankommt)."""
    adverbs = [(NEGATIVES[mood.polarity], NEGATION)] if mood.polarity else []
    if mood.modal == "like":  # "likes to sleep" is schläft gern: an adverb, not a verb
        adverbs.append(("gern", MODAL))
        modal = None
    finite, end = verb_chain(row.german, modal.german if modal else None, mood, subject.person)
    if "question" in order:  # the verb at the front corresponds to "does" in English
        finite = (finite[0], finite[1] | ASKING)
    if "last" in order and row.german.prefix and end and end[0] == row.german.prefix:
        finite, end = (end[0] + finite[0], finite[1]), None
    pieces = {"not": rootless_phrase([word for word, _ in adverbs], [meaning for _, meaning in adverbs])}
    for name, piece in (("verb", finite), ("end", end)):
        pieces[name] = one_word(*piece) if piece else NOTHING
    if end and finite[1] & VERB:  # kommt ... an: the verb is the head of its prefix
        pieces["end"] = rootless_phrase([end[0]], [end[1]])
    return pieces


def one_word(word: str, meaning: int) -> Phrase:
    """The main verb is the head of its clause and of auxiliaries."""
    return phrase([word], [meaning], 0) if meaning & VERB else rootless_phrase([word], [meaning])


def verb_chain(
    row: GermanVerb, modal: GermanVerb | None, mood: Mood, person: int
) -> tuple[tuple[str, int], tuple[str, int] | None]:
    """The finite verb, and the word at the end of the clause or None."""
    prefix = (row.prefix, VERB) if row.prefix else None
    if mood.tense == "command":
        return (row.command, VERB), prefix
    if mood.tense == "future":
        return (WERDEN[person], TENSE), (row.infinitive, VERB)
    if modal:
        past = mood.tense == "past"
        finite = modal.past[person] if past else modal.present[person]
        return (finite, MODAL | TENSE if past else MODAL), (row.infinitive, VERB)
    if mood.tense == "present":
        return (row.present[person], VERB), prefix
    if row.past:
        return (row.past[person], VERB | TENSE), None
    return ((SEIN if row.with_sein else HABEN)[person], TENSE), (row.participle, VERB)


SEIN = ("bin", "bist", "ist", "sind", "sind")
HABEN = ("habe", "hast", "hat", "haben", "haben")
WERDEN = ("werde", "wirst", "wird", "werden", "werden")


def pieces(clause: Clause, row: Verb, modal: Verb | None, subject: Agreement, order: str) -> dict[str, Phrase]:
    result = verb(row, modal, clause.mood, subject, order)
    if clause.mood.polarity and isinstance(clause.slots.get("object"), NP):
        return {**result, "kein": kein(agreement(clause.slots["object"]), row.german.case)}
    return result


@cache
def kein(object_: Agreement, case: str) -> Phrase:
    """ "does not have a hat" is hat keinen Hut: the negation is the determiner of the object."""
    gender = 3 if object_.plural else "mfn".index(object_.german)
    return rootless_phrase(["kein" + MIXED_DETERMINER[CASES.index(case)][gender]], [NEGATION])


# ---- Word order ------------------------------------------------------------------------------------------


def arrange(parts: list[Any], order: str, front: Any) -> list[Any]:
    """The word order. Templates have the verb second. "question": the verb first. "last": the verb last. "fronted": the
    object first. "tail": without the subject."""
    if "tail" in order:
        return parts[1:]
    finite = [p for p in parts if p.kind == "verb" and p.feature == "verb"]
    others = [p for p in parts if p not in finite]
    if "question" in order:
        parts = finite + others
    if "last" in order:
        parts = others + finite
    if "fronted" in order:
        parts = [p for p in parts if p.name == "object"] + [p for p in parts if p.name != "object"]
    return parts


def finish(words: list[str]) -> list[str]:
    return words
