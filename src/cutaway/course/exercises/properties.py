"""Build properties: statements that hold for every right answer, with the numbers of the answer in the sentence."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cutaway.course.differences import TOLERANCE, describe_differences, format_pair, is_close, is_same
from cutaway.course.exercise import Case, Property
from cutaway.course.values import as_arrays

Array = NDArray[Any]
# (given, expected) from the results of the cases
Compare = Callable[..., tuple[Any, Any]]


def agrees(reference: Callable[..., Any], returns: Sequence[str], description: str, *arguments: Any) -> Property:
    """One more case, whose result is compared with the reference. No known mistake is looked for in it."""
    right = reference(*as_arrays(list(arguments)))
    names = tuple(returns)

    def check(result: Any) -> str | None:
        if is_same(result, right):
            return None
        facts = describe_differences(result, right, names)
        wrong = [fact for fact in facts if not fact.endswith((" is right.", " are right."))]
        return f"{description[:1].upper()}{description[1:]}: {' '.join(wrong[:2])}"

    return Property(description, (Case(description, arguments),), check)


def equal(name: str, cases: Sequence[Sequence[Any]], compare: Compare, text: str) -> Property:
    """Two arrays made of the results must be equal.

    `text` is formatted with the first difference: {at} is its place, such as "[0, 1]", {given} and {expected} are the
    numbers.
    """

    def check(*results: Any) -> str | None:
        given, expected = (np.asarray(side, np.float64) for side in compare(*results))
        same = is_close(given, expected)
        if same.all():
            return None
        place = tuple(int(i) for i in np.argwhere(~same)[0])
        mine, theirs = format_pair(without_dust(given[place]), without_dust(expected[place]))
        return text.format(at=f"[{', '.join(map(str, place))}]" if place else "", given=mine, expected=theirs)

    return Property(name, tuple(Case(name, tuple(arguments)) for arguments in cases), check)


def holds(name: str, cases: Sequence[Sequence[Any]], check: Callable[..., str | None]) -> Property:
    """`check` gets the results and returns what is wrong, or None."""
    return Property(name, tuple(Case(name, tuple(arguments)) for arguments in cases), check)


def without_dust(number: float) -> float:
    """Return 0 for what is left of a 0 after rounding."""
    return 0.0 if abs(number) < 1e-9 else number


def floats(result: Any) -> Array:
    return np.asarray(result, np.float64)


def differs(a: float, b: float) -> bool:
    """Check whether two numbers differ by more than rounding. nan differs from everything."""
    return not abs(a - b) <= 10 * TOLERANCE * max(1.0, abs(b))
