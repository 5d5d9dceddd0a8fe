"""French grammar: gender, adjectives before or after the noun, ne ... pas, object pronouns, elision."""

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
    NOUN,
    PREPOSITION,
    TENSE,
    VERB,
    Phrase,
    join,
    phrase,
    prepend,
    rootless_phrase,
    shape,
)

if TYPE_CHECKING:
    from cutaway.data.builtin.tinyworld.lexicon import Verb

Chain = list[tuple[str, int]]  # words with their meanings

VOWELS = "aeiouyâàéèêëîïôœùû"
# Words without elision (le hibou, le onze). Before all other words with h, there is elision (l'homme).
NO_ELISION = ("hibou", "hérisson", "huit", "onze")
ELIDED = {"le": "l'", "la": "l'", "je": "j'", "me": "m'", "te": "t'", "ne": "n'", "de": "d'", "que": "qu'", "ce": "c'"}
CONTRACTED = {("de", "le"): "du", ("de", "les"): "des", ("à", "le"): "au", ("à", "les"): "aux"}
NEGATIVES = {"not": "pas", "never": "jamais"}
FUTURE_ENDINGS = ("ai", "as", "a", "ons", "ont")
IMPERFECT_ENDINGS = ("ais", "ais", "ait", "ions", "aient")
# masculine, feminine, plural
DETERMINERS = {
    "the": ("le", "la", "les"),
    "a": ("un", "une", "-"),
    "this": ("ce", "cette", "ces"),
    "my": ("mon", "ma", "mes"),
    "your": ("ton", "ta", "tes"),
    "his": ("son", "sa", "ses"),
    "her": ("son", "sa", "ses"),
    "our": ("notre", "notre", "nos"),
    "their": ("leur", "leur", "leurs"),
    "every": ("chaque", "chaque", "-"),
    "which": ("quel", "quelle", "-"),
    "some": ("-", "-", "quelques"),
    "many": ("-", "-", "beaucoup de"),
    "how_many": ("-", "-", "combien de"),
    "two": ("-", "-", "deux"),
    "three": ("-", "-", "trois"),
    "four": ("-", "-", "quatre"),
    "five": ("-", "-", "cinq"),
    "six": ("-", "-", "six"),
    "seven": ("-", "-", "sept"),
    "eight": ("-", "-", "huit"),
    "nine": ("-", "-", "neuf"),
    "ten": ("-", "-", "dix"),
    "eleven": ("-", "-", "onze"),
    "twelve": ("-", "-", "douze"),
}


class FrenchNoun(NamedTuple):
    singular: str
    plural: str
    gender: str


class FrenchAdjective(NamedTuple):
    masculine: str
    feminine: str
    before_vowel: str  # bel, nouvel, vieil
    before_noun: bool


class FrenchVerb(NamedTuple):
    infinitive: str
    present: tuple[str, ...]  # je, tu, il, nous, ils
    future: str  # il
    participle: str  # "" for the helpers, which use the imperfect
    imperfect: str  # je
    with_etre: bool
    command: str


# ---- Parse a column of the word tables -------------------------------------------------------------------


def read_noun(column: str) -> FrenchNoun:
    singular, gender, *plural = column.split()
    return FrenchNoun(singular, plural[0] if plural else with_s(singular), gender)


def read_adjective(column: str) -> FrenchAdjective:
    forms = column.split()
    before_noun = forms[-1] == "before"
    masculine, *others = forms[: len(forms) - before_noun]
    feminine = others[0] if others else with_e(masculine)
    return FrenchAdjective(masculine, feminine, others[1] if len(others) > 1 else masculine, before_noun)


def read_verb(column: str) -> FrenchVerb:
    infinitive, *parts = column.split()
    with_etre = "est" in parts
    parts = [part for part in parts if part != "est"]
    if len(parts) < 5:
        return regular_verb(infinitive, with_etre)
    first, third, we, they, participle, *future = parts
    second = {"vais": "vas"}.get(first, first + "s" if first.endswith("e") else first)
    future_form = future[0] if future else infinitive.removesuffix("e") + "a"
    command = {"vais": "va"}.get(first, first)
    present = (first, second, third, we, they)
    return FrenchVerb(infinitive, present, future_form, participle, "", with_etre, command)


def regular_verb(infinitive: str, with_etre: bool) -> FrenchVerb:
    """Verbs in -er, with the spelling changes of mangeons and achète."""
    stem = infinitive.removesuffix("er")
    silent = stem[:-2] + "è" + stem[-1] if stem.endswith("et") else stem
    we = stem + ("eons" if stem.endswith("g") else "ons")
    present = (silent + "e", silent + "es", silent + "e", we, silent + "ent")
    return FrenchVerb(infinitive, present, silent + "era", stem + "é", "", with_etre, silent + "e")


def read_helper(column: str) -> FrenchVerb:
    infinitive, forms = column.split(":")
    present, imperfect, future = (part.split() for part in forms.split(","))
    return FrenchVerb(infinitive, tuple(present), future[0], "", imperfect[0], False, "")


