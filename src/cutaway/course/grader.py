"""Checks an exercise, and names the mistake.

A learner's function is tried on a few examples. If its answers are right, well; if they are, on every example, what a
known mistake would give, then that is the mistake, however the code is written. Two mistakes at once are looked for
too. If nothing fits, the grader says what differs and guesses nothing.
"""

from __future__ import annotations

import ast
import itertools
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from cutaway.course.differences import as_array, close, differences, is_row, same
from cutaway.course.exercise import RIGHT, Case, Exercise, Mistake, Part, Wrong
from cutaway.course.sandbox import Outcome, Outcomes, Trouble, run_file
from cutaway.course.values import as_arrays

EVIDENCE = 3  # numbers, at least, that are wrong in just the way of a mistake before it is named


@dataclass(frozen=True)
class Shown:
    """The smallest example that shows what is wrong."""

    case: Case
    given: Any
    right: Any


@dataclass(frozen=True)
class Mark:
    """What the grader has to say about one part."""

    part: Part
    state: str  # "right", "wrong", "to do" or "not tried"
    # Sets of mistakes, each of which would explain all that was seen. Mostly one set of one mistake.
    explanations: tuple[tuple[Mistake, ...], ...] = ()
    facts: tuple[str, ...] = ()  # what differs, whether or not there is an explanation
    shown: Shown | None = None
    trouble: Trouble | None = None
    trouble_case: Case | None = None
    follows_from: str = ""  # an earlier part that this one uses, and that is not right yet
    known: frozenset[str] = frozenset()  # mistakes already named there

    @property
    def is_right(self) -> bool:
        return self.state == "right"


@dataclass(frozen=True)
class Grade:
    exercise: Exercise
    file: Path
    marks: tuple[Mark, ...]
    library: str
    trouble: Trouble | None = None  # of the file as a whole
    printed: str = ""

    @property
    def is_right(self) -> bool:
        return bool(self.marks) and all(mark.is_right for mark in self.marks)


def grade_file(exercise: Exercise, path: Path) -> Grade:
    """Run a learner's file in its own process, and judge what it gave."""
    return grade(exercise, path, run_file(path, exercise.parts))


def grade(exercise: Exercise, path: Path, outcomes: Outcomes) -> Grade:
    marks: list[Mark] = []
    if outcomes.parts:
        uses = calls_between([part.name for part in exercise.parts], path)
        for part in exercise.parts:
            used = [mark for mark in marks if mark.state == "wrong" and mark.part.name in uses.get(part.name, ())]
            marks.append(mark_part(part, outcomes.parts[part.name], used))
    if outcomes.trouble and all(mark.trouble and mark.trouble.kind == "missing" for mark in marks):
        marks = []  # Python did not come as far as any of them
    return Grade(exercise, path, tuple(marks), outcomes.library, outcomes.trouble, outcomes.printed)


def mark_part(part: Part, outcomes: Sequence[Outcome], used: Sequence[Mark] = ()) -> Mark:
    """`used`: the marks of parts that this one calls and that are wrong themselves. Their mistakes show here too."""
    first = outcomes[0].trouble
    if first and first.kind in ("to do", "skipped"):
        return Mark(part, "to do" if first.kind == "to do" else "not tried", trouble=first)
    if first and len(outcomes) < len(part.cases):  # it was no use to try the others
        return Mark(part, "wrong", trouble=first, trouble_case=part.cases[0])
    answers = [reference_answer(part, case, RIGHT) for case in part.cases]
    crashed = next((i for i, o in enumerate(outcomes) if o.trouble), None)
    wrong = [i for i, o in enumerate(outcomes) if not o.trouble and not same(o.value, answers[i])]
    if crashed is None and not wrong:
        return Mark(part, "right", facts=tuple(remarks(part, outcomes)))
    facts, known, shown = remarks(part, outcomes), mistakes_of(used), None
    if wrong:
        i = wrong[0]
        shown = Shown(part.cases[i], outcomes[i].value, answers[i])
        facts = [*differences(outcomes[i].value, answers[i], part.returns), *facts]
    facts += [which_cases(part, wrong, outcomes)]
    return Mark(
        part,
        "wrong",
        # what a wrong part without a name does to those that use it could look like anything
        explanations=tuple(explain(part, outcomes, answers, known)) if all(m.explanations for m in used) else (),
        facts=tuple(filter(None, facts)),
        shown=shown,
        trouble=outcomes[crashed].trouble if crashed is not None else None,
        trouble_case=part.cases[crashed] if crashed is not None else None,
        follows_from=used[0].part.name if used else "",
        known=frozenset(m.name for m in known),
    )


def mistakes_of(marks: Sequence[Mark]) -> tuple[Mistake, ...]:
    """Those that are known for sure."""
    return tuple({m.name: m for mark in marks if len(mark.explanations) == 1 for m in mark.explanations[0]}.values())


