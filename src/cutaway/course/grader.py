"""Grade an exercise and name the mistake.

The grader calls a learner's function on a few cases. If its results equal, in every case, the results of a known
mistake, the grader names that mistake. It also tries pairs of mistakes. If nothing fits, it reports what differs,
without a guess.
"""

from __future__ import annotations

import contextlib
import itertools
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from cutaway.course.differences import as_array, describe_differences, is_close, is_same, is_sequence
from cutaway.course.exercise import NO_MISTAKES, Case, Exercise, ExercisePart, Mistake, Switches
from cutaway.course.imports import find_calls, find_imports
from cutaway.course.sandbox import Failure, Outcome, SandboxResult, run_file
from cutaway.course.values import as_arrays

MIN_EVIDENCE = 3  # a mistake is named if at least this many wrong numbers agree with it


@dataclass(frozen=True)
class Counterexample:
    """The smallest case with a wrong result."""

    case: Case
    given: Any
    right: Any


@dataclass(frozen=True)
class Mark:
    """The grade of one part."""

    part: ExercisePart
    state: str  # "right", "wrong", "to do" or "not tried"
    # Sets of mistakes, each of which explains all results. Usually one set with one mistake.
    explanations: tuple[tuple[Mistake, ...], ...] = ()
    facts: tuple[str, ...] = ()  # what differs, with or without an explanation
    violation: str = ""  # the first property that fails, as a sentence
    counterexample: Counterexample | None = None
    failure: Failure | None = None
    failed_case: Case | None = None
    follows_from: str = ""  # an earlier part that this one calls and that is wrong
    known: Mapping[str, str] = field(default_factory=dict)  # mistakes already named for a called part -> that part
    imported: str = ""  # what it imports that the exercise asks for, as a sentence

    @property
    def is_right(self) -> bool:
        return self.state == "right"


@dataclass(frozen=True)
class Grade:
    """The grade of a learner's file."""

    exercise: Exercise
    file: Path
    marks: tuple[Mark, ...]
    library: str
    failure: Failure | None = None  # of the file as a whole
    printed: str = ""

    @property
    def is_right(self) -> bool:
        return bool(self.marks) and all(mark.is_right for mark in self.marks)


def grade_file(exercise: Exercise, path: Path) -> Grade:
    """Run a learner's file in a separate process and grade the results."""
    return grade(exercise, path, run_file(path, exercise.parts))


def grade(exercise: Exercise, path: Path, outcomes: SandboxResult) -> Grade:
    marks: list[Mark] = []
    if outcomes.parts:
        uses = find_calls([part.name for part in exercise.parts], path)
        imports = find_imports(exercise, path)
        for part in exercise.parts:
            used = [mark for mark in marks if mark.state == "wrong" and mark.part.name in uses.get(part.name, ())]
            used = [mark for mark in used if not mark.imported]
            mark = mark_part(part, outcomes.parts[part.name], used)
            if part.name in imports and mark.state in ("right", "wrong"):
                mark = Mark(part, "wrong", imported=imports[part.name])
            marks.append(mark)
    if outcomes.failure and all(mark.failure and mark.failure.kind == "missing" for mark in marks):
        marks = []  # the file failed before it defined any of them
    return Grade(exercise, path, tuple(marks), outcomes.library, outcomes.failure, outcomes.printed)


