"""From a rule with filled slots to words: parse templates, and combine phrases."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from types import ModuleType
from typing import Any, NamedTuple

from cutaway.data.builtin.tinyworld import english, french, german
from cutaway.data.builtin.tinyworld.lexicon import Lexicon
from cutaway.data.builtin.tinyworld.meaning import IMPERSONAL, Clause, agreement
from cutaway.data.builtin.tinyworld.phrases import shape
from cutaway.data.builtin.tinyworld.rules import GrammarRule

LANGUAGES: dict[str, ModuleType] = {"en": english, "fr": french, "de": german}
CLAUSE_SLOTS = ("clause", "other")
FIXED_SLOTS = ("number", "feeling", "habit", "manner", "time")
VERB_PIECES = ("not", "end", "kein", "front")
CLOSING = {".": 9, "?": 9, "!": 9}  # final punctuation marks have the same alignment number


class TemplateItem(NamedTuple):
    """One item of a template."""

    kind: str  # word, phrase, fixed, quality, verb, clause
    name: str
    feature: str
    key: int  # items of two languages with the same key are aligned; 0 is never aligned
    head_slot: str  # the slot that contains its head; "" for the head of the clause


@dataclass(frozen=True, eq=False)
class Order:
    """The items of a template in one word order. Each object exists once, so they are compared by identity."""

    parts: tuple[TemplateItem, ...]


@dataclass(frozen=True, eq=False)
class Template:
    """One rule in one language, with a cache of its word orders."""

    language: ModuleType
    parts: list[TemplateItem]
    verb: str  # "verb" for the verb slot, the name of a verb, or ""
    impersonal: bool
    orders: dict[str, Order]

    def in_order(self, order: str) -> Order:
        found = self.orders.get(order)
        if found is None:
            front = TemplateItem("verb", "front", "front", VERB_KEY, "")
            parts = self.language.arrange(list(self.parts), order, front) if order else self.parts
            found = self.orders[order] = Order(tuple(parts))
        return found


# ---- Parse templates -------------------------------------------------------------------------------------

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
    """A number for each slot, the same in all three languages. The alignment uses it."""
    names = {slot_name(item) for text in rule.templates.values() for item in text.split() if item[0] == "{"}
    return {name: key for key, name in enumerate(sorted(names | {"object"}), start=FIRST_KEY)}


def slot_name(item: str) -> str:
    return item.strip("{}").split(">")[0].split(".")[0].split("+")[0]


def read_item(item: str, code: str, keys: dict[str, int]) -> list[TemplateItem]:
    if item[0] != "{":
        text, _, head_slot = item.partition(">")
        word, _, label = text.partition(":")
        number = CLOSING.get(word, int(label or 0))
        return [TemplateItem("word", word, "", WORD_KEY + number if number else 0, head_slot)]
    text, _, head_slot = item.strip("{}").partition(">")
    name, _, feature = text.partition(".")
    if name.endswith("+object"):  # verb, object pronoun, rest of the verb
        clitic = TemplateItem("phrase", "object", "clitic", keys["object"], "")
        verb = name.removesuffix("+object")
        return [
            TemplateItem("verb", verb, "verb", VERB_KEY, ""),
            clitic,
            TemplateItem("verb", verb, "rest", VERB_KEY, ""),
        ]
    return [read_slot(name, feature, code, keys[name], head_slot)]


def read_slot(name: str, feature: str, code: str, key: int, head_slot: str) -> TemplateItem:
    if name in CLAUSE_SLOTS:
        return TemplateItem("clause", name, feature, key, head_slot)
    if name in FIXED_SLOTS:
        return TemplateItem("fixed", name, code, key, head_slot)
    if name == "quality":
        return TemplateItem("quality", name, "", key, head_slot)
    if name in VERB_PIECES:
        return TemplateItem("verb", name, name, VERB_KEY, "")
    if name == "verb" or is_verb_name(name):
        return TemplateItem("verb", name, "whole" if code == "fr" else "verb", VERB_KEY, "")
    return TemplateItem("phrase", name, feature or default_feature(name, code), key, head_slot)


def is_verb_name(name: str) -> bool:
    return name in ("be", "have", "être", "avoir", "faire", "sein", "haben")


def default_feature(name: str, code: str) -> str:
    if code == "de":
        return "nom"
    return "subject" if name == "subject" else "object"


# ---- Realise a clause ------------------------------------------------------------------------------------
#
# Alignment and heads do not depend on the words, only on the shapes of the phrases, and there are far fewer shapes than
# sentences. So `realise` collects the words of a clause and returns its *layout*: the word order, the shapes of its
# phrases, and the layouts of inner clauses. Alignment and heads are computed once for each layout.


@dataclass(frozen=True, eq=False)
class SentenceLayout:
    """An Order, then the Shape or SentenceLayout of each item except plain words. Compared by identity."""

    items: tuple[Any, ...]
    alignments: dict[SentenceLayout, tuple[tuple[int, int], ...]]

    @cached_property
    def structure(self) -> Structure:
        return compute_structure(self)

    @cached_property
    def heads(self) -> tuple[int, ...]:
        return tuple(index + offset if offset else -1 for index, offset in enumerate(self.structure.head_offsets))


@lru_cache(maxsize=1 << 16)
def layout_of(items: tuple[Any, ...]) -> SentenceLayout:
    return SentenceLayout(items, {})


def realise(lexicon: Lexicon, clause: Clause, code: str, order: str, words: list[str]) -> SentenceLayout:
    """Append the words of a clause to ``words`` and return its layout."""
    rule, slots, mood = clause
    form = template(rule, code)
    phrase_of = form.language.phrase_of
    arranged = form.orders.get(order) or form.in_order(order)
    subject = agreement(slots[rule.agrees]) if rule.agrees in slots else IMPERSONAL
    if form.verb:
        row = slots["verb"] if form.verb == "verb" else lexicon.verbs[form.verb]
        modal = lexicon.verbs[mood.modal] if mood.modal else None
        verb = form.language.pieces(clause, row, modal, IMPERSONAL if form.impersonal else subject, order)
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
    """A phrase or a clause with its alignment key and its position in the sentence."""

    key: int
    start: int
    content: Any  # the meanings of a phrase, or the layout of a clause


class Structure(NamedTuple):
    head_offsets: tuple[int, ...]
    root: int
    phrases: tuple[PlacedPhrase, ...]
    clauses: tuple[PlacedPhrase, ...]


def compute_structure(layout: SentenceLayout) -> Structure:
    """Positions and heads. The head of a clause is its verb, or the head of its main clause."""
    arranged, items = layout.items[0], iter(layout.items[1:])
    head_offsets: list[int] = []
    heads: list[int] = []  # of each item
    phrases: list[PlacedPhrase] = []
    clauses: list[PlacedPhrase] = []
    root = -1
    for kind, name, _, key, _ in arranged.parts:
        start = len(head_offsets)
        item: Any = ONE_WORD if kind == "word" else next(items)
        found = item.structure if kind == "clause" else item
        head_offsets += found.head_offsets
        heads.append(start + found.root)
        if kind == "clause":
            clauses.append(PlacedPhrase(key, start, item))
        elif key:
            phrases.append(PlacedPhrase(key, start, found.meanings))
        if name == "clause" or (kind == "verb" and found.root >= 0):
            root = heads[-1]
    # Words without a head get the head of the clause.
    head_offsets = [offset or root - index for index, offset in enumerate(head_offsets)]
    attach_to_slots(arranged.parts, heads, head_offsets)
    return Structure(tuple(head_offsets), root, tuple(phrases), tuple(clauses))


ONE_WORD = shape((1,), (0,), 0)


def attach_to_slots(parts: tuple[TemplateItem, ...], heads: list[int], head_offsets: list[int]) -> None:
    """Apply ``>`` of the template: the head of these items is in another slot."""
    for part, head in zip(parts, heads, strict=True):
        if part.head_slot:
            named = {part.name: head for part, head in zip(parts, heads, strict=True)}
            head_offsets[head] = named[part.head_slot] - head


def align(source: SentenceLayout, target: SentenceLayout) -> tuple[tuple[int, int], ...]:
    found = source.alignments.get(target)
    if found is None:
        found = source.alignments[target] = tuple(sorted(aligned_words(source.structure, target.structure)))
    return found


def aligned_words(source: Structure, target: Structure) -> list[tuple[int, int]]:
    """Index pairs of words that belong to the same slot and share a meaning."""
    pairs = [
        (one.start + i, other.start + j)
        for one in source.phrases
        for other in target.phrases
        if one.key == other.key
        for i, j in shared_meanings(one.content, other.content)
    ]
    for one in source.clauses:
        for other in target.clauses:
            if one.key == other.key:
                pairs += [(one.start + i, other.start + j) for i, j in align(one.content, other.content)]
    return pairs


@cache
def shared_meanings(meanings: tuple[int, ...], others: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
    return tuple((i, j) for i, one in enumerate(meanings) for j, other in enumerate(others) if one & other)