def explain(
    part: Part, outcomes: Sequence[Outcome], right: Sequence[Any], known: tuple[Mistake, ...] = ()
) -> list[tuple[Mistake, ...]]:
    """The smallest sets of mistakes that give exactly what was seen. More than one set: they look alike."""
    if outcomes[0].wavers or sum(o.trouble is not None for o in outcomes) > len(outcomes) / 2:
        return []  # too little to go by
    for count, also in sizes_of_sets(known):
        found = {
            frozenset(m.name for m in mistakes): mistakes
            for mistakes, switches in mistake_sets(part, count, also)
            if fits(part, outcomes, right, switches, nan_proves=any(m.shows_as_nan for m in mistakes))
        }
        if found:
            # Two mistakes that could also be two others are too much of a guess.
            return list(found.values()) if count + len(also) == 1 or len(found) == 1 else []
    return []


def sizes_of_sets(known: tuple[Mistake, ...]) -> list[tuple[int, tuple[Mistake, ...]]]:
    """How many mistakes to look for, beside those that are known from a part that this one calls: the fewest first."""
    sizes: list[tuple[int, tuple[Mistake, ...]]] = [(1, ()), (2, ())]
    return [(0, known), *sizes, (1, known), (2, known)] if known else sizes


def mistake_sets(part: Part, count: int, known: tuple[Mistake, ...]) -> Iterator[tuple[tuple[Mistake, ...], Wrong]]:
    """Every set of so many mistakes beside the known ones, in every way to make each, with and without free choices."""
    others = [m for m in part.mistakes if m not in known]
    for chosen in itertools.combinations(others, count):
        mistakes = (*known, *chosen)
        for switches in itertools.product(*(m.switches for m in mistakes)):
            for free in (RIGHT, *({choice} for choice in part.free)):
                yield mistakes, frozenset(switches) | free


def fits(part: Part, outcomes: Sequence[Outcome], right: Sequence[Any], switches: Wrong, nan_proves: bool) -> bool:
    """Whether somebody with these mistakes would have got just this, and enough of it to be sure.

    Where the learner's code crashed, nothing can be compared, and the other cases decide.
    """
    evidence = 0
    for case, outcome, right_answer in zip(part.cases, outcomes, right, strict=True):
        if outcome.trouble:
            continue
        predicted = reference_answer(part, case, switches)
        if predicted is None or not same(outcome.value, predicted):
            return False
        evidence += how_much_differs(predicted, right_answer, nan_proves)
    return evidence >= EVIDENCE


@cache
def reference_answer(part: Part, case: Case, wrong: Wrong) -> Any:
    """What the reference gives with these mistakes; None if they make it crash."""
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return part.reference(*as_arrays(case.arguments), wrong=wrong)
        except (ValueError, IndexError, TypeError):
            if not wrong:
                raise
            return None


def how_much_differs(predicted: Any, right: Any, nan_proves: bool) -> int:
    """How many numbers a mistake changes. What is not finite proves little: many roads lead there."""
    if is_row(right) and is_row(predicted) and len(right) == len(predicted):
        return sum(how_much_differs(p, r, nan_proves) for p, r in zip(predicted, right, strict=True))
    a, b = as_array(predicted), as_array(right)
    if a is None or b is None or a.shape != b.shape:
        return EVIDENCE
    wrong = ~close(a, b)
    return int(wrong.sum() if nan_proves else (wrong & np.isfinite(a.astype(np.float64))).sum())


def remarks(part: Part, outcomes: Sequence[Outcome]) -> list[str]:
    """What is worth saying even of a right answer."""
    changed = sorted({i for outcome in outcomes for i in outcome.changed})
    notes = [
        f"It changes its argument {part.arguments[i]}: whoever called it loses those numbers. Work on a copy."
        for i in changed
    ]
    if outcomes[0].wavers:
        notes.append("The same call gives another answer the second time: something in it is random, or remembers.")
    return notes


def which_cases(part: Part, wrong: Sequence[int], outcomes: Sequence[Outcome]) -> str:
    """Where it is right and where it is not, if it is neither everywhere."""
    fine = [c.what for i, c in enumerate(part.cases) if i not in wrong and not outcomes[i].trouble]
    bad = [part.cases[i].what for i in wrong]
    if not fine or not bad:
        return ""
    return f"Right: {'; '.join(fine)}. Wrong: {'; '.join(bad)}."


def calls_between(names: Sequence[str], path: Path) -> dict[str, set[str]]:
    """Which parts each part mentions in its code, directly or through functions of the same file."""
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError, OSError):
        return {}
    mentioned = {
        node.name: {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)}
        for node in tree.body
        if isinstance(node, ast.FunctionDef)
    }
    reached = {name: set(uses) for name, uses in mentioned.items()}
    for _ in mentioned:
        for uses in reached.values():
            uses |= set().union(*(mentioned.get(name, set()) for name in uses))
    return {name: reached.get(name, set()) & set(names) - {name} for name in names}