def with_s(word: str) -> str:
    if word.endswith(("s", "x", "z")):
        return word
    return word + ("x" if word.endswith("eau") else "s")


def with_e(word: str) -> str:
    if word.endswith("e"):
        return word
    if word.endswith("eux"):
        return word[:-1] + "se"
    return word[:-2] + "ère" if word.endswith("er") else word + "e"


# ---- Noun phrases ----------------------------------------------------------------------------------------


@cache
def opens_with_vowel(word: str) -> bool:
    return (word[0].lower() in VOWELS or word[0] == "h") and not word.startswith(NO_ELISION)


@lru_cache(maxsize=1 << 15, typed=True)
def phrase_of(value: Any, feature: str = "object") -> Phrase:
    """A noun phrase or a pronoun. The feature is "subject", "object", "bare" (no determiner) or a preposition."""
    if isinstance(value, PrepositionalPhrase):
        return phrase_of(value.np, value.preposition.french)
    if isinstance(value, NP):
        return noun_phrase(value, feature)
    if isinstance(value, Coordination):
        return join(phrase_of(value.first, feature), "et", phrase_of(value.second, feature))
    return phrase([pronoun(value, feature)], [NOUN], 0)


def noun_phrase(np: NP, feature: str) -> Phrase:
    before, after = adjective_words(np)
    noun = (np.noun.french.plural if np.plural else np.noun.french.singular, NOUN)
    next_word = before[0][0] if before else noun[0]
    determiner = [] if feature == "bare" else determiner_words(np, next_word, bool(before))
    if feature not in ("subject", "object", "bare"):
        determiner = after_preposition(feature, determiner, next_word)
    chain = [*determiner, *before, noun, *after]
    head = len(determiner) + len(before)
    result = phrase([word for word, _ in chain], [meaning for _, meaning in chain], head)
    return attach_to_adjective(result, np)


def determiner_words(np: NP, next_word: str, adjective_first: bool) -> Chain:
    gender = np.noun.french.gender
    if np.determiner == "name":
        return []
    if np.determiner == "bare":  # the indefinite plural: des chats, but de petits chats
        return [("de" if adjective_first else "des", 0)]
    if np.determiner == "mass":  # the partitive: du pain, de la soupe, de l'eau
        return after_preposition("de", [("le" if gender == "m" else "la", 0)], next_word, 0)
    form = DETERMINERS[np.determiner][2 if np.plural else "mf".index(gender)]
    if opens_with_vowel(next_word):
        form = {"ce": "cet", "ma": "mon", "ta": "ton", "sa": "son"}.get(form, form)
    return [(word, DETERMINER) for word in form.split()]


def after_preposition(preposition: str, determiner: Chain, next_word: str, meaning: int = PREPOSITION) -> Chain:
    """Contraction: de + le = du, à + les = aux. No contraction with elision: de l'arbre."""
    article = determiner[0][0] if determiner else ""
    short = CONTRACTED.get((preposition, article))
    if short is None or (article == "le" and opens_with_vowel(next_word)):
        return [(preposition, meaning), *determiner]
    return [(short, meaning | determiner[0][1]), *determiner[1:]]


def adjective_words(np: NP) -> tuple[Chain, Chain]:
    """The words before and after the noun: (petit) chat, chat (noir), (plus petit) chat, chat (le plus rapide)."""
    if np.adjective is None:
        return [], []
    adjective, gender = np.adjective.french, np.noun.french.gender
    noun = np.noun.french.plural if np.plural else np.noun.french.singular
    form = adjective_form(adjective, gender, np.plural)
    if adjective.before_noun and gender == "m" and not np.plural and opens_with_vowel(noun):
        form = adjective.before_vowel
    more = [("plus", MORE)] if np.most else []
    if adjective.before_noun:
        return [*more, (form, ADJECTIVE)], []
    again = [(DETERMINERS["the"][2 if np.plural else "mf".index(gender)], MORE)] if np.most else []
    return [], [*again, *more, (form, ADJECTIVE)]


@cache
def adjective_form(adjective: FrenchAdjective, gender: str, plural: bool) -> str:
    form = adjective.masculine if gender == "m" else adjective.feminine
    return with_s(form) if plural else form


def attach_to_adjective(result: Phrase, np: NP) -> Phrase:
    """In "le chat le plus rapide", the head of the second "le" and of "plus" is the adjective."""
    if not np.most:
        return result
    meanings, old_offsets, root = result.shape.meanings, result.shape.head_offsets, result.shape.root
    target = meanings.index(ADJECTIVE)
    head_offsets = [target - i if m == MORE else old_offsets[i] for i, m in enumerate(meanings)]
    return Phrase(result.words, shape(meanings, tuple(head_offsets), root))


