"""Choosing what to say: filling the slots of a rule at random, but sensibly.

The rules name their choices in a few words, "style: kinds". The style says which determiners and pronouns may
appear, the kinds say which nouns: ``object="definite: people"``. "verb" stands for whatever the verb's own row
asks for. Slots such as ``place`` and ``quality`` have a method of their own below.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, cached_property
from random import Random
from typing import Any, TypeVar

from cutaway.data.builtin.tinyworld.lexicon import Adjective, Lexicon, Noun, Verb, kinds_of
from cutaway.data.builtin.tinyworld.meaning import NP, PLAIN, Both, Clause, It, Mood, Placed, Quality, Relative
from cutaway.data.builtin.tinyworld.rules import GrammarRule
from cutaway.data.builtin.tinyworld.templates import FIXED_SLOTS

Anything = TypeVar("Anything")

NUMBERS = ("two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
POSSESSIVES = ("my", "your", "his", "her", "our", "their")

# Each style lists (determiner, plural) as often as it should be heard.
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
# What may be owned takes possessives as well, and family is hardly mentioned without them.
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
NOT_OWNED = frozenset(("person", "mass"))
PRONOUNS = {
    "subject": ("I", "I", "you", "you", "we", "we", "he", "she", "they"),  # nouns already practise he and they
    "third": ("he", "she", "they"),
    "singular": ("he", "she"),
}
NAMED = frozenset(("subject", "third", "definite", "object", "singular"))
# Things that happen to one; nobody is told to do them, or wants to, or likes to.
INVOLUNTARY = frozenset(("see", "hear", "find", "meet", "lose", "break", "fall", "arrive"))
# One buys an apple and then eats it, not the other way round.
FIRST_DEEDS = frozenset(("buy", "find", "take", "pick", "prepare", "see", "hear", "look for"))
LATER_DEEDS = frozenset(("eat", "drink", "hide", "sell", "clean", "repair", "open", "close", "carry", "wear", "lose",
                         "break", "follow", "watch", "feed", "draw", "help"))  # fmt: skip


@cache
def moods_for(constraint: str) -> list[Mood]:
    """The moods that a wish such as "past not" or "modal question" leaves open."""
    asked = constraint.split()
    tense = next((t for t in ("past", "future", "command") if t in asked), "present")
    polarity = next((p for p in ("not", "never") if p in asked), "")
    modals = ["like"] if "like" in asked else [""]
    if "modal" in asked:  # "must not" is not the opposite of "must", so it stays out
        modals = ["can", "want"] if polarity else ["can", "must", "want"]
    return [Mood(tense, polarity, modal) for modal in modals]


class Chooser:
    """Draws derivations from a lexicon and two tables of rules, with one source of randomness."""

    def __init__(
        self, lexicon: Lexicon, clauses: Sequence[GrammarRule], sentences: Sequence[GrammarRule], random: Random,
        pools: dict[Any, list[Any]],
    ) -> None:  # fmt: skip
        self.lexicon, self.clauses, self.sentences = lexicon, clauses, sentences
        self.random = random.random
        self.pools = pools  # the options for each choice, collected when first needed and shared between choosers

    # ---- the smallest choices --------------------------------------------------------------------------

    def pick(self, options: Sequence[Anything]) -> Anything:
        return options[int(self.random() * len(options))]

    def pool(self, key: Any, build: Callable[[], list[Any]]) -> list[Any]:
        """The options for a choice that comes back often, collected once."""
        found = self.pools.get(key)
        if found is None:
            found = self.pools[key] = build()
            if not found:
                raise ValueError(f"tinyworld: no word or rule fits the choice {key!r}; add one to words.py or rules.py")
        return found

    def nouns(self, kinds: frozenset[str]) -> list[Noun]:
        return self.pool(kinds, lambda: [n for n in self.lexicon.nouns.values() if fits(n, kinds)])

    def verbs(self, frames: str) -> list[Verb]:
        return self.pool(("verbs", frames), lambda: self.lexicon.verbs_in(frozenset(frames.split())))

    def adjectives(self, noun: Noun) -> list[Adjective]:
        """May be empty: not every noun has a quality."""
        key = ("adjectives", noun)
        if key not in self.pools:
            self.pools[key] = [a for a in self.lexicon.adjectives.values() if not a.kinds.isdisjoint(noun.kinds)]
        return self.pools[key]

    def predicates(self, noun: Noun) -> list[Adjective]:
        """Adjectives that may be said of a noun after "is"; French would not say "la voiture est nouvelle"."""
        return self.pool(("is", noun), lambda: [a for a in self.adjectives(noun) if "attributive" not in a.kinds])

    @cached_property
    def names(self) -> dict[str, list[Noun]]:
        names = [noun for noun in self.lexicon.nouns.values() if "name" in noun.kinds]
        return {"any": names, "m": [name for name in names if name.french.gender == "m"]}

    # ---- noun phrases ----------------------------------------------------------------------------------

    def someone(self, style: str, kinds: frozenset[str], adjective_rate: float = 0.4) -> Any:
        """A noun phrase, a name or a pronoun."""
        if style == "both":
            first = self.noun_phrase("definite", kinds)
            return Both(first, self.another(first, lambda: self.noun_phrase("definite", kinds)))
        if "person" in kinds:
            dice = self.random()
            if dice < 0.3 and style in PRONOUNS:
                return self.lexicon.pronouns[self.pick(PRONOUNS[style])]
            if dice > 0.9 and style in NAMED:
                return NP("name", self.pick(self.names["any"]))
        return self.noun_phrase(style, kinds, adjective_rate)

    def another(self, first: NP, draw: Callable[[], NP]) -> NP:
        """Not "the box is in the box"."""
        second = draw()
        while second.noun is first.noun:
            second = draw()
        return second

    def noun_phrase(self, style: str, kinds: frozenset[str], adjective_rate: float = 0.4) -> NP:
        noun = self.pick(self.pools.get(kinds) or self.nouns(kinds))
        determiner, plural = self.determiner(style, noun)
        return NP(determiner, noun, self.perhaps_adjective(noun, adjective_rate), plural)

    def perhaps_adjective(self, noun: Noun, rate: float) -> Adjective | None:
        adjectives = self.adjectives(noun) if self.random() < rate else ()
        return self.pick(adjectives) if adjectives else None

    def determiner(self, style: str, noun: Noun) -> tuple[str, bool]:
        key = (style, noun)
        options: list[tuple[str, bool]] = self.pools.get(key) or self.pool(key, lambda: determiners_for(style, noun))
        return self.pick(options)

    # ---- clauses ---------------------------------------------------------------------------------------

    def clause(self, constraint: str) -> Clause:
        """A clause in some mood: "present", "past not", "modal", "question", ..."""
        rules = self.pool(("rules", constraint), lambda: repeated([r for r in self.clauses if allows(r, constraint)]))
        return self.fill(self.pick(rules), self.pick(moods_for(constraint)))

    def fill(self, rule: GrammarRule, mood: Mood, given: dict[str, Any] | None = None, careful: bool = False) -> Clause:
        """Fill every slot of a rule. ``careful`` keeps to definite noun phrases, as negation always does."""
        if "always_not" in rule.moods:
            mood = mood._replace(polarity="not")
        slots: dict[str, Any] = dict(given or {})
        careful = careful or bool(mood.polarity) or mood.tense == "command"
        verb = self.verb(rule, mood, slots)
        if rule.choices.get("quality") == "more":
            slots["quality"] = self.comparison(slots)
        if "subject" not in slots and rule.has_subject:
            slots["subject"] = self.subject(rule, mood, verb, careful)
        for slot, constraint in rule.choices.items():
            if slot not in slots and slot != "verb":
                slots[slot] = self.slot(slot, constraint, rule, mood, slots, careful)
        return Clause(rule, slots, mood)

    def verb(self, rule: GrammarRule, mood: Mood, slots: dict[str, Any]) -> Verb | None:
        if "verb" not in rule.choices:
            return None
        if "verb" not in slots:
            options = self.verbs(rule.choices["verb"])
            verb = self.pick(options)
            while verb.name in INVOLUNTARY and (mood.tense == "command" or mood.modal in UNFORCED):
                verb = self.pick(options)
            slots["verb"] = verb
        chosen: Verb = slots["verb"]
        return chosen

    def subject(self, rule: GrammarRule, mood: Mood, verb: Verb | None, careful: bool) -> Any:
        if mood.tense == "command":
            return self.lexicon.pronouns["you"]
        constraint = rule.choices.get("subject", "subject: verb")
        if constraint in SPECIAL_SUBJECTS:
            return SPECIAL_SUBJECTS[constraint](self)
        style, kinds, rate = read_wish(constraint, verb.subjects if verb else None)
        if style == "subject" and (mood.tense == "future" or (mood.tense == "past" and verb and verb.french.with_etre)):
            # "I will" is left out to keep each French future frequent; "je suis allé" would need the speaker's sex.
            style = "third"
        value = self.someone(style, kinds, rate)
        if careful and isinstance(value, NP) and value.determiner not in CAREFUL:
            determiner, plural = self.determiner("definite", value.noun)
            value = value._replace(determiner=determiner, plural=plural)
        return value

    def slot(
        self, slot: str, constraint: str, rule: GrammarRule, mood: Mood, slots: dict[str, Any], careful: bool
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
        style, kinds, rate = read_wish(constraint, slots["verb"].objects if "verb" in slots else None)
        if careful and style == "object":
            style = "definite"
        return self.someone(style, kinds, rate)

    # ---- slots with a mind of their own ----------------------------------------------------------------

    def place(self, constraint: str, verb: Verb | None) -> Placed:
        toward = constraint == "to" or (constraint == "at or to" and verb is not None and "motion" in verb.frames)
        kind = "waters" if constraint == "waters" else "place"
        options = self.pool(
            ("place", kind, toward), lambda: [n for n in self.nouns(frozenset((kind,))) if (n.to if toward else n.at)]
        )
        noun = self.pick(options)
        owned = "own" in noun.kinds and self.random() < 0.3
        np = NP(self.pick(POSSESSIVES) if owned else "the", noun, self.perhaps_adjective(noun, 0.2))
        preposition = noun.to if toward else noun.at
        assert preposition is not None
        return Placed(preposition, np)

    def spot(self, subject: NP) -> Placed:
        preposition, kinds = self.pick(self.lexicon.spots)
        return Placed(preposition, self.another(subject, lambda: self.noun_phrase("definite", kinds, 0.2)))

    def quality(self, constraint: str, slots: dict[str, Any]) -> Quality:
        if constraint == "weather":
            options = self.pool(
                constraint, lambda: [a for a in self.lexicon.adjectives.values() if "weather" in a.kinds]
            )
            return Quality(self.pick(options))
        subject = slots["subject"]
        noun = subject.noun if isinstance(subject, NP) else self.lexicon.nouns["child"]
        dice = self.random()
        adjective = self.pick(self.predicates(noun))
        if "absolute" in adjective.kinds:  # nothing is too red or very empty
            return Quality(adjective)
        return Quality(adjective, "very" if dice < 0.3 else "too" if dice < 0.5 else "")

    def rivals(self) -> list[tuple[Adjective, Noun, list[Noun]]]:
        """Who may be compared with whom: an adjective, a noun, and the other nouns of its sort it also fits."""
        nouns = [noun for noun in self.lexicon.nouns.values() if not noun.kinds & {"name", "mass"}]
        result = []
        for adjective in (a for a in self.lexicon.adjectives.values() if a.english.comparative):
            able = [noun for noun in nouns if not adjective.kinds.isdisjoint(noun.kinds)]
            for noun in able:
                others = [other for other in able if other is not noun and alike(other, noun)]
                result += [(adjective, noun, others)] * bool(others)
        return result

    def comparison(self, slots: dict[str, Any]) -> Quality:
        """Chooses the subject and what it is compared with, too: both must be able to have the quality."""
        adjective, noun, others = self.pick_even("rivals", self.rivals)
        for slot, one in (("subject", noun), ("other_one", self.pick(others))):
            determiner, plural = self.determiner("definite", one)
            slots[slot] = NP(determiner, one, None, plural)
        return Quality(adjective, more=True)

    def superlative(self) -> NP:
        adjective, noun, _ = self.pick_even("movable", lambda: [r for r in self.rivals() if r[1].kinds & MOVABLE])
        return NP("the", noun, adjective, self.random() < 0.3, most=True)

    def pick_even(self, key: str, build: Callable[[], list[tuple[Adjective, Noun, list[Noun]]]]) -> Any:
        """First an adjective, then a noun, so that adjectives which fit few nouns are heard as often."""
        by_adjective: dict[Adjective, list[Any]] = {}
        if key not in self.pools:
            for row in build():
                by_adjective.setdefault(row[0], []).append(row)
            self.pools[key] = list(by_adjective.values())
        return self.pick(self.pick(self.pools[key]))

    def singular_man(self) -> Any:
        dice = self.random()
        if dice < 0.25:
            return self.lexicon.pronouns["he"]
        if dice < 0.5:
            return NP("name", self.pick(self.names["m"]))
        return NP(self.pick(POSSESSIVES), self.pick(self.nouns(frozenset(("male",)))))

    def object_pronoun(self, subject: Any, mood: Mood) -> Any:
        """Not "I see me"; and "il m'a vu" would need the sex of the speaker."""
        third = mood.tense == "past" or getattr(subject, "name", "") in ("I", "you", "we")
        return self.lexicon.pronouns[self.pick(PRONOUNS["third" if third else "subject"])]

    # ---- whole sentences -------------------------------------------------------------------------------

    def sentence(self) -> Clause:
        rule = self.pick(self.pool("sentences", lambda: repeated(self.sentences)))
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

    def named(self, *names: str) -> list[GrammarRule]:
        return self.pool(("named", names), lambda: [rule for rule in self.clauses if rule.name in names])

    def ask_subject(self, slots: dict[str, Any]) -> None:
        rule = self.pick(self.named("activity", "motion", "transitive", "giving", "food", "company", "swimming"))
        slots["clause"] = self.fill(rule, PLAIN, {"subject": self.lexicon.pronouns["who"]})

    def ask_object(self, slots: dict[str, Any]) -> None:
        rule = self.pick(self.named("transitive"))
        verb = self.pick(self.verbs("transitive"))
        question = self.pick(("what", "who", "which", "how_many"))
        nouns = [noun for noun in self.nouns(verb.objects) if not noun.kinds & {"mass", "family"}]
        value: Any = self.lexicon.pronouns["who" if "personal" in verb.frames and question != "what" else "what"]
        if question in ("which", "how_many") and nouns:
            value = NP(question, self.pick(nouns), None, question == "how_many")
        elif value.name == "what" and verb.german.case == "dat":
            value = self.lexicon.pronouns["who"]
        slots["clause"] = self.fill(rule, PLAIN, {"verb": verb, "object": value}, careful=True)

    def two_verbs(self, slots: dict[str, Any]) -> None:
        verbs = self.verbs("activity")
        verb = self.pick(verbs)
        first = self.fill(self.pick(self.named("intransitive", "activity")), PLAIN, {"verb": verb})
        options = [v for v in verbs if v is not verb and verb.subjects <= v.subjects]
        given = {"subject": first.slots["subject"], "verb": self.pick(options)}
        slots.update(clause=first, other=self.fill(self.named("activity")[0], PLAIN, given))

    def and_it(self, slots: dict[str, Any]) -> None:
        pairs = self.pool("and it", self.deeds)
        first, later, nouns = self.pick(pairs)
        noun = self.pick(nouns)
        determiner, plural = ("mass", False) if "mass" in noun.kinds else self.determiner("object", noun)
        np = NP(determiner, noun, self.perhaps_adjective(noun, 0.3), plural)
        clause = self.fill(self.named("transitive")[0], PLAIN, {"verb": first, "object": np})
        given = {"subject": clause.slots["subject"], "verb": later, "object": It(np)}
        slots.update(clause=clause, other=self.fill(self.named("pronoun object")[0], PLAIN, given))

    def deeds(self) -> list[tuple[Verb, Verb, list[Noun]]]:
        verbs = self.verbs("transitive")
        result = []
        for first in (v for v in verbs if v.name in FIRST_DEEDS):
            for later in (v for v in verbs if v.name in LATER_DEEDS and first.subjects <= v.subjects):
                shared = [n for n in self.nouns(first.objects) if fits(n, later.objects) and not n.is_human]
                result += [(first, later, shared)] * bool(shared)
        return result

    def about_subject(self, slots: dict[str, Any]) -> None:
        """ "The boy who eats the apple is happy.": the inner clause first, then its subject is taken out."""
        inner = self.fill(self.pick(self.named("activity", "motion", "transitive", "food")), PLAIN)
        np = self.plain_noun_phrase("described", inner.slots["verb"].subjects)
        slots.update(subject=np, other=inner._replace(slots={**inner.slots, "subject": Relative(np)}))

    def about_object(self, slots: dict[str, Any]) -> None:
        inner = self.fill(self.named("transitive")[0], PLAIN, careful=True)
        np = self.plain_noun_phrase("described", inner.slots["verb"].objects)
        slots.update(subject=np, other=inner._replace(slots={**inner.slots, "object": Relative(np)}))

    def describing_object(self, slots: dict[str, Any]) -> None:
        inner = self.fill(self.pick(self.named("activity", "transitive", "food")), PLAIN)
        np = self.plain_noun_phrase("mentioned", inner.slots["verb"].subjects)
        verbs = self.pool(("about", np.noun), lambda: [v for v in self.verbs("personal") if fits(np.noun, v.objects)])
        about = inner._replace(slots={**inner.slots, "subject": Relative(np)})
        slots.update(verb=self.pick(verbs), object=np, other=about)

    def plain_noun_phrase(self, style: str, kinds: frozenset[str]) -> NP:
        np = self.noun_phrase(style, kinds, 0.0)
        while not self.adjectives(np.noun):
            np = self.noun_phrase(style, kinds, 0.0)
        return np


UNFORCED = frozenset(("must", "want", "like"))
CAREFUL = frozenset(("the", "this", "name", "mass", *POSSESSIVES))
MASS_DETERMINERS = {
    True: [THE] * 3 + [("mass", False)] * 3 + [THIS],
    False: [THE] * 3 + [THIS],
}
MOVABLE = frozenset(("person", "animal", "thing", "vehicle", "plant"))


def fits(noun: Noun, kinds: frozenset[str]) -> bool:
    return not noun.kinds.isdisjoint(kinds) and ("name" not in noun.kinds or "name" in kinds)


def alike(one: Noun, other: Noun) -> bool:
    """Comparable things: animals with people, otherwise things that share a kind."""
    living = {"person", "family", "animal"}
    return bool(one.kinds & living and other.kinds & living) or not (one.kinds - living).isdisjoint(other.kinds)


def determiners_for(style: str, noun: Noun) -> list[tuple[str, bool]]:
    if style == "unmeasured":
        return [("mass", False) if "mass" in noun.kinds else ("bare", True)]
    if "mass" in noun.kinds:
        return MASS_DETERMINERS[style == "object"]
    options = DETERMINERS.get(style, [])
    if noun.kinds & NOT_OWNED or ("place" in noun.kinds and "own" not in noun.kinds):
        return options
    own = OWNED.get(style, [])
    options = own if "family" in noun.kinds and own else options + own
    return [option for option in options if not option[1]] if "one" in noun.kinds else options


def allows(rule: GrammarRule, constraint: str) -> bool:
    return all(word in rule.moods for word in constraint.split() if word != "present")


def repeated(rules: Sequence[GrammarRule]) -> list[GrammarRule]:
    return [rule for rule in rules for _ in range(round(rule.weight * 2))]


SPECIAL_SUBJECTS: dict[str, Callable[[Chooser], Any]] = {
    "most": Chooser.superlative,
    "singular man": Chooser.singular_man,
}


@cache
def read_wish(constraint: str, of_verb: frozenset[str] | None) -> tuple[str, frozenset[str], float]:
    """ "definite plain: people" -> the style, the kinds, and how often an adjective may appear."""
    styles, _, kinds = constraint.partition(":")
    style, *plain = styles.split()
    wanted = of_verb if of_verb is not None and kinds.strip() == "verb" else kinds_of(kinds)
    return style, wanted, 0.0 if plain else 0.4


def combinations(clause: Clause) -> list[tuple[str, str]]:
    """The pairs of words a sentence puts together: adjective with noun, and verb with the noun of its object."""
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
    if isinstance(value, Placed):
        return (value.np,)
    if isinstance(value, Relative | It):
        return (value.antecedent,)
    return (value.first, value.second) if isinstance(value, Both) else ()
