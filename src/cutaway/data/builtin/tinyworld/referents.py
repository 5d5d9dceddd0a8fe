"""The referents of a sentence: each noun phrase and pronoun, with every slot that depends on it.

"The boy who eats an apple is happy.": the boy is the subject of "is", and the subject of the inner clause refers to
it. If the boy becomes boys, both verbs change.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from cutaway.data.builtin.tinyworld.lexicon import Pronoun
from cutaway.data.builtin.tinyworld.meaning import (
    NP,
    Clause,
    Coordination,
    ObjectPronoun,
    PrepositionalPhrase,
    RelativePronoun,
)
from cutaway.data.builtin.tinyworld.places import Path
from cutaway.data.builtin.tinyworld.templates import template

Site = tuple[Path, str]  # a slot of a clause


class Referent(NamedTuple):
    """A noun phrase or a pronoun. Its first site names it; the others refer to it."""

    value: Any
    part: str  # "first" or "second" of a coordination, or ""
    sites: tuple[Site, ...]


def clauses(sentence: Clause, path: Path = ()) -> Iterator[tuple[Path, Clause]]:
    yield path, sentence
    for slot, value in sentence.slots.items():
        if isinstance(value, Clause):
            yield from clauses(value, (*path, slot))


def clause_at(sentence: Clause, path: Path) -> Clause:
    for slot in path:
        sentence = sentence.slots[slot]
    return sentence


def replace_clause(sentence: Clause, path: Path, new: Clause) -> Clause:
    if not path:
        return new
    inner = replace_clause(sentence.slots[path[0]], path[1:], new)
    return sentence._replace(slots={**sentence.slots, path[0]: inner})


def replace_slot(sentence: Clause, site: Site, new: Any) -> Clause:
    path, slot = site
    clause = clause_at(sentence, path)
    return replace_clause(sentence, path, clause._replace(slots={**clause.slots, slot: new}))


def replace_referent(sentence: Clause, referent: Referent, new: Any) -> Clause:
    """The sentence about another noun phrase or pronoun."""
    for path, slot in referent.sites:
        value = clause_at(sentence, path).slots[slot]
        sentence = replace_slot(sentence, (path, slot), replace_part(value, referent.part, new))
    return sentence


def replace_part(value: Any, part: str, new: Any) -> Any:
    if isinstance(value, PrepositionalPhrase):
        return value._replace(np=new)
    if isinstance(value, RelativePronoun | ObjectPronoun):
        return value._replace(antecedent=new)
    return value._replace(**{part: new}) if isinstance(value, Coordination) else new


def referents(sentence: Clause) -> list[Referent]:
    named: list[Referent] = []
    for path, clause in clauses(sentence):
        for slot, value in clause.slots.items():
            if slot != "subject" or not is_subject_unsaid(sentence, path):
                named += [Referent(one, part, ((path, slot),)) for one, part in named_in(value)]
    return [referent._replace(sites=(*referent.sites, *other_sites(sentence, referent, named))) for referent in named]


def named_in(value: Any) -> list[tuple[Any, str]]:
    if isinstance(value, NP | Pronoun):
        return [(value, "")]
    if isinstance(value, PrepositionalPhrase):
        return [(value.np, "")]
    return [(value.first, "first"), (value.second, "second")] if isinstance(value, Coordination) else []


def other_sites(sentence: Clause, referent: Referent, named: list[Referent]) -> Iterator[Site]:
    for path, clause in clauses(sentence):
        for slot, value in clause.slots.items():
            if isinstance(value, RelativePronoun | ObjectPronoun) and antecedent(value.antecedent, named) is referent:
                yield path, slot
        if path and is_subject_unsaid(sentence, path) and referent.sites[0] == ((*path[:-1], "clause"), "subject"):
            yield path, "subject"


def antecedent(np: NP, named: list[Referent]) -> Referent | None:
    """The noun phrase that a pronoun refers to. In a sentence that you write yourself, it can be an equal one."""
    same = [referent for referent in named if referent.value is np]
    equal = [referent for referent in named if referent.value == np]
    return next(iter(same + equal), None)


def is_subject_unsaid(sentence: Clause, path: Path) -> bool:
    """Whether the subject of this clause is left out: in a command, and after "and" in "buys an apple and eats it"."""
    if not path:
        return False
    parts = template(clause_at(sentence, path[:-1]).rule, "en").parts
    return any(part.name == path[-1] and "tail" in part.feature for part in parts)
