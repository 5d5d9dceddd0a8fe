"""What differs between an answer and the right one, said in facts. No guesses here: each sentence was checked."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cutaway.course.values import Other

Array = NDArray[Any]
# Of the largest number. Learners may compute in single precision; mistakes are made to show at far more than this.
TOLERANCE = 1e-4
SMALLEST = 1e-2  # below this, what is large and what is small cannot be told from rounding


def same(given: Any, right: Any) -> bool:
    """Whether two answers are equal but for rounding. True and 1 are, and so are a list of numbers and an array."""
    if isinstance(right, (tuple, list)):
        return is_row(given) and len(given) == len(right) and all(map(same, given, right))
    if isinstance(right, dict):
        return isinstance(given, dict) and given.keys() == right.keys() and all(same(given[k], right[k]) for k in right)
    array = as_array(given)
    right = np.asarray(right)
    if array is None or array.shape != right.shape:
        return False
    return bool(np.all(close(array, right)))


def close(a: Array, b: Array) -> Array:
    """Number by number; what is not finite must be the same kind of not finite."""
    a, b = a.astype(np.float64), b.astype(np.float64)
    scale = max(SMALLEST, float(np.abs(b[np.isfinite(b)]).max(initial=0.0)))
    with np.errstate(invalid="ignore"):
        return (np.abs(a - b) <= TOLERANCE * scale) | (a == b) | (np.isnan(a) & np.isnan(b))


def as_array(value: Any) -> Array | None:
    """A number, an array, or rows of numbers; None if it is nothing of the kind."""
    if isinstance(value, (np.ndarray, np.generic, bool, int, float)):
        return np.asarray(value)
    if is_row(value) and value:
        parts = [as_array(v) for v in value]
        arrays = [p for p in parts if p is not None]
        if len(arrays) == len(parts) and len({a.shape for a in arrays}) == 1:
            return np.stack(arrays)
    return None


def is_row(value: Any) -> bool:
    return isinstance(value, (tuple, list))


def named(value: Any, names: tuple[str, ...]) -> list[tuple[str, Any]]:
    """What a function returns, piece by piece, with the names that the exercise gives them."""
    return list(zip(names, value, strict=True)) if len(names) > 1 else [(names[0], value)]


def differences(given: Any, right: Any, names: tuple[str, ...]) -> list[str]:
    """Sentences. For an answer of several pieces, about the first that differs, and which others are right."""
    if len(names) > 1 and not (is_row(given) and len(given) == len(names)):
        return [f"It returns {describe(given)}; expected are {len(names)} things: {', '.join(names)}."]
    facts: list[str] = []
    for (name, mine), (_, theirs) in zip(named(given, names), named(right, names), strict=True):
        if same(mine, theirs):
            facts += [f"The {name} {are(name)} right."] if len(names) > 1 else []
        else:
            facts += differences_of(mine, theirs, name)
    return facts


def differences_of(given: Any, right: Any, name: str) -> list[str]:
    if isinstance(right, (dict, list, tuple)):
        return [f"The {name} {are(name)} not what was expected."]
    array, right = as_array(given), np.asarray(right)
    if array is None:
        advice = " Is a return missing?" if given is None else ""
        return [f"The {name} {are(name)} {describe(given)}; expected is {array_of(right)}.{advice}"]
    if array.shape != right.shape:
        has = "have" if are(name) == "are" else "has"
        wanted = shape(right) if right.ndim else "a single number"
        return [f"The {name} {has} shape {shape(array)}; expected is {wanted}.", *shape_facts(array, right)]
    bad = ~np.isfinite(array.astype(np.float64)) & np.isfinite(right.astype(np.float64))
    if bad.any():
        return [f"{bad.sum()} of {bad.size} numbers of the {name} are not finite (nan or inf)."]
    return [*where_it_differs(array, right, name), *pattern(array, right)]


def where_it_differs(array: Array, right: Array, name: str) -> list[str]:
    wrong = ~close(array, right)
    first = tuple(int(i) for i in np.argwhere(wrong)[0])
    values = " instead of ".join(two_numbers(array[first], right[first]))
    if not first:
        return [f"The {name} {are(name)} {values}."]
    what = "entries" if right.dtype.kind == "b" else "numbers"
    count = f"all {what} differ" if wrong.all() else f"{wrong.sum()} of {wrong.size} {what} differ"
    count += "s" if wrong.sum() == 1 else ""
    return [f"Of the {name}, {count}; the first is {name}[{', '.join(map(str, first))}], {values}."]


def pattern(array: Array, right: Array) -> list[str]:
    """What the wrong numbers have to do with the right ones, where that is simple."""
    if array.size < 3:
        return []
    a, b = array.astype(np.float64), right.astype(np.float64)
    facts = []
    nonzero = np.abs(b) > TOLERANCE
    if nonzero.sum() >= 3 and not same(np.abs(b[nonzero]), np.full(int(nonzero.sum()), np.abs(b[nonzero]).flat[0])):
        factor = float(np.median(a[nonzero] / b[nonzero]))
        if abs(factor) > TOLERANCE and abs(factor - 1) > TOLERANCE and same(a, factor * b):
            facts.append(f"Every number is {number(factor)} times what it should be.")
        offset = float(np.median(a - b))
        if abs(offset) > TOLERANCE and same(a, b + offset):
            facts.append(f"Every number is {number(abs(offset))} too {'large' if offset > 0 else 'small'}.")
    if a.ndim >= 2 and a.shape[-1] == a.shape[-2] and same(a.swapaxes(-1, -2), b):
        facts.append("It is right but for its last two axes, which are exchanged.")
    elif a.ndim >= 2 and same(a[..., ::-1, :], b):
        facts.append("It is right but upside down: the rows stand in the opposite order.")
    elif same(np.sort(a, axis=None), np.sort(b, axis=None)):
        facts.append("The numbers are the right ones, in other places.")
    return facts


def shape_facts(array: Array, right: Array) -> list[str]:
    if array.ndim == right.ndim and array.ndim >= 2:
        for i in range(array.ndim):
            for j in range(i):
                turned = array.swapaxes(i, j)
                if turned.shape == right.shape and same(turned, right):
                    return [f"With its axes {j} and {i} exchanged it would be right."]
    if array.size == right.size and same(array.reshape(right.shape), right):
        return ["The numbers are right and in the right order; only the shape is not."]
    return []


def describe(value: Any) -> str:
    """What something is, in a few words."""
    if value is None:
        return "None"
    if isinstance(value, Other):
        return f"something of type {value.kind}"
    array = as_array(value)
    if array is not None and not isinstance(value, (tuple, list)):
        return f"an array of shape {shape(array)}" if array.ndim else f"the number {number(array)}"
    if is_row(value):
        ragged = array is None and all(map(is_row, value))
        return f"a {type(value).__name__} of {len(value)}" + (" rows of different lengths" if ragged else "")
    return f"a {type(value).__name__}"


def are(name: str) -> str:
    """The weights are, the output is."""
    return "are" if name.endswith("s") else "is"


def array_of(right: Array) -> str:
    return f"an array of shape {shape(right)}" if right.ndim else "a single number"


def two_numbers(a: Any, b: Any) -> tuple[str, str]:
    """With as many digits as it takes to see that they differ."""
    if isinstance(a, (bool, np.bool_)) and isinstance(b, (bool, np.bool_)):
        return str(bool(a)), str(bool(b))
    texts = ((f"{float(a):.{digits}g}", f"{float(b):.{digits}g}") for digits in range(4, 17))
    return next((pair for pair in texts if pair[0] != pair[1]), (number(a), number(b)))


def shape(array: Any) -> str:
    return str(list(np.shape(array)))


def number(value: Any) -> str:
    if isinstance(value, (bool, np.bool_)):
        return str(bool(value))
    return f"{float(value):.4g}"
