"""From a rule and its filled slots to words: reading templates, and putting phrases together."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from types import ModuleType
from typing import Any, NamedTuple

from cutaway.data.builtin.tinyworld import english, french, german
from cutaway.data.builtin.tinyworld.lexicon import Lexicon
from cutaway.data.builtin.tinyworld.meaning import NOBODY, Clause, agreement
from cutaway.data.builtin.tinyworld.phrases import shape
from cutaway.data.builtin.tinyworld.rules import GrammarRule

LANGUAGES: dict[str, ModuleType] = {"en": english, "fr": french, "de": german}
CLAUSE_SLOTS = ("clause", "other")
FIXED_SLOTS = ("number", "feeling", "habit", "manner", "time")
VERB_PIECES = ("not", "end", "kein", "front")
CLOSING = {".": 9, "?": 9, "!": 9}  # the closing mark of every language shares one number


class TemplateItem(NamedTuple):
    """One item of a template."""

    kind: str  # word, phrase, fixed, quality, verb, clause
    name: str
    feature: str
    key: int  # parts of two languages with the same key are aligned with each other; 0 is never aligned
    leans_on: str


@dataclass(frozen=True, eq=False)
class Order:
    """The parts of a template, in the order of one kind of clause. Each exists once; compared by identity."""

    parts: tuple[TemplateItem, ...]


@dataclass(frozen=True, eq=False)
class Template:
    """One rule in one language, in each order that was asked for."""

    language: ModuleType
    parts: list[TemplateItem]
    verb: str  # "verb" for the verb slot, or the name of a verb, or ""
    impersonal: bool
    orders: dict[str, Order]

    def in_order(self, order: str) -> Order:
        found = self.orders.get(order)
        if found is None:
            front = TemplateItem("verb", "front", "front", VERB_KEY, "")
            parts = self.language.arrange(list(self.parts), order, front) if order else self.parts
            found = self.orders[order] = Order(tuple(parts))
        return found


# ---- Reading templates -----------------------------------------------------------------------------------

VERB_KEY, FIRST_KEY, WORD_KEY = 1, 2, 100


@cache
def template(rule: GrammarRule, code: str) -> Template:
    keys = slot_keys(rule)
    parts = [part for item in rule.templates[code].split() for part in read_item(item, code, keys)]
    verbs = [part.name for part in parts if part.kind == "verb" and part.feature in ("verb", "whole")]
    verb = verbs[0] if verbs else ""
    impersonal = ".it}" in rule.templates[code]
    return Template(LANGUAGES[code], parts, verb, impersonal, {})


def slot_keys(rule: GrammarRule) -> dict[str, int]:
    """A number for each slot. All three languages share them, which is what aligns the languages."""
    names = {slot_name(item) for text in rule.templates.values() for item in text.split() if item[0] == "{"}
    return {name: key for key, name in enumerate(sorted(names | {"object"}), start=FIRST_KEY)}


def slot_name(item: str) -> str:
    return item.strip("{}").split(">")[0].split(".")[0].split("+")[0]


def read_item(item: str, code: str, keys: dict[str, int]) -> list[TemplateItem]:
    if item[0] != "{":
        text, _, leans_on = item.partition(">")
        word, _, label = text.partition(":")
        number = CLOSING.get(word, int(label or 0))
        return [TemplateItem("word", word, "", WORD_KEY + number if number else 0, leans_on)]
    text, _, leans_on = item.strip("{}").partition(">")
    name, _, feature = text.partition(".")
    if name.endswith("+object"):  # the verb opens, its object pronoun follows, the verb goes on
        clitic = TemplateItem("phrase", "object", "clitic", keys["object"], "")
        verb = name.removesuffix("+object")
        return [
            TemplateItem("verb", verb, "verb", VERB_KEY, ""),
            clitic,
            TemplateItem("verb", verb, "rest", VERB_KEY, ""),
        ]
    return [read_slot(name, feature, code, keys[name], leans_on)]


def read_slot(name: str, feature: str, code: str, key: int, leans_on: str) -> TemplateItem:
    if name in CLAUSE_SLOTS:
        return TemplateItem("clause", name, feature, key, leans_on)
    if name in FIXED_SLOTS:
        return TemplateItem("fixed", name, code, key, leans_on)
    if name == "quality":
        return TemplateItem("quality", name, "", key, leans_on)
    if name in VERB_PIECES:
        return TemplateItem("verb", name, name, VERB_KEY, "")
    if name == "verb" or is_verb_name(name):
        return TemplateItem("verb", name, "whole" if code == "fr" else "verb", VERB_KEY, "")
    return TemplateItem("phrase", name, feature or default_feature(name, code), key, leans_on)


def is_verb_name(name: str) -> bool:
    return name in ("be", "have", "être", "avoir", "faire", "sein", "haben")


def default_feature(name: str, code: str) -> str:
    if code == "de":
        return "nom"
    return "subject" if name == "subject" else "object"


# ---- Saying a clause -------------------------------------------------------------------------------------
#
# Alignment and heads do not depend on the words, only on the shapes of the phrases that make up a sentence; and
# there are far fewer shapes than sentences. So saying a clause collects its words and returns its *layout*: its
# order, the shapes of its phrases, and the layouts of the clauses inside it. All else is worked out once a layout.


@dataclass(frozen=True, eq=False)
class SentenceLayout:
    """(Order, then for each part but the plain words its Shape or Layout). Each exists once; compared by identity."""

    items: tuple[Any, ...]
    alignments: dict[SentenceLayout, tuple[tuple[int, int], ...]]

    @cached_property
    def structure(self) -> Structure:
        return structure(self)

    @cached_property
    def heads(self) -> tuple[int, ...]:
        return tuple(place + lean if lean else -1 for place, lean in enumerate(self.structure.leans))


@lru_cache(maxsize=1 << 16)
def layout_of(items: tuple[Any, ...]) -> SentenceLayout:
    return SentenceLayout(items, {})


def realise(lexicon: Lexicon, clause: Clause, code: str, order: str, words: list[str]) -> SentenceLayout:
    """Append the words of a clause to ``words`` and return its layout."""
    rule, slots, mood = clause
    form = template(rule, code)
    phrase_of = form.language.phrase_of
    arranged = form.orders.get(order) or form.in_order(order)
    subject = agreement(slots[rule.agrees]) if rule.agrees in slots else NOBODY
    if form.verb:
        row = slots["verb"] if form.verb == "verb" else lexicon.verbs[form.verb]
        modal = lexicon.verbs[mood.modal] if mood.modal else None
        verb = form.language.pieces(clause, row, modal, NOBODY if form.impersonal else subject, order)
    items: list[Any] = [arranged]
    for kind, name, feature, _, _ in arranged.parts:
        if kind == "phrase":
            found = phrase_of(slots[name], row.german.case if feature == "governed" else feature)
        elif kind == "verb":
            found = verb[feature]
        elif kind == "word":
            words.append(name)
            continue
        elif kind == "clause":
            items.append(realise(lexicon, slots[name], code, feature, words))
            continue
        elif kind == "fixed":
            found = slots[name].phrases[feature]
        else:
            found = form.language.quality(slots[name], subject)
        words += found.words
        items.append(found.shape)
    return layout_of(tuple(items))


# ---- Heads and alignment ---------------------------------------------------------------------------------


class PlacedPhrase(NamedTuple):
    """A phrase or a clause in its place: what it is aligned with, where it begins, and what it is made of."""

    key: int
    start: int
    content: Any  # the meanings of a phrase, or the layout of a clause


class Structure(NamedTuple):
    leans: tuple[int, ...]
    root: int
    phrases: tuple[PlacedPhrase, ...]
    clauses: tuple[PlacedPhrase, ...]


def structure(layout: SentenceLayout) -> Structure:
    """Where everything stands. The head of a clause is its verb, or else its main clause."""
    arranged, items = layout.items[0], iter(layout.items[1:])
    leans: list[int] = []
    heads: list[int] = []  # of each part
    phrases: list[PlacedPhrase] = []
    clauses: list[PlacedPhrase] = []
    root = -1
    for kind, name, _, key, _ in arranged.parts:
        start = len(leans)
        item: Any = ONE_WORD if kind == "word" else next(items)
        found = item.structure if kind == "clause" else item
        leans += found.leans
        heads.append(start + found.root)
        if kind == "clause":
            clauses.append(PlacedPhrase(key, start, item))
        elif key:
            phrases.append(PlacedPhrase(key, start, found.meanings))
        if name == "clause" or (kind == "verb" and found.root >= 0):
            root = heads[-1]
    # What leans on nothing yet leans on the head of the clause, unless the template says otherwise.
    leans = [lean or root - place for place, lean in enumerate(leans)]
    lean_on_others(arranged.parts, heads, leans)
    return Structure(tuple(leans), root, tuple(phrases), tuple(clauses))


ONE_WORD = shape((1,), (0,), 0)


def lean_on_others(parts: tuple[TemplateItem, ...], heads: list[int], leans: list[int]) -> None:
    """Carry out ``>``: some parts lean not on the verb but on another part."""
    for part, head in zip(parts, heads, strict=True):
        if part.leans_on:
            named = {part.name: head for part, head in zip(parts, heads, strict=True)}
            leans[head] = named[part.leans_on] - head


def align(source: SentenceLayout, target: SentenceLayout) -> tuple[tuple[int, int], ...]:
    found = source.alignments.get(target)
    if found is None:
        found = source.alignments[target] = tuple(sorted(aligned_words(source.structure, target.structure)))
    return found


def aligned_words(here: Structure, there: Structure) -> list[tuple[int, int]]:
    """Words are aligned when they come from the same slot and share a meaning there."""
    pairs = [
        (one.start + i, other.start + j)
        for one in here.phrases
        for other in there.phrases
        if one.key == other.key
        for i, j in shared(one.content, other.content)
    ]
    for one in here.clauses:
        for other in there.clauses:
            if one.key == other.key:
                pairs += [(one.start + i, other.start + j) for i, j in align(one.content, other.content)]
    return pairs


@cache
def shared(meanings: tuple[int, ...], others: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
    return tuple((i, j) for i, one in enumerate(meanings) for j, other in enumerate(others) if one & other)
