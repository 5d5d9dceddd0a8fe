"""Draw random derivations: fill the slots of a rule with words that make sense together.

A rule has a constraint "style: kinds" for a slot. The style selects determiners and pronouns, the kinds select nouns:
``object="definite: people"``. The kind "verb" means the kinds in the row of the verb. Slots such as ``place`` and
``quality`` have their own methods below.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, cached_property
from random import Random
from typing import Any, TypeVar

from cutaway.data.builtin.tinyworld.lexicon import Adjective, Lexicon, Noun, Verb, kinds_of
from cutaway.data.builtin.tinyworld.meaning import (
    NP,
    PLAIN,
    Clause,
    Coordination,
    Mood,
    ObjectPronoun,
    PrepositionalPhrase,
    Quality,
    RelativePronoun,
)
from cutaway.data.builtin.tinyworld.rules import GrammarRule
from cutaway.data.builtin.tinyworld.templates import FIXED_SLOTS

Anything = TypeVar("Anything")

NUMBERS = ("two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
POSSESSIVES = ("my", "your", "his", "her", "our", "their")

# style -> a list of (determiner, plural); the number of repetitions is the weight.
THE, THE_PLURAL, A, EVERY = ("the", False), ("the", True), ("a", False), ("every", False)
THIS, THESE = ("this", False), ("this", True)
OWN = [(word, False) for word in POSSESSIVES]
OWN_PLURAL = [(word, True) for word in POSSESSIVES]
COUNTED = [(word, True) for word in NUMBERS]
FEW = [("some", True), ("many", True)] * 4
DETERMINERS: dict[str, list[tuple[str, bool]]] = {
    "subject": [THE] * 30 + [THE_PLURAL] * 16 + [A] * 9 + [THIS] * 5 + [THESE] * 4 + [EVERY] * 4 + COUNTED + FEW,
    "object": [THE] * 24 + [THE_PLURAL] * 10 + [A] * 22 + [THIS] * 4 + [THESE] * 4 + COUNTED + FEW,
    "definite": [THE] * 8 + [THE_PLURAL] * 4 + [THIS, THIS, THESE],
    "described": [THE] * 5 + [THE_PLURAL] * 3 + [THIS],
    "mentioned": [THE] * 4 + [THE_PLURAL] * 3 + [A] * 5 + [THIS],
    "indefinite": [A] * 16 + COUNTED + FEW,
    "singular": [THE] * 3 + [THIS],
    "the": [THE],
    "a": [A],
}
DETERMINERS["third"] = DETERMINERS["subject"]
# Additional determiners for nouns that can be possessed. Nouns of family have mostly possessives.
OWNED = {
    "subject": OWN * 3 + OWN_PLURAL * 2,
    "third": OWN * 3 + OWN_PLURAL * 2,
    "object": OWN * 3 + OWN_PLURAL,
    "definite": OWN + OWN_PLURAL,
    "singular": OWN,
    "owned": OWN,
    "described": [THE],
    "mentioned": [THE],
}
NOT_POSSESSED = frozenset(("person", "mass"))
PRONOUNS = {
    "subject": ("I", "I", "you", "you", "we", "we", "he", "she", "they"),  # nouns have the same verb forms as he, they
    "third": ("he", "she", "they"),
    "singular": ("he", "she"),
}
NAMED = frozenset(("subject", "third", "definite", "object", "singular"))
# Not used in commands, nor with must, want and like.
INVOLUNTARY = frozenset(("see", "hear", "find", "meet", "lose", "break", "fall", "arrive"))
# For "and it": "buys an apple and eats it", not "eats an apple and buys it".
FIRST_ACTIONS = frozenset(("buy", "find", "take", "pick", "prepare", "see", "hear", "look for"))
LATER_ACTIONS = frozenset(("eat", "drink", "hide", "sell", "clean", "repair", "open", "close", "carry", "wear", "lose",
                         "break", "follow", "watch", "feed", "draw", "help"))  # fmt: skip


@cache
def moods_for(constraint: str) -> list[Mood]:
    """The moods that fit a constraint such as "past not" or "modal question"."""
    words = constraint.split()
    tense = next((t for t in ("past", "future", "command") if t in words), "present")
    polarity = next((p for p in ("not", "never") if p in words), "")
    modals = ["like"] if "like" in words else [""]
    if "modal" in words:  # "must not" is excluded, because it is not the negation of "must"
        modals = ["can", "want"] if polarity else ["can", "must", "want"]
    return [Mood(tense, polarity, modal) for modal in modals]


class Chooser:
    """Draws random derivations from a lexicon and two tables of rules."""

    def __init__(
        self, lexicon: Lexicon, clauses: Sequence[GrammarRule], sentences: Sequence[GrammarRule], random: Random,
        pools: dict[Any, list[Any]],
    ) -> None:  # fmt: skip
        self.lexicon, self.clauses, self.sentences = lexicon, clauses, sentences
        self.random = random.random
        self.pools = pools  # a cache of the options for each choice, shared by all choosers of a world

    # ---- single words ----------------------------------------------------------------------------------

    def pick(self, options: Sequence[Anything]) -> Anything:
        return options[int(self.random() * len(options))]

    def pool(self, key: Any, build: Callable[[], list[Any]]) -> list[Any]:
        """The options for a choice, from the cache."""
        found = self.pools.get(key)
        if found is None:
            found = self.pools[key] = build()
            if not found:
                raise ValueError(f"tinyworld has no word or rule for {key!r}. Add one to words.py or rules.py.")
        return found

    def nouns(self, kinds: frozenset[str]) -> list[Noun]:
        return self.pool(kinds, lambda: [n for n in self.lexicon.nouns.values() if fits(n, kinds)])

    def verbs(self, frames: str) -> list[Verb]:
        return self.pool(("verbs", frames), lambda: self.lexicon.verbs_in(frozenset(frames.split())))

    def adjectives(self, noun: Noun) -> list[Adjective]:
        """Adjectives that fit a noun. The list may be empty."""
        key = ("adjectives", noun)
        if key not in self.pools:
            self.pools[key] = [a for a in self.lexicon.adjectives.values() if not a.kinds.isdisjoint(noun.kinds)]
        return self.pools[key]

    def predicates(self, noun: Noun) -> list[Adjective]:
        """Adjectives that fit a noun after "is". Some cannot be used there: not "la voiture est nouvelle"."""
        return self.pool(("is", noun), lambda: [a for a in self.adjectives(noun) if "attributive" not in a.kinds])

    @cached_property
    def names(self) -> dict[str, list[Noun]]:
        names = [noun for noun in self.lexicon.nouns.values() if "name" in noun.kinds]
        return {"any": names, "m": [name for name in names if name.french.gender == "m"]}

    # ---- noun phrases ----------------------------------------------------------------------------------

    def participant(self, style: str, kinds: frozenset[str], adjective_rate: float = 0.4) -> Any:
        """A noun phrase, a name, a pronoun or a coordination."""
        if style == "both":
            first = self.noun_phrase("definite", kinds)
            return Coordination(first, self.draw_other(first, lambda: self.noun_phrase("definite", kinds)))
        if "person" in kinds:
            chance = self.random()
            if chance < 0.3 and style in PRONOUNS:
                return self.lexicon.pronouns[self.pick(PRONOUNS[style])]
            if chance > 0.9 and style in NAMED:
                return NP("name", self.pick(self.names["any"]))
        return self.noun_phrase(style, kinds, adjective_rate)

    def draw_other(self, first: NP, draw: Callable[[], NP]) -> NP:
        """A noun phrase with another noun: not "the box is in the box"."""
        second = draw()
        while second.noun is first.noun:
            second = draw()
        return second

    def noun_phrase(self, style: str, kinds: frozenset[str], adjective_rate: float = 0.4) -> NP:
        noun = self.pick(self.pools.get(kinds) or self.nouns(kinds))
        determiner, plural = self.determiner(style, noun)
        return NP(determiner, noun, self.optional_adjective(noun, adjective_rate), plural)

    def optional_adjective(self, noun: Noun, rate: float) -> Adjective | None:
        adjectives = self.adjectives(noun) if self.random() < rate else ()
        return self.pick(adjectives) if adjectives else None

    def determiner(self, style: str, noun: Noun) -> tuple[str, bool]:
        key = (style, noun)
        options: list[tuple[str, bool]] = self.pools.get(key) or self.pool(key, lambda: determiners_for(style, noun))
        return self.pick(options)

    # ---- clauses ---------------------------------------------------------------------------------------

    def clause(self, constraint: str) -> Clause:
        """A random clause in a mood: "present", "past not", "modal", "question", ..."""
        rules = self.pool(
            ("rules", constraint), lambda: repeat_by_weight([r for r in self.clauses if allows(r, constraint)])
        )
        return self.fill(self.pick(rules), self.pick(moods_for(constraint)))

    def fill(
        self, rule: GrammarRule, mood: Mood, given: dict[str, Any] | None = None, definite_only: bool = False
    ) -> Clause:
        """Fill every slot of a rule. Negations and commands always have ``definite_only`` noun phrases."""
        if "always_not" in rule.moods:
            mood = mood._replace(polarity="not")
        slots: dict[str, Any] = dict(given or {})
        definite_only = definite_only or bool(mood.polarity) or mood.tense == "command"
        verb = self.verb(rule, mood, slots)
        if rule.choices.get("quality") == "more":
            slots["quality"] = self.comparison(slots)
        if "subject" not in slots and rule.has_subject:
            slots["subject"] = self.subject(rule, mood, verb, definite_only)
        for slot, constraint in rule.choices.items():
            if slot not in slots and slot != "verb":
                slots[slot] = self.slot(slot, constraint, rule, mood, slots, definite_only)
        return Clause(rule, slots, mood)

    def verb(self, rule: GrammarRule, mood: Mood, slots: dict[str, Any]) -> Verb | None:
        if "verb" not in rule.choices:
            return None
        if "verb" not in slots:
            options = self.verbs(rule.choices["verb"])
            verb = self.pick(options)
            while verb.name in INVOLUNTARY and (mood.tense == "command" or mood.modal in VOLITION_MODALS):
                verb = self.pick(options)
            slots["verb"] = verb
        chosen: Verb = slots["verb"]
        return chosen

    def subject(self, rule: GrammarRule, mood: Mood, verb: Verb | None, definite_only: bool) -> Any:
        if mood.tense == "command":
            return self.lexicon.pronouns["you"]
        constraint = rule.choices.get("subject", "subject: verb")
        if constraint in SPECIAL_SUBJECTS:
            return SPECIAL_SUBJECTS[constraint](self)
        style, kinds, rate = parse_constraint(constraint, verb.subjects if verb else None)
        if style == "subject" and (mood.tense == "future" or (mood.tense == "past" and verb and verb.french.with_etre)):
            # no "I will": each French future form stays frequent; no "je suis allé": it needs the speaker's gender
            style = "third"
        value = self.participant(style, kinds, rate)
        if definite_only and isinstance(value, NP) and value.determiner not in DEFINITE_DETERMINERS:
            determiner, plural = self.determiner("definite", value.noun)
            value = value._replace(determiner=determiner, plural=plural)
        return value

    def slot(
        self, slot: str, constraint: str, rule: GrammarRule, mood: Mood, slots: dict[str, Any], definite_only: bool
    ) -> Any:
        if slot in FIXED_SLOTS:
            return self.pick(self.pool(constraint, lambda: list(self.lexicon.fixed[constraint].values())))
        if slot == "place":
            return self.place(constraint, slots.get("verb"))
        if slot == "spot":
            return self.spot(slots["subject"])
        if slot == "quality":
            return self.quality(constraint, slots)
        if constraint == "pronoun":
            return self.object_pronoun(slots["subject"], mood)
        style, kinds, rate = parse_constraint(constraint, slots["verb"].objects if "verb" in slots else None)
        if definite_only and style == "object":
            style = "definite"
        return self.participant(style, kinds, rate)

    # ---- special slots ---------------------------------------------------------------------------------

    def place(self, constraint: str, verb: Verb | None) -> PrepositionalPhrase:
        toward = constraint == "to" or (constraint == "at or to" and verb is not None and "motion" in verb.frames)
        kind = "waters" if constraint == "waters" else "place"
        options = self.pool(
            ("place", kind, toward), lambda: [n for n in self.nouns(frozenset((kind,))) if (n.to if toward else n.at)]
        )
        noun = self.pick(options)
        owned = "own" in noun.kinds and self.random() < 0.3
        np = NP(self.pick(POSSESSIVES) if owned else "the", noun, self.optional_adjective(noun, 0.2))
        preposition = noun.to if toward else noun.at
        assert preposition is not None
        return PrepositionalPhrase(preposition, np)

    def spot(self, subject: NP) -> PrepositionalPhrase:
        preposition, kinds = self.pick(self.lexicon.spots)
        return PrepositionalPhrase(
            preposition, self.draw_other(subject, lambda: self.noun_phrase("definite", kinds, 0.2))
        )

    def quality(self, constraint: str, slots: dict[str, Any]) -> Quality:
        if constraint == "weather":
            options = self.pool(
                constraint, lambda: [a for a in self.lexicon.adjectives.values() if "weather" in a.kinds]
            )
            return Quality(self.pick(options))
        subject = slots["subject"]
        noun = subject.noun if isinstance(subject, NP) else self.lexicon.nouns["child"]
        chance = self.random()
        adjective = self.pick(self.predicates(noun))
        if "absolute" in adjective.kinds:  # no "too red" or "very empty"
            return Quality(adjective)
        return Quality(adjective, "very" if chance < 0.3 else "too" if chance < 0.5 else "")

    def comparable_nouns(self) -> list[tuple[Adjective, Noun, list[Noun]]]:
        """(adjective, noun, other nouns that the noun can be compared with)"""
        nouns = [noun for noun in self.lexicon.nouns.values() if not noun.kinds & {"name", "mass"}]
        result = []
        for adjective in (a for a in self.lexicon.adjectives.values() if a.english.comparative):
            fitting = [noun for noun in nouns if not adjective.kinds.isdisjoint(noun.kinds)]
            for noun in fitting:
                others = [other for other in fitting if other is not noun and is_comparable(other, noun)]
                result += [(adjective, noun, others)] * bool(others)
        return result

    def comparison(self, slots: dict[str, Any]) -> Quality:
        """Choose the adjective, the subject and the noun it is compared with. The adjective fits both nouns."""
        adjective, noun, others = self.pick_balanced("rivals", self.comparable_nouns)
        for slot, one in (("subject", noun), ("other_one", self.pick(others))):
            determiner, plural = self.determiner("definite", one)
            slots[slot] = NP(determiner, one, None, plural)
        return Quality(adjective, more=True)

    def superlative(self) -> NP:
        adjective, noun, _ = self.pick_balanced(
            "movable", lambda: [r for r in self.comparable_nouns() if r[1].kinds & MOVABLE]
        )
        return NP("the", noun, adjective, self.random() < 0.3, most=True)

    def pick_balanced(self, key: str, build: Callable[[], list[tuple[Adjective, Noun, list[Noun]]]]) -> Any:
        """Choose an adjective first, then a noun, so that all adjectives are equally frequent."""
        by_adjective: dict[Adjective, list[Any]] = {}
        if key not in self.pools:
            for row in build():
                by_adjective.setdefault(row[0], []).append(row)
            self.pools[key] = list(by_adjective.values())
        return self.pick(self.pick(self.pools[key]))

    def singular_man(self) -> Any:
        chance = self.random()
        if chance < 0.25:
            return self.lexicon.pronouns["he"]
        if chance < 0.5:
            return NP("name", self.pick(self.names["m"]))
        return NP(self.pick(POSSESSIVES), self.pick(self.nouns(frozenset(("male",)))))

    def object_pronoun(self, subject: Any, mood: Mood) -> Any:
        """Not "I see me", and not "il m'a vu", which needs the speaker's gender."""
        third = mood.tense == "past" or getattr(subject, "name", "") in ("I", "you", "we")
        return self.lexicon.pronouns[self.pick(PRONOUNS["third" if third else "subject"])]

    # ---- whole sentences -------------------------------------------------------------------------------

    def sentence(self) -> Clause:
        rule = self.pick(self.pool("sentences", lambda: repeat_by_weight(self.sentences)))
        choices = rule.choices
        slots: dict[str, Any] = {}
        special = self.special.get(choices.get("clause") or choices.get("other", ""))
        if special:
            special(slots)
        for slot in ("clause", "other"):
            if slot in choices and slot not in slots:
                slots[slot] = self.clause(choices[slot])
        return Clause(rule, slots) if len(choices) == 1 and "clause" in slots else self.fill(rule, PLAIN, slots)

    @cached_property
    def special(self) -> dict[str, Callable[[dict[str, Any]], None]]:
        return {
            "ask subject": self.ask_subject,
            "ask object": self.ask_object,
            "two verbs": self.two_verbs,
            "and it": self.and_it,
            "about subject": self.about_subject,
            "about object": self.about_object,
            "describing object": self.describing_object,
        }

    def rules_named(self, *names: str) -> list[GrammarRule]:
        return self.pool(("named", names), lambda: [rule for rule in self.clauses if rule.name in names])

    def ask_subject(self, slots: dict[str, Any]) -> None:
        rule = self.pick(self.rules_named("activity", "motion", "transitive", "giving", "food", "company", "swimming"))
        slots["clause"] = self.fill(rule, PLAIN, {"subject": self.lexicon.pronouns["who"]})

    def ask_object(self, slots: dict[str, Any]) -> None:
        rule = self.pick(self.rules_named("transitive"))
        verb = self.pick(self.verbs("transitive"))
        question = self.pick(("what", "who", "which", "how_many"))
        nouns = [noun for noun in self.nouns(verb.objects) if not noun.kinds & {"mass", "family"}]
        value: Any = self.lexicon.pronouns["who" if "personal" in verb.frames and question != "what" else "what"]
        if question in ("which", "how_many") and nouns:
            value = NP(question, self.pick(nouns), None, question == "how_many")
        elif value.name == "what" and verb.german.case == "dat":
            value = self.lexicon.pronouns["who"]
        slots["clause"] = self.fill(rule, PLAIN, {"verb": verb, "object": value}, definite_only=True)

    def two_verbs(self, slots: dict[str, Any]) -> None:
        verbs = self.verbs("activity")
        verb = self.pick(verbs)
        first = self.fill(self.pick(self.rules_named("intransitive", "activity")), PLAIN, {"verb": verb})
        options = [v for v in verbs if v is not verb and verb.subjects <= v.subjects]
        given = {"subject": first.slots["subject"], "verb": self.pick(options)}
        slots.update(clause=first, other=self.fill(self.rules_named("activity")[0], PLAIN, given))

    def and_it(self, slots: dict[str, Any]) -> None:
        pairs = self.pool("and it", self.action_pairs)
        first, later, nouns = self.pick(pairs)
        noun = self.pick(nouns)
        determiner, plural = ("mass", False) if "mass" in noun.kinds else self.determiner("object", noun)
        np = NP(determiner, noun, self.optional_adjective(noun, 0.3), plural)
        clause = self.fill(self.rules_named("transitive")[0], PLAIN, {"verb": first, "object": np})
        given = {"subject": clause.slots["subject"], "verb": later, "object": ObjectPronoun(np)}
        slots.update(clause=clause, other=self.fill(self.rules_named("pronoun object")[0], PLAIN, given))

    def action_pairs(self) -> list[tuple[Verb, Verb, list[Noun]]]:
        """(first verb, later verb, nouns that fit both as objects)"""
        verbs = self.verbs("transitive")
        result = []
        for first in (v for v in verbs if v.name in FIRST_ACTIONS):
            for later in (v for v in verbs if v.name in LATER_ACTIONS and first.subjects <= v.subjects):
                common = [n for n in self.nouns(first.objects) if fits(n, later.objects) and not n.is_human]
                result += [(first, later, common)] * bool(common)
        return result

    def about_subject(self, slots: dict[str, Any]) -> None:
        """ "The boy who eats the apple is happy.": draw the inner clause, then replace its subject by "who"."""
        inner = self.fill(self.pick(self.rules_named("activity", "motion", "transitive", "food")), PLAIN)
        np = self.plain_noun_phrase("described", inner.slots["verb"].subjects)
        slots.update(subject=np, other=inner._replace(slots={**inner.slots, "subject": RelativePronoun(np)}))

    def about_object(self, slots: dict[str, Any]) -> None:
        inner = self.fill(self.rules_named("transitive")[0], PLAIN, definite_only=True)
        np = self.plain_noun_phrase("described", inner.slots["verb"].objects)
        slots.update(subject=np, other=inner._replace(slots={**inner.slots, "object": RelativePronoun(np)}))

    def describing_object(self, slots: dict[str, Any]) -> None:
        inner = self.fill(self.pick(self.rules_named("activity", "transitive", "food")), PLAIN)
        np = self.plain_noun_phrase("mentioned", inner.slots["verb"].subjects)
        verbs = self.pool(("about", np.noun), lambda: [v for v in self.verbs("personal") if fits(np.noun, v.objects)])
        about = inner._replace(slots={**inner.slots, "subject": RelativePronoun(np)})
        slots.update(verb=self.pick(verbs), object=np, other=about)

    def plain_noun_phrase(self, style: str, kinds: frozenset[str]) -> NP:
        """A noun phrase without an adjective, whose noun could have one."""
        np = self.noun_phrase(style, kinds, 0.0)
        while not self.adjectives(np.noun):
            np = self.noun_phrase(style, kinds, 0.0)
        return np


