"""Interventions: the same sentence with another value of one feature, and all else equal.

"The cat sleeps." with another number is "The cats sleep.", and with another gender of the French noun "La chat dort.".
The second one is wrong, but it has the forms that agree with a feminine noun. The grammar itself realises both, so what
changes in the target is what the feature decides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

from cutaway.data.builtin.tinyworld.choices import NUMBERS
from cutaway.data.builtin.tinyworld.french import opens_with_vowel
from cutaway.data.builtin.tinyworld.german import PREPOSITION_CASES
from cutaway.data.builtin.tinyworld.lexicon import Adjective, Lexicon, Noun, Pronoun, Verb
from cutaway.data.builtin.tinyworld.meaning import (
    FIRST,
    FIRST_PLURAL,
    NP,
    SECOND,
    THIRD,
    THIRD_PLURAL,
    Agreement,
    Clause,
    Coordination,
    PrepositionalPhrase,
    RelativePronoun,
    agreement,
)
from cutaway.data.builtin.tinyworld.phrases import ADJECTIVE, DETERMINER, NOUN, PREPOSITION
from cutaway.data.builtin.tinyworld.places import FINITE, NON_FINITE, PARTICLE, Path, Place, SaidSentence, say
from cutaway.data.builtin.tinyworld.referents import (
    Referent,
    Site,
    clause_at,
    clauses,
    referents,
    replace_clause,
    replace_referent,
    replace_slot,
)
from cutaway.data.builtin.tinyworld.rules import GrammarRule
from cutaway.data.builtin.tinyworld.templates import LANGUAGES, template

Comparison = Callable[[Place], bool]
PERSONS = ((FIRST, SECOND, THIRD), (FIRST_PLURAL, THIRD_PLURAL))  # singular, plural
TENSES = ("present", "past", "future")
OTHER_CASES = {"acc": ("dat", "nom"), "dat": ("acc", "nom"), "gen": ("dat", "acc", "nom"), "nom": ("acc", "dat")}
# English determiners that say the number of their noun. "This" says it too; its form follows the noun.
SINGULAR, PLURAL = frozenset(("a", "every", "this")), frozenset(("some", "many", "how_many", "this", *NUMBERS))
SAY_NUMBER = SINGULAR | PLURAL
OTHER_DETERMINERS = {"a": "bare", "bare": "a", "mass": "bare"}  # a cat, cats; bread, apples


def anywhere(place: Place) -> bool:
    return True


class Intervention(NamedTuple):
    """One feature, the source words that say its value, and the sentence with its other values.

    ``is_compared`` selects the target words that the feature can decide. ``sites`` are the slots of the words that
    change their meaning. An intervention that ``is_joint`` changes two words at once, because one alone has no effect.
    """

    feature: str
    sources: tuple[int, ...]
    sentences: list[Clause]
    is_compared: Comparison = anywhere
    sites: tuple[Site, ...] = ()
    is_joint: bool = False


class Interventions:
    """All interventions in one sentence, for one target language."""

    def __init__(self, lexicon: Lexicon, sentence: Clause, code: str, english: SaidSentence):
        self.lexicon, self.sentence, self.code, self.english = lexicon, sentence, code, english

    def __iter__(self) -> Iterator[Intervention]:
        found = referents(self.sentence)
        for referent in found:
            if isinstance(referent.value, NP):
                yield from self.noun_phrase(referent)
            else:
                yield from self.pronoun(referent)
            if referent.part == "first":
                yield from self.coordination(referent)
        for path, clause in clauses(self.sentence):
            if template(clause.rule, self.code).verb and clause.mood.tense != "command":
                yield self.tense(path, clause)
            if "verb" in clause.slots:
                yield self.auxiliary(path, clause)
            if self.code == "de":
                yield from self.cases(path, clause)
                yield from self.verb_order(path, clause)

    # ---- source words ----------------------------------------------------------------------------------

    def words_at(self, site: Site, role: int, part: str = "") -> tuple[int, ...]:
        """The English words with a role in a slot."""
        role = role << 8 if part == "second" else role
        places = enumerate(self.english.places)
        return tuple(i for i, place in places if (place.path, place.slot) == site and place.role == role)

    def verb_words(self, path: Path, *roles: int) -> tuple[int, ...]:
        places = enumerate(self.english.places)
        return tuple(i for i, p in places if p.path == path and p.kind == "verb" and p.role in roles)

    def main_verb(self, path: Path) -> tuple[int, ...]:
        """The words that say which verb it is: "sleep" in "does not sleep", "looks for"."""
        word = self.verb_words(path, NON_FINITE) or self.verb_words(path, FINITE)
        return word + self.verb_words(path, PARTICLE)

    # ---- noun phrases ----------------------------------------------------------------------------------

    def noun_phrase(self, referent: Referent) -> Iterator[Intervention]:
        np: NP = referent.value
        site, part = referent.sites[0], referent.part
        noun = self.words_at(site, NOUN, part)
        determiner = self.words_at(site, DETERMINER, part)
        adjective = self.words_at(site, ADJECTIVE, part)
        says_number = determiner if np.determiner in SAY_NUMBER else ()

        def change(feature: str, sources: tuple[int, ...], others: list[NP], compared: Comparison) -> Intervention:
            sentences = [replace_referent(self.sentence, referent, other) for other in others]
            return Intervention(feature, sources, sentences, compared, () if feature == "elision" else referent.sites)

        def is_own(place: Place, role: int) -> bool:
            role = role << 8 if part == "second" else role
            return (place.path, place.slot) == site and place.role == role

        def can_change_number(place: Place) -> bool:
            if is_own(place, NOUN):
                return np.noun.english.plural not in ("", "-")
            return not (is_own(place, DETERMINER) and np.determiner in SAY_NUMBER - {"a", "this"})

        yield change("number", (*says_number, *noun), [in_other_number(np, self.code)], can_change_number)
        yield change("person", noun, [in_person(np, person) for person in other_persons(agreement(np))], anywhere)
        genders = [in_gender(np, self.code, gender) for gender in other_genders(np.noun, self.code)]
        yield change("gender", noun, genders, lambda place: not is_own(place, NOUN))
        if self.code == "fr":
            other = np._replace(noun=with_other_opening(np.noun))
            yield change("elision", noun, [other], lambda place: not is_own(place, NOUN))
        if np.adjective is None:
            return
        if self.code == "fr" and np.adjective.french.before_noun and not np.most:
            other = np._replace(adjective=with_other_start(np.adjective))
            yield change("elision", adjective, [other], lambda place: not is_own(place, ADJECTIVE))
        if self.code == "fr" and np.determiner == "bare":
            other = np._replace(adjective=on_other_side(np.adjective))
            yield change("article", adjective, [other], lambda place: is_own(place, DETERMINER))
        if self.code == "de":
            endings = ("my", "the", "two") if np.plural else ("my", "the")
            others = [np._replace(determiner=one) for one in endings]
            yield change("declension", determiner, others, lambda place: is_own(place, ADJECTIVE))

    def pronoun(self, referent: Referent) -> Iterator[Intervention]:
        pronoun: Pronoun = referent.value
        sources = self.words_at(referent.sites[0], NOUN, referent.part)
        for feature, shapes in other_agreements(pronoun.agreement).items():
            others = [self.with_agreement(pronoun, shape) for shape in shapes]
            sentences = [replace_referent(self.sentence, referent, other) for other in others]
            yield Intervention(feature, sources, sentences, sites=referent.sites)

    def with_agreement(self, pronoun: Pronoun, shape: Agreement) -> Pronoun:
        """He, she and they are forms of one word: "il" with another gender is "elle". The others keep their form."""
        he, she, they = (self.lexicon.pronouns[name] for name in ("he", "she", "they"))
        if pronoun not in (he, she, they):
            return pronoun_row(pronoun, shape, pronoun, pronoun.french)
        other = they if shape.plural else he if shape.french == "m" else she
        if "f" in (pronoun.agreement.french, shape.french) and shape.plural:  # no elles, but les and ihnen
            return pronoun_row(pronoun, shape, other, (pronoun.french[0], other.french[1]))
        return pronoun_row(pronoun, shape, other, other.french)

    def coordination(self, referent: Referent) -> Iterator[Intervention]:
        """ "The king and the queen": both nouns decide together."""
        site = referent.sites[0]
        value: Coordination = clause_at(self.sentence, site[0]).slots[site[1]]
        sources = (*self.words_at(site, NOUN), *self.words_at(site, NOUN, "second"))
        shape = agreement(value)

        def change(feature: str, others: list[Any]) -> Intervention:
            sentences = []
            for other in others:
                sentence = self.sentence
                for one in referent.sites:
                    sentence = replace_slot(sentence, one, other)
                sentences.append(sentence)
            return Intervention(feature, sources, sentences, is_elsewhere, referent.sites, is_joint=True)

        def is_elsewhere(place: Place) -> bool:
            return (place.path, place.slot) not in referent.sites

        singular = shape._replace(person=THIRD, plural=False)
        yield change("number", [stand_in(value, singular)])
        yield change("person", [stand_in(value, shape._replace(person=person)) for person in other_persons(shape)])
        yield change("gender", [stand_in(value, shape._replace(french="m" if shape.french == "f" else "f"))])

    # ---- verbs -----------------------------------------------------------------------------------------

    def tense(self, path: Path, clause: Clause) -> Intervention:
        moods = [clause.mood._replace(tense=tense) for tense in TENSES if tense != clause.mood.tense]
        others = [replace_clause(self.sentence, path, clause._replace(mood=mood)) for mood in moods]
        shape = self.verb_shape(self.sentence, path)
        others.sort(key=lambda other: self.verb_shape(other, path) != shape)  # mange, mangera before a mangé
        others.sort(key=lambda other: is_unusual(clause_at(other, path)))
        return Intervention("tense", self.verb_words(path, FINITE), others, in_verb(path, FINITE, NON_FINITE))

    def verb_shape(self, sentence: Clause, path: Path) -> list[int]:
        places = say(self.lexicon, sentence, self.code).places
        return sorted(place.role for place in places if place.path == path and place.kind == "verb")

    def auxiliary(self, path: Path, clause: Clause) -> Intervention:
        verb = with_other_auxiliary(clause.slots["verb"])
        other = replace_slot(self.sentence, (path, "verb"), verb)
        return Intervention("auxiliary", self.main_verb(path), [other], in_verb(path, FINITE))

    # ---- German ----------------------------------------------------------------------------------------

    def cases(self, path: Path, clause: Clause) -> Iterator[Intervention]:
        """The verb decides the case of its object, and a preposition (or "to", "of") the case of its noun phrase."""
        form = template(clause.rule, "de")
        for part in form.parts:
            site = (path, part.name)
            if part.kind == "verb" and part.name == "kein":
                others = [replace_clause(self.sentence, path, with_verb_case(clause, self.lexicon, "dat"))]
                yield Intervention("case", self.main_verb(path), others, lambda place: place.piece == "kein")
            elif part.kind == "phrase" and isinstance(clause.slots[part.name], PrepositionalPhrase):
                value = clause.slots[part.name]
                feature = value.preposition.german
                others = [replace_slot(self.sentence, site, in_case(value, f)) for f in other_case_features(feature)]
                yield Intervention("case", self.words_at(site, PREPOSITION), others, in_case_of(site, feature))
            elif part.kind == "phrase" and part.feature not in ("nom", "bare"):
                feature = clause.slots["verb"].german.case if part.feature == "governed" else part.feature
                rules = [with_feature(clause.rule, part.name, part.feature, f) for f in other_case_features(feature)]
                others = [replace_clause(self.sentence, path, clause._replace(rule=rule)) for rule in rules]
                sources = self.main_verb(path) if part.name == "object" else self.words_at(site, PREPOSITION)
                yield Intervention("case", sources, others, in_case_of(site, feature))

    def verb_order(self, path: Path, clause: Clause) -> Iterator[Intervention]:
        """At the end of a clause, a verb and its prefix are one word: "kommt ... an", but "weil er ankommt"."""
        other = main_clause_order(clause.rule)
        if "other" in clause.slots and other is not clause.rule:
            sentence = replace_clause(self.sentence, path, clause._replace(rule=other))
            inner = (*path, "other")
            yield Intervention("order", self.subordinators(path), [sentence], in_verb(inner, FINITE))

    def subordinators(self, path: Path) -> tuple[int, ...]:
        """ "Because", "that", or the relative pronoun."""
        clause, inner = clause_at(self.sentence, path), (*path, "other")
        parts = template(clause.rule, "en").parts
        names = {part.name for part in parts if part.kind == "word" and part.head_slot == "other"}
        words = [
            i for i, p in enumerate(self.english.places) if p.path == path and p.kind == "word" and p.slot in names
        ]
        for slot, value in clause.slots["other"].slots.items():
            if isinstance(value, RelativePronoun):
                words += self.words_at((inner, slot), NOUN)
        return tuple(words)


def is_unusual(clause: Clause) -> bool:
    """Whether tinyworld never generates this tense: it has no "I will", and no modals or commands in the future."""
    subject = clause.slots.get(clause.rule.agrees)
    person = THIRD if subject is None else agreement(subject).person
    return clause.mood.tense == "future" and (bool(clause.mood.modal) or person not in (THIRD, THIRD_PLURAL))


# ---- Which target words are compared ---------------------------------------------------------------------


def in_verb(path: Path, *roles: int) -> Comparison:
    return lambda place: place.path == path and place.kind == "verb" and place.role in roles


def in_case_of(site: Site, feature: str) -> Comparison:
    """The words of a slot. A contraction with a preposition that has one case only (zum) has no other case."""
    has_one_case = feature in PREPOSITION_CASES
    return lambda place: (place.path, place.slot) == site and not (has_one_case and place.role == PREPOSITION)


# ---- Other values of a feature ---------------------------------------------------------------------------
#
# Each function is cached, because the grammar caches phrases and verbs by the identity of their words.


def other_persons(shape: Agreement) -> list[int]:
    return [person for person in PERSONS[shape.plural] if person != shape.person]


def other_genders(noun: Noun, code: str) -> list[str]:
    genders, own = ("mf", noun.french.gender) if code == "fr" else ("mfn", noun.german.gender)
    return [gender for gender in genders if gender != own]


def other_agreements(shape: Agreement) -> dict[str, list[Agreement]]:
    gender = "m" if shape.french == "f" else "f"
    numbers = {FIRST: FIRST_PLURAL, THIRD: THIRD_PLURAL, FIRST_PLURAL: FIRST, THIRD_PLURAL: THIRD}  # no plural "you"
    found = {
        "person": [shape._replace(person=person) for person in other_persons(shape)],
        "gender": [shape._replace(french=gender, german=gender)],
    }
    if shape.person in numbers:
        found["number"] = [shape._replace(person=numbers[shape.person], plural=not shape.plural)]
    return found


def in_other_number(np: NP, code: str) -> NP:
    noun = with_same_plural(np.noun) if np.determiner == "name" else np.noun
    determiner = OTHER_DETERMINERS.get(np.determiner, np.determiner)
    if code == "de" and determiner in PLURAL - {"this"}:  # the adjective has another ending: zwei alte, ein alter
        determiner = "a"
    return np._replace(noun=noun, determiner=determiner, plural=not np.plural)


@cache
def with_same_plural(noun: Noun) -> Noun:
    """A name has no plural, but the words that agree with it have."""
    forms = (noun.english._replace(plural=noun.name), noun.french._replace(plural=noun.name))
    return replace(noun, english=forms[0], french=forms[1], german=noun.german._replace(plural=noun.name))


def in_person(np: NP, person: int) -> NP:
    return np._replace(noun=with_person(np.noun, person))


@cache
def with_person(noun: Noun, person: int) -> Noun:
    singular, plural = (shape._replace(person=person) for shape in noun.agreements)
    return replace(noun, agreements=(singular, plural))


def in_gender(np: NP, code: str, gender: str) -> NP:
    return np._replace(noun=with_gender(np.noun, code, gender))


@cache
def with_gender(noun: Noun, code: str, gender: str) -> Noun:
    singular, plural = noun.agreements
    if code == "fr":
        agreements = (singular._replace(french=gender), plural._replace(french=gender))
        return replace(noun, agreements=agreements, french=noun.french._replace(gender=gender))
    agreements = (singular._replace(german=gender), plural._replace(german=gender))
    return replace(noun, agreements=agreements, german=noun.german._replace(gender=gender))


def other_opening(word: str) -> str:
    return ("b" if opens_with_vowel(word) else "a") + word


@cache
def with_other_opening(noun: Noun) -> Noun:
    """A noun that begins with a vowel instead of a consonant, or the reverse."""
    french = noun.french
    plural = other_opening(french.plural) if french.plural else ""
    return replace(noun, french=french._replace(singular=other_opening(french.singular), plural=plural))


@cache
def with_other_start(adjective: Adjective) -> Adjective:
    french = adjective.french
    forms = [other_opening(form) for form in (french.masculine, french.feminine, french.before_vowel)]
    return replace(adjective, french=french._replace(masculine=forms[0], feminine=forms[1], before_vowel=forms[2]))


@cache
def on_other_side(adjective: Adjective) -> Adjective:
    """Before the noun instead of after it, or the reverse."""
    return replace(adjective, french=adjective.french._replace(before_noun=not adjective.french.before_noun))


@cache
def pronoun_row(pronoun: Pronoun, shape: Agreement, forms: Pronoun, french: tuple[str, ...]) -> Pronoun:
    return replace(pronoun, agreement=shape, english=forms.english, french=french, german=forms.german)


def stand_in(value: Coordination, shape: Agreement) -> Pronoun:
    """One word with another agreement in place of a coordination. It begins with the same word, for elision."""
    english, french, german = (LANGUAGES[code].phrase_of(value).words[0] for code in ("en", "fr", "de"))
    return Pronoun("", (english,) * 2, (french,) * 2, (german,) * 4, shape)


@cache
def with_other_auxiliary(verb: Verb) -> Verb:
    french = verb.french._replace(with_etre=not verb.french.with_etre)
    return replace(verb, french=french, german=verb.german._replace(with_sein=not verb.german.with_sein))


def other_case_features(feature: str) -> list[str]:
    """The same place in a template with other cases: "dat" for "acc", "in+acc" for "in+dat", "mit+acc" for "mit"."""
    if feature in OTHER_CASES:
        return list(OTHER_CASES[feature])
    preposition, _, case = feature.partition("+")
    return [f"{preposition}+{other}" for other in OTHER_CASES[case or PREPOSITION_CASES[preposition]]]


def in_case(value: PrepositionalPhrase, feature: str) -> PrepositionalPhrase:
    return value._replace(preposition=value.preposition._replace(german=feature))


@cache
def with_feature(rule: GrammarRule, slot: str, old: str, new: str) -> GrammarRule:
    return replace(rule, german=rule.german.replace(f"{{{slot}.{old}", f"{{{slot}.{new}"))


def with_verb_case(clause: Clause, lexicon: Lexicon, case: str) -> Clause:
    verb = template(clause.rule, "de").verb
    row = clause.slots["verb"] if verb == "verb" else lexicon.verbs[verb]
    return clause._replace(rule=with_verb_slot(clause.rule), slots={**clause.slots, "verb": with_case(row, case)})


@cache
def with_verb_slot(rule: GrammarRule) -> GrammarRule:
    return replace(rule, german=rule.german.replace("{haben}", "{verb}"))


@cache
def with_case(verb: Verb, case: str) -> Verb:
    return replace(verb, german=verb.german._replace(case=case))


@cache
def main_clause_order(rule: GrammarRule) -> GrammarRule:
    """The rule with the verb of its second clause where a main clause has it."""
    german = rule.german.replace("{other.last", "{other").replace("{other.fronted-last", "{other.fronted")
    return rule if german == rule.german else replace(rule, german=german)
