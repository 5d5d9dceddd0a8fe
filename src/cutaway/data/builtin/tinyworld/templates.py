"""From a rule and its filled slots to words: reading templates, and putting phrases together."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import NamedTuple

from . import english, french, german
from .lexicon import Lexicon, Verb
from .meaning import NOBODY, Clause, agreement
from .phrases import BITS_PER_CLAUSE, BITS_PER_SLOT, NOTHING, Phrase
from .rules import Rule

LANGUAGES: dict[str, ModuleType] = {"en": english, "fr": french, "de": german}
CLAUSE_SLOTS = ("clause", "other")
FIXED_SLOTS = ("number", "feeling", "habit", "manner", "time")
PUNCTUATION = {".": 13, "?": 13, "!": 13}  # the closing mark of every language shares one meaning
# The verb and its object have the same place in every rule, because a French verb may contain its object.
FIRST_SLOTS = ("verb", "object", "words")


class Part(NamedTuple):
    """One item of a template."""

    kind: str  # word, phrase, fixed, quality, verb, clause
    name: str
    feature: str
    shift: int  # where the meanings of this slot begin
    meaning: int  # of a word
    leans_on: str


@dataclass(frozen=True, eq=False)
class Template:
    """The parts of one rule in one language, in each order that was asked for."""

    language: ModuleType
    code: str
    parts: list[Part]
    verb: str  # "verb" for the verb slot, or the name of a verb, or ""
    impersonal: bool
    has_leans: bool
    orders: dict[str, list[Part]]

    def in_order(self, order: str) -> list[Part]:
        if order not in self.orders:
            front = Part("verb", "front", "front", 0, 0, "")
            self.orders[order] = self.language.arrange(list(self.parts), order, front) if order else self.parts
        return self.orders[order]


@cache
def template(rule: Rule, code: str) -> Template:
    places = slot_places(rule)
    parts = [read_part(item, code, places) for item in rule.templates[code].split()]
    verbs = [part for part in parts if part.kind == "verb" and part.feature == "verb"]
    verb = verbs[0].name if verbs else ""
    impersonal = ".it}" in rule.templates[code]
    return Template(LANGUAGES[code], code, parts, verb, impersonal, any(p.leans_on for p in parts), {})


def slot_places(rule: Rule) -> dict[str, int]:
    """Where the meanings of each slot begin. All three languages share these, which is what aligns them."""
    names = {slot_name(item) for text in rule.templates.values() for item in text.split() if item[0] == "{"}
    others = sorted(name for name in names if name not in (*FIRST_SLOTS, *CLAUSE_SLOTS))
    places = {name: number * BITS_PER_SLOT for number, name in enumerate((*FIRST_SLOTS, *others))}
    return places | {name: number * BITS_PER_CLAUSE for number, name in enumerate(CLAUSE_SLOTS, start=1)}


def slot_name(item: str) -> str:
    return item.strip("{}").split(">")[0].split(".")[0].split("+")[0]


def read_part(item: str, code: str, places: dict[str, int]) -> Part:
    if item[0] != "{":
        text, _, leans_on = item.partition(">")
        word, _, label = text.partition(":")
        label = str(PUNCTUATION.get(word, label))
        meaning = 1 << (places["words"] + int(label)) if label else 0
        return Part("word", word, "", 0, meaning, leans_on)
    text, _, leans_on = item.strip("{}").partition(">")
    name, _, feature = text.partition(".")
    name = name.removesuffix("+object")
    if name in CLAUSE_SLOTS:
        return Part("clause", name, feature, places[name], 0, leans_on)
    if name in FIXED_SLOTS:
        return Part("fixed", name, code, places[name], 0, leans_on)
    if name == "quality":
        return Part("quality", name, "", places[name], 0, leans_on)
    if name in ("not", "end", "kein"):
        return Part("verb", name, name, 0, 0, "")
    if name == "verb" or is_verb_name(name):
        return Part("verb", name, "verb", 0, 0, "")
    return Part("phrase", name, feature or default_feature(name, code), places[name], 0, leans_on)


def is_verb_name(name: str) -> bool:
    return name in ("be", "have", "être", "avoir", "faire", "sein", "haben")


def default_feature(name: str, code: str) -> str:
    if code == "de":
        return "nom"
    return "subject" if name == "subject" else "object"


def realise(lexicon: Lexicon, clause: Clause, code: str, order: str = "") -> Phrase:
    """Put the words of a clause in a row.

    Each part brings its phrase; the meanings are moved to the stretch that belongs to the slot, and what still
    leans on nothing (a lean of 0) comes to lean on the head of the clause: its verb, or its main clause.
    """
    form = template(clause.rule, code)
    language, slots = form.language, clause.slots
    pieces = verb_pieces(lexicon, clause, form, order) if form.verb else {}
    words: list[str] = []
    meanings: list[int] = []
    leans: list[int] = []
    heads: dict[str, int] = {}
    root = -1
    for part in form.in_order(order):
        kind, name, feature, shift, meaning, _ = part
        start = len(words)
        heads[name] = start
        if kind == "word":
            words.append(name)
            meanings.append(meaning)
            leans.append(0)
            continue
        if kind == "verb":
            found = pieces[feature]
            if found.root >= 0:
                root = start + found.root
        elif kind == "phrase":
            if feature == "governed":
                feature = verb_row(lexicon, clause, form).german.case
            found = language.phrase_of(slots[name], feature)
        elif kind == "quality":
            found = language.quality(slots[name], subject_agreement(clause))
        elif kind == "fixed":
            found = slots[name].phrases[feature]
        else:
            found = realise(lexicon, slots[name], code, feature)
            if name == "clause":
                root = start + found.root
        words += found.words
        meanings += [m << shift for m in found.meanings] if shift else found.meanings
        leans += found.leans
        heads[name] = start + found.root
    if form.has_leans:
        for part in form.in_order(order):
            if part.leans_on:
                place = heads[part.name]
                leans[place] = heads[part.leans_on] - place
    return Phrase(tuple(words), tuple(meanings), tuple([l or root - i for i, l in enumerate(leans)]), root)


def verb_row(lexicon: Lexicon, clause: Clause, form: Template) -> Verb:
    row: Verb = clause.slots["verb"] if form.verb == "verb" else lexicon.verbs[form.verb]
    return row


def verb_pieces(lexicon: Lexicon, clause: Clause, form: Template, order: str) -> dict[str, Phrase]:
    modal = lexicon.verbs[clause.mood.modal] if clause.mood.modal else None
    subject = NOBODY if form.impersonal else subject_agreement(clause)
    pieces: dict[str, Phrase] = form.language.pieces(clause, verb_row(lexicon, clause, form), modal, subject, order)
    return pieces


def subject_agreement(clause: Clause):
    slot = clause.rule.agrees
    return agreement(clause.slots[slot]) if slot else NOBODY


__all__ = ["LANGUAGES", "NOTHING", "realise", "template"]