def pronoun(value: Any, feature: str) -> str:
    if isinstance(value, RelativePronoun):
        return "qui" if feature == "subject" else "que"
    if isinstance(value, ObjectPronoun):
        return DETERMINERS["the"][2 if value.antecedent.plural else "mf".index(value.antecedent.noun.french.gender)]
    subject, clitic = value.french
    return str(clitic if feature == "clitic" else subject)


@lru_cache(maxsize=1 << 12)
def quality(value: Quality, subject: Agreement) -> Phrase:
    form = adjective_form(value.adjective.french, subject.french, subject.plural)
    result = phrase([form], [ADJECTIVE], 0)
    if value.more:
        return prepend(["plus"], [MORE], result)
    degree = {"very": "très", "too": "trop"}.get(value.degree)
    return prepend([degree], [DEGREE], result) if degree else result


# ---- Verbs -----------------------------------------------------------------------------------------------


def pieces(clause: Clause, row: Verb, modal: Verb | None, subject: Agreement, order: str) -> dict[str, Phrase]:
    value: Any = clause.slots.get("object")
    is_before_verb = value is not None and ("fronted" in order or not isinstance(value, NP | RelativePronoun))
    return verb(row, modal, clause.mood, subject, agreement(value) if is_before_verb else None)


@cache
def verb(row: Verb, modal: Verb | None, mood: Mood, subject: Agreement, ahead: Agreement | None) -> dict[str, Phrase]:
    """The verb with ne ... pas: ``whole``, or in two parts, ``verb`` and ``rest``, with an object pronoun between them.

    ``ahead``: the agreement of an object before the verb. The participle of an avoir verb agrees with it.
    """
    finite, others = verb_chain(row, modal, mood, subject, ahead)
    inner = [(NEGATIVES[mood.polarity], NEGATION)] if mood.polarity else []
    outer = [("ne", NEGATION)] if mood.polarity else []
    chain = [*outer, *finite, *inner, *others]
    # il ne veut pas | le | voir, but il ne | le | voit pas
    cut = len(outer) + len(finite) + len(inner) if modal else len(outer)
    return {
        "front": rootless_phrase(["est-ce", "que"], [ASKING, ASKING]),
        "whole": verb_phrase(chain),
        "verb": verb_phrase(chain[:cut]),
        "rest": verb_phrase(chain[cut:]),
    }


def verb_phrase(chain: Chain) -> Phrase:
    words, meanings = [word for word, _ in chain], [meaning for _, meaning in chain]
    head = next((index for index, meaning in enumerate(meanings) if meaning & VERB), -1)
    return phrase(words, meanings, head) if head >= 0 else rootless_phrase(words, meanings)


def verb_chain(
    row: Verb, modal: Verb | None, mood: Mood, subject: Agreement, ahead: Agreement | None
) -> tuple[Chain, Chain]:
    """The finite verb, and the words after it: (dort), (a, vu), (veut, voir)."""
    tense = TENSE if mood.tense in ("past", "future") else 0
    if modal:
        finite = simple_form(modal.french, mood.tense, subject.person)
        return [(finite, MODAL | tense)], [(row.french.infinitive, VERB)]
    if mood.tense != "past" or not row.french.participle:
        return [(simple_form(row.french, mood.tense, subject.person), VERB | tense)], []
    auxiliary = (ETRE if row.french.with_etre else AVOIR)[subject.person]
    agrees = subject if row.french.with_etre else ahead
    return [(auxiliary, TENSE)], [(agree(row.french.participle, agrees), VERB)]


AVOIR = ("ai", "as", "a", "avons", "ont")
ETRE = ("suis", "es", "est", "sommes", "sont")


def simple_form(verb: FrenchVerb, tense: str, person: int) -> str:
    if tense == "command":
        return verb.command
    if tense == "future":
        return verb.future[:-1] + FUTURE_ENDINGS[person]
    if tense == "past":
        return verb.imperfect.removesuffix("ais") + IMPERFECT_ENDINGS[person]
    return verb.present[person]


def agree(participle: str, other: Agreement | None) -> str:
    if other is None:
        return participle
    form = participle + "e" if other.french == "f" else participle
    return with_s(form) if other.plural else form


# ---- Word order and elision ------------------------------------------------------------------------------


def arrange(parts: list[Any], order: str, front: Any) -> list[Any]:
    """The word order. "question": est-ce que first. "fronted": the object first. "tail": without the subject."""
    if "tail" in order:
        return parts[1:]
    if "question" in order:
        parts = [front, *parts]
    if "fronted" in order:
        parts = [p for p in parts if p.name == "object"] + [p for p in parts if p.name != "object"]
    return parts


def finish(words: list[str]) -> list[str]:
    """Apply elision: le + arbre = l'arbre, ne + est = n'est, si + il = s'il (but si elle)."""
    for index, word in enumerate(words):
        if word in ELIDED and opens_with_vowel(words[index + 1]):
            words[index] = ELIDED[word]
        elif word == "si" and words[index + 1] in ("il", "ils"):
            words[index] = "s'"
    return words