VOLITION_MODALS = frozenset(("must", "want", "like"))
DEFINITE_DETERMINERS = frozenset(("the", "this", "name", "mass", *POSSESSIVES))
MASS_DETERMINERS = {
    True: [THE] * 3 + [("mass", False)] * 3 + [THIS],
    False: [THE] * 3 + [THIS],
}
MOVABLE = frozenset(("person", "animal", "thing", "vehicle", "plant"))


def fits(noun: Noun, kinds: frozenset[str]) -> bool:
    return not noun.kinds.isdisjoint(kinds) and ("name" not in noun.kinds or "name" in kinds)


def is_comparable(one: Noun, other: Noun) -> bool:
    """Whether two nouns can be compared: both living, or with a common kind."""
    living = {"person", "family", "animal"}
    return bool(one.kinds & living and other.kinds & living) or not (one.kinds - living).isdisjoint(other.kinds)


def determiners_for(style: str, noun: Noun) -> list[tuple[str, bool]]:
    if style == "unmeasured":
        return [("mass", False) if "mass" in noun.kinds else ("bare", True)]
    if "mass" in noun.kinds:
        return MASS_DETERMINERS[style == "object"]
    options = DETERMINERS.get(style, [])
    if noun.kinds & NOT_POSSESSED or ("place" in noun.kinds and "own" not in noun.kinds):
        return options
    own = OWNED.get(style, [])
    options = own if "family" in noun.kinds and own else options + own
    return [option for option in options if not option[1]] if "one" in noun.kinds else options


