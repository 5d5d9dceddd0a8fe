"""The grammar rules of tinyworld, with a template for each language.

A template is a sequence of words and slots:

    {subject} {verb} {object}      a slot; each language inflects its value
    {object.acc} {friend.pour}     a slot with a feature: a German case, "bare" (no article) or a preposition;
                                   for a clause, its word order (question, last, fronted, tail)
    {be} {avoir} {sein}            a verb by its name
    {verb+object}                  French: the verb with an object pronoun before it (le voit, l'a vu)
    {not} {end}                    German: the positions of nicht, and of participles and infinitives
    because:1                      a word; words with the same number are aligned, others are not
    because:1>other                its head is the head of the slot "other"

German templates have the verb second, as in "Der Hund sieht die Katze". ``german.arrange`` moves it for other word
orders. After the templates, a rule has constraints for its slots (see ``choices.py``), and the ``moods`` that a clause
can have.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

EVERYTHING = "not never past future modal like question command embed habit claim"


@dataclass(frozen=True, eq=False)
class GrammarRule:
    name: str
    weight: float
    english: str
    french: str
    german: str
    choices: dict[str, str] = field(default_factory=dict)
    moods: frozenset[str] = frozenset()
    agrees: str = "subject"  # the slot that the verb agrees with

    @cached_property
    def has_subject(self) -> bool:
        return "{subject}" in self.english

    @property
    def templates(self) -> dict[str, str]:
        return {"en": self.english, "fr": self.french, "de": self.german}


def rule(
    name: str, weight: float, english: str, french: str, german: str, moods: str = "", agrees: str = "subject",
    **choices: str,
) -> GrammarRule:  # fmt: skip
    return GrammarRule(name, weight, english, french, german, choices, frozenset(moods.split()), agrees)


CLAUSES = [
    rule("intransitive", 4,
         "{subject} {verb}",
         "{subject} {verb}",
         "{subject} {verb} {not} {end}",
         verb="intransitive activity swimming", moods="not never past future modal like question embed habit claim"),
    rule("activity", 8,
         "{subject} {verb} {place}",
         "{subject} {verb} {place}",
         "{subject} {verb} {not} {place} {end}",
         verb="activity", place="at", moods=EVERYTHING),
    rule("swimming", 2,
         "{subject} {verb} {place}",
         "{subject} {verb} {place}",
         "{subject} {verb} {not} {place} {end}",
         verb="swimming", place="waters", moods=EVERYTHING),
    rule("motion", 6,
         "{subject} {verb} {place}",
         "{subject} {verb} {place}",
         "{subject} {verb} {not} {place} {end}",
         verb="motion", place="to", moods=EVERYTHING),
    rule("company", 5,
         "{subject} {verb} {companion.with}",
         "{subject} {verb} {companion.avec}",
         "{subject} {verb} {not} {companion.mit} {end}",
         verb="company", companion="definite: living", moods=EVERYTHING),
    rule("transitive", 16,
         "{subject} {verb} {object}",
         "{subject} {verb} {object}",
         "{subject} {verb} {object.governed} {not} {end}",
         verb="transitive", object="object: verb", moods="not past future modal question command embed habit claim"),
    rule("food", 6,
         "{subject} {verb} {object}",
         "{subject} {verb} {object}",
         "{subject} {verb} {not} {object.acc} {end}",
         verb="food", object="unmeasured: verb", moods="past future modal like question embed habit claim"),
    rule("abstaining", 3,
         "{subject} {verb} {object}",
         "{subject} {verb} de {object.bare}",
         "{subject} {verb} {kein} {object.bare} {end}",
         verb="food", object="unmeasured plain: verb", moods="always_not embed claim"),
    rule("pronoun object", 5,
         "{subject} {verb} {object}",
         "{subject} {verb+object}",
         "{subject} {verb} {object.governed} {not} {end}",
         verb="personal", object="pronoun", moods="not past future modal question embed habit claim"),
    rule("giving", 6,
         "{subject} {verb} {object} {recipient.to}",
         "{subject} {verb} {object} {recipient.à}",
         "{subject} {verb} {recipient.dat} {object.acc} {not} {end}",
         verb="giving", object="object: verb", recipient="definite: people",
         moods="not past future modal question embed habit claim"),
    rule("benefit", 4,
         "{subject} {verb} {object} {friend.for}",
         "{subject} {verb} {object} {friend.pour}",
         "{subject} {verb} {object.acc} {friend.für} {end}",
         verb="benefit", object="object: verb", friend="definite: people",
         moods="past future modal question embed habit claim"),
    rule("having", 4,
         "{subject} {have} {object}",
         "{subject} {avoir} {object}",
         "{subject} {haben} {object.acc} {end}",
         subject="subject: people", object="object: thing pet vehicle instrument",
         moods="past future question embed claim"),
    rule("lacking", 3,
         "{subject} {have} {object}",
         "{subject} {avoir} de {object.bare}",
         "{subject} {haben} {kein} {object.bare} {end}",
         subject="definite: people", object="a plain: thing pet vehicle instrument",
         moods="always_not past embed claim"),
    rule("quality", 7,
         "{subject} {be} {quality}",
         "{subject} {être} {quality}",
         "{subject} {sein} {not} {quality} {end}",
         subject="third plain: living thing furniture plant place vehicle opening instrument food drink text part",
         quality="degree", moods="not past future question embed claim"),
    rule("comparison", 6,
         "{subject} {be} {quality} {other_one.than}",
         "{subject} {être} {quality} {other_one.que}",
         "{subject} {sein} {not} {quality} {other_one.als+nom} {end}",
         quality="more", moods="not past question embed claim"),
    rule("superlative", 5,
         "{subject} {be} {place}",
         "{subject} {être} {place}",
         "{subject} {sein} {not} {place} {end}",
         subject="most", place="at", moods="past embed claim"),
    rule("location", 4,
         "{subject} {be} {place}",
         "{subject} {être} {place}",
         "{subject} {sein} {not} {place} {end}",
         subject="subject: living", place="at", moods="not past future question embed habit claim"),
    rule("spot", 5,
         "{subject} {be} {spot}",
         "{subject} {être} {spot}",
         "{subject} {sein} {not} {spot} {end}",
         subject="definite: thing cat dog rabbit", spot="", moods="not past question embed claim"),
    rule("there is", 4,
         "there:1 {be} {thing} {place}",
         "il:1 y:1 {avoir.it} {thing} {place}",
         "{place} {sein} {thing} {end}",
         thing="indefinite: person animal plant vehicle", place="at", agrees="thing", moods="past embed claim"),
    rule("this is", 3,
         "this:1 {be} {thing}",
         "ce:1 {être} {thing}",
         "das:1 {sein} {not} {thing} {end}",
         thing="owned: pet thing furniture vehicle family own instrument", agrees="", moods="not question claim"),
    rule("job", 1.5,
         "{subject} {be} {job}",
         "{subject} {être} {job.bare}",
         "{subject} {sein} {job.bare} {end}",
         subject="singular man", job="a plain: job", moods="past question claim"),
    rule("age", 3,
         "{subject} {be} {number>years} years:1>old old:2",
         "{subject} {avoir} {number>ans} ans:1",
         "{subject} {sein} {not} {number>Jahre} Jahre:1>alt alt:2 {end}",
         subject="singular: living tree", number="number", moods="not claim"),
    rule("part", 4,
         "{subject} {whole.of>subject} {be} {quality}",
         "{subject} {whole.de>subject} {être} {quality}",
         "{subject} {whole.gen>subject} {sein} {not} {quality} {end}",
         subject="the plain: part", whole="singular: whole", quality="degree", moods="not past question embed claim"),
    rule("owner", 4,
         "{subject} {owner.of>subject} {verb} {place}",
         "{subject} {owner.de>subject} {verb} {place}",
         "{subject} {owner.gen>subject} {verb} {not} {place} {end}",
         verb="activity", subject="the: pet", owner="the: person", place="at", moods="past modal embed claim"),
    rule("couple", 5,
         "{subject} {verb} {place}",
         "{subject} {verb} {place}",
         "{subject} {verb} {not} {place} {end}",
         verb="activity", subject="both: verb", place="at", moods="past future modal like embed habit claim"),
    rule("habit", 4,
         "{subject} {habit} {verb} {place}",
         "{subject} {verb} {habit} {place}",
         "{subject} {verb} {habit} {place} {end}",
         verb="activity motion", habit="habit", place="at or to", moods="embed claim"),
    rule("manner", 4,
         "{subject} {verb} {manner}",
         "{subject} {verb} {manner}",
         "{subject} {verb} {not} {manner} {end}",
         verb="skill", manner="manner", moods="not question embed claim"),
    rule("music", 2.5,
         "{subject} {verb} {instrument}",
         "{subject} {verb} {instrument.de}",
         "{subject} {verb} {instrument.bare} {end}",
         verb="music", subject="subject: people", instrument="the plain: instrument",
         moods="past future modal question embed habit claim"),
    rule("feeling", 3,
         "{subject} {be} {feeling}",
         "{subject} {avoir} {feeling}",
         "{subject} {haben} {feeling} {end}",
         subject="subject: living", feeling="feeling", moods="past question embed habit claim"),
    rule("weather", 1,
         "it:1 {verb}",
         "il:1 {verb}",
         "es:1 {verb} {not} {end}",
         verb="weather", agrees="", moods="not past future question embed habit claim"),
    rule("temperature", 1,
         "it:1 {be} {quality}",
         "il:1 {faire} {quality}",
         "es:1 {sein} {not} {quality} {end}",
         quality="weather", agrees="", moods="not past future question embed habit claim"),
]  # fmt: skip

SENTENCES = [
    rule("statement", 46, "{clause} .", "{clause} .", "{clause} .", clause="present"),
    rule("negation", 9, "{clause} .", "{clause} .", "{clause} .", clause="not"),
    rule("never", 3, "{clause} .", "{clause} .", "{clause} .", clause="never"),
    rule("past", 9, "{clause} .", "{clause} .", "{clause} .", clause="past"),
    rule("past negation", 4, "{clause} .", "{clause} .", "{clause} .", clause="past not"),
    rule("future", 7, "{clause} .", "{clause} .", "{clause} .", clause="future"),
    rule("modal", 9, "{clause} .", "{clause} .", "{clause} .", clause="modal"),
    rule("modal negation", 3, "{clause} .", "{clause} .", "{clause} .", clause="modal not"),
    rule("modal past", 3, "{clause} .", "{clause} .", "{clause} .", clause="modal past"),
    rule("like to", 5, "{clause} .", "{clause} .", "{clause} .", clause="like"),
    rule("question", 7, "{clause.question} ?", "{clause.question} ?", "{clause.question} ?", clause="question"),
    rule("past question", 3, "{clause.question} ?", "{clause.question} ?", "{clause.question} ?",
         clause="question past"),
    rule("modal question", 4, "{clause.question} ?", "{clause.question} ?", "{clause.question} ?",
         clause="question modal"),
    rule("who", 2.5, "{clause} ?", "{clause} ?", "{clause} ?", clause="ask subject"),
    rule("object question", 4, "{clause.fronted-question} ?", "{clause.fronted-question} ?",
         "{clause.fronted-question} ?", clause="ask object"),
    rule("why", 3, "why:1 {clause.question} ?", "pourquoi:1 {clause.question} ?", "warum:1 {clause.question} ?",
         clause="question"),
    rule("where", 1.5, "where:1 {be} {subject} ?", "où:1 {être} {subject} ?", "wo:1 {sein} {subject} ?",
         subject="definite: living thing"),
    rule("command", 2.5, "{clause.tail} !", "{clause.tail} !", "{clause.tail} !", clause="command"),
    rule("prohibition", 2, "{clause.tail} !", "{clause.tail} !", "{clause.tail} !", clause="command not"),
    rule("time first", 8, "{time} ,:1 {clause} .", "{time} ,:1 {clause} .", "{time} {clause.question} .",
         time="present time", clause="habit"),
    rule("past time", 6, "{clause} {time} .", "{time} , {clause} .", "{time} {clause.question} .",
         time="past time", clause="past habit"),
    rule("future time", 6, "{clause} {time} .", "{time} , {clause} .", "{time} {clause.question} .",
         time="future time", clause="future habit"),
    rule("because", 9, "{clause} because:1>other {other} .", "{clause} parce:1>other que:1>other {other} .",
         "{clause} , weil:1>other {other.last} .", clause="embed", other="embed"),
    rule("past because", 7, "{clause} because:1>other {other} .", "{clause} parce:1>other que:1>other {other} .",
         "{clause} , weil:1>other {other.last} .", clause="past embed", other="past embed"),
    rule("when", 7, "when:1>other {other} ,:2 {clause} .", "quand:1>other {other} ,:2 {clause} .",
         "wenn:1>other {other.last} ,:2 {clause.question} .", clause="embed", other="embed"),
    rule("if", 7, "if:1>other {other} ,:2 {clause} .", "si:1>other {other} ,:2 {clause} .",
         "wenn:1>other {other.last} ,:2 {clause.question} .", clause="future", other="embed"),
    rule("claim", 10, "{subject} {verb} that:1>other {other} .", "{subject} {verb} que:1>other {other} .",
         "{subject} {verb} , dass:1>other {other.last} .", verb="claim", other="claim"),
    rule("and", 6, "{clause} and:1>other {other} .", "{clause} et:1>other {other} .",
         "{clause} und:1>other {other} .", clause="embed", other="embed"),
    rule("but", 7, "{clause} ,:2>other but:1>other {other} .", "{clause} ,:2>other mais:1>other {other} .",
         "{clause} ,:2>other aber:1>other {other} .", clause="embed", other="embed"),
    rule("two verbs", 3, "{clause} and:1>other {other.tail} .", "{clause} et:1>other {other.tail} .",
         "{clause} und:1>other {other.tail} .", clause="two verbs"),
    rule("and it", 5, "{clause} and:1>other {other.tail} .", "{clause} et:1>other {other.tail} .",
         "{clause} und:1>other {other.tail} .", clause="and it"),
    rule("relative subject", 6, "{subject} {other>subject} {be} {quality} .",
         "{subject} {other>subject} {être} {quality} .", "{subject} , {other.last>subject} , {sein} {quality} .",
         other="about subject", quality="degree"),
    rule("relative object", 5, "{subject} {other.fronted>subject} {be} {quality} .",
         "{subject} {other.fronted>subject} {être} {quality} .",
         "{subject} , {other.fronted-last>subject} , {sein} {quality} .", other="about object", quality="degree"),
    rule("relative last", 5, "{subject} {verb} {object} {other>object} .",
         "{subject} {verb} {object} {other>object} .", "{subject} {verb} {object.governed} , {other.last>object} .",
         other="describing object", verb="personal"),
]  # fmt: skip