def mark_part(part: ExercisePart, outcomes: Sequence[Outcome], used: Sequence[Mark] = ()) -> Mark:
    """Grade one part. `used`: marks of wrong parts that this one calls; their mistakes affect it too."""
    first, tried = outcomes[0].failure, outcomes
    outcomes = outcomes[: len(part.cases)]
    if first and first.kind in ("to do", "skipped"):
        return Mark(part, "to do" if first.kind == "to do" else "not tried", failure=first)
    if first and len(outcomes) < len(part.cases):  # the sandbox stopped after the first case
        return Mark(part, "wrong", failure=first, failed_case=part.cases[0])
    answers = [reference_answer(part, case, NO_MISTAKES) for case in part.cases]
    crashed = next((i for i, o in enumerate(outcomes) if o.failure), None)
    wrong = [i for i, o in enumerate(outcomes) if not o.failure and not is_same(o.value, answers[i])]
    violation, failure, failed_case = find_violation(part, tried)
    facts, known, counterexample = make_remarks(part, outcomes), certain_mistakes(used), None
    explanations = list[tuple[Mistake, ...]]()
    if wrong and all(m.explanations for m in used):  # else a called part's unknown mistake has an unknown effect here
        explanations = find_explanations(part, outcomes, answers, tuple(known) if used else None)
    if explanations or outcomes[0].is_nondeterministic:
        violation, failure, failed_case = "", None, None  # they follow from what is known already
    if crashed is not None:
        failure, failed_case = outcomes[crashed].failure, part.cases[crashed]
    if not (wrong or failure or violation or facts):
        return Mark(part, "right")
    if wrong:
        i = wrong[0]
        counterexample = Counterexample(part.cases[i], outcomes[i].value, answers[i])
        with np.errstate(all="ignore"):  # infinity minus infinity, for example
            facts = [*describe_differences(outcomes[i].value, answers[i], part.returns), *facts]
    facts += [describe_cases(part, wrong, outcomes)]
    return Mark(
        part,
        "wrong",
        explanations=tuple(explanations),
        facts=tuple(filter(None, facts)),
        violation=violation,
        counterexample=counterexample,
        failure=failure,
        failed_case=failed_case,
        follows_from=used[0].part.name if used else "",
        known={mistake.name: part_name for mistake, part_name in known.items()},
    )


def find_violation(part: ExercisePart, tried: Sequence[Outcome]) -> tuple[str, Failure | None, Case | None]:
    """Return what the first failing property says, or the first failed call of its cases."""
    rest = iter(tried[len(part.cases) :])
    for each in part.properties:
        outcomes = [next(rest) for _ in each.cases]
        for case, outcome in zip(each.cases, outcomes, strict=True):
            if outcome.failure:
                return "", outcome.failure, case
        with np.errstate(all="ignore"), contextlib.suppress(Exception):
            if says := each.check(*(outcome.value for outcome in outcomes)):
                return says, None, None
    return "", None, None


def certain_mistakes(marks: Sequence[Mark]) -> dict[Mistake, str]:
    """Return the mistakes that have only one explanation, and for each the part where it was made."""
    found: dict[str, tuple[Mistake, str]] = {}
    for mark in marks:
        for mistake in mark.explanations[0] if len(mark.explanations) == 1 else ():
            found.setdefault(mistake.name, (mistake, mark.known.get(mistake.name, mark.part.name)))
    return dict(found.values())


def find_explanations(
    part: ExercisePart, outcomes: Sequence[Outcome], right: Sequence[Any], known: tuple[Mistake, ...] | None = None
) -> list[tuple[Mistake, ...]]:
    """Return the smallest sets of mistakes that reproduce all outcomes. Several sets: they cannot be distinguished.

    `known`: the certain mistakes of called parts; None if all called parts are right.
    """
    if outcomes[0].is_nondeterministic or sum(o.failure is not None for o in outcomes) > len(outcomes) / 2:
        return []  # too little evidence
    for count, also in set_sizes(part, right, known):
        found = {
            frozenset(m.name for m in mistakes): mistakes
            for mistakes, switches in mistake_sets(part, count, also)
            if fits_outcomes(part, outcomes, right, switches, nan_proves=any(m.shows_as_nan for m in mistakes))
        }
        if found:
            # An ambiguous pair of mistakes is too uncertain to report.
            return list(found.values()) if count + len(also) == 1 or len(found) == 1 else []
    return []


def set_sizes(
    part: ExercisePart, right: Sequence[Any], known: tuple[Mistake, ...] | None
) -> list[tuple[int, tuple[Mistake, ...]]]:
    """Return (number of new mistakes, mistakes of called parts) to try, smallest sets first.

    If a called part is wrong, two new mistakes would be a guess; and its own must be seen if they have an effect.
    """
    if known is None:
        return [(1, ()), (2, ())]
    return [(0, known), (1, known)] if have_effect(part, right, known) else [(1, ())]