def allows(rule: GrammarRule, constraint: str) -> bool:
    return all(word in rule.moods for word in constraint.split() if word != "present")


def repeat_by_weight(rules: Sequence[GrammarRule]) -> list[GrammarRule]:
    return [rule for rule in rules for _ in range(round(rule.weight * 2))]


SPECIAL_SUBJECTS: dict[str, Callable[[Chooser], Any]] = {
    "most": Chooser.superlative,
    "singular man": Chooser.singular_man,
}


@cache
def parse_constraint(constraint: str, of_verb: frozenset[str] | None) -> tuple[str, frozenset[str], float]:
    """ "definite plain: people" -> the style, the kinds, and the probability of an adjective."""
    styles, _, kinds = constraint.partition(":")
    style, *plain = styles.split()
    noun_kinds = of_verb if of_verb is not None and kinds.strip() == "verb" else kinds_of(kinds)
    return style, noun_kinds, 0.0 if plain else 0.4


def combinations(clause: Clause) -> list[tuple[str, str]]:
    """The pairs of words that a sentence combines: adjective and noun, verb and noun of its object."""
    pairs: list[tuple[str, str]] = []
    slots = clause.slots
    for slot, value in slots.items():
        if isinstance(value, Clause):
            pairs += combinations(value)
        elif isinstance(value, Quality):
            if isinstance(slots.get("subject"), NP):
                pairs.append((value.adjective.name, slots["subject"].noun.name))
        else:
            for np in noun_phrases(value):
                if np.adjective is not None:
                    pairs.append((np.adjective.name, np.noun.name))
                if slot == "object" and "verb" in slots:
                    pairs.append((slots["verb"].name, np.noun.name))
    return pairs


def noun_phrases(value: Any) -> tuple[NP, ...]:
    if isinstance(value, NP):
        return (value,)
    if isinstance(value, PrepositionalPhrase):
        return (value.np,)
    if isinstance(value, RelativePronoun | ObjectPronoun):
        return (value.antecedent,)
    return (value.first, value.second) if isinstance(value, Coordination) else ()