def have_effect(part: ExercisePart, right: Sequence[Any], known: tuple[Mistake, ...]) -> bool:
    """Check whether the mistakes of called parts change the results of this part."""
    for switches in itertools.product(*(m.switches for m in known)):
        answers = [reference_answer(part, case, frozenset(switches)) for case in part.cases]
        if not all(map(is_same, answers, right)):
            return True
    return False


def mistake_sets(
    part: ExercisePart, count: int, known: tuple[Mistake, ...]
) -> Iterator[tuple[tuple[Mistake, ...], Switches]]:
    """Yield every set of `count` new mistakes plus the known ones, with all their switches and free choices."""
    others = [m for m in part.mistakes if m not in known]
    for chosen in itertools.combinations(others, count):
        mistakes = (*known, *chosen)
        for switches in itertools.product(*(m.switches for m in mistakes)):
            for free in (NO_MISTAKES, *({choice} for choice in part.free_choices)):
                yield mistakes, frozenset(switches) | free


def fits_outcomes(
    part: ExercisePart, outcomes: Sequence[Outcome], right: Sequence[Any], switches: Switches, nan_proves: bool
) -> bool:
    """Check that these mistakes reproduce all outcomes and change enough numbers.

    Cases in which the learner's code crashed are skipped.
    """
    evidence = 0
    for case, outcome, right_answer in zip(part.cases, outcomes, right, strict=True):
        if outcome.failure:
            continue
        predicted = reference_answer(part, case, switches)
        if predicted is None or not is_same(outcome.value, predicted):
            return False
        evidence += count_differences(predicted, right_answer, nan_proves)
    return evidence >= MIN_EVIDENCE


@cache
def reference_answer(part: ExercisePart, case: Case, wrong: Switches) -> Any:
    """Return the reference's answer with these mistakes; None if it crashes."""
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return part.reference(*as_arrays(case.arguments), wrong=wrong)
        except (ValueError, IndexError, TypeError):
            if not wrong:
                raise
            return None


def count_differences(predicted: Any, right: Any, nan_proves: bool) -> int:
    """Count the numbers a mistake changes. Non-finite numbers are weak evidence: many mistakes produce them.

    A text or the length of a list that it changes is enough evidence.
    """
    if is_same(predicted, right):
        return 0
    if isinstance(right, dict) and isinstance(predicted, dict) and right.keys() == predicted.keys():
        return sum(count_differences(predicted[key], right[key], nan_proves) for key in right)
    if is_sequence(right) and is_sequence(predicted) and len(right) == len(predicted):
        return sum(count_differences(p, r, nan_proves) for p, r in zip(predicted, right, strict=True))
    a, b = as_array(predicted), as_array(right)
    if a is None or b is None or a.shape != b.shape:
        return MIN_EVIDENCE
    wrong = ~is_close(a, b)
    return int(wrong.sum() if nan_proves else (wrong & np.isfinite(a.astype(np.float64))).sum())


def make_remarks(part: ExercisePart, outcomes: Sequence[Outcome]) -> list[str]:
    """Return what is wrong even if all results are right."""
    changed = sorted({i for outcome in outcomes for i in outcome.changed})
    notes = [
        f"It changes its argument {part.arguments[i]}: the caller's array has other numbers after the call. Make a new "
        "array instead (x = x + 1 makes one; x += 1 and x[0] = 1 change the old one)."
        for i in changed
    ]
    if outcomes[0].is_nondeterministic:
        notes.append("The same call gives another answer the second time: it uses random numbers, or keeps something.")
    return notes


def describe_cases(part: ExercisePart, wrong: Sequence[int], outcomes: Sequence[Outcome]) -> str:
    """List right and wrong cases, if there are both."""
    fine = [c.description for i, c in enumerate(part.cases) if i not in wrong and not outcomes[i].failure]
    bad = [part.cases[i].description for i in wrong]
    if not fine or not bad:
        return ""
    return f"Right: {'; '.join(fine)}. Wrong: {'; '.join(bad)}."
