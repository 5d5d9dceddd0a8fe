"""Describe how an answer differs from the right one. Every sentence states a checked fact."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cutaway.course.values import UnsupportedValue

Array = NDArray[Any]
# Relative to the largest number. Learners may use single precision; the cases make every mistake far larger than this.
TOLERANCE = 1e-4
MIN_SCALE = 1e-2  # below this scale, differences cannot be distinguished from rounding


def is_same(given: Any, right: Any) -> bool:
    """Compare two answers up to rounding. True equals 1, and a list of numbers equals an array."""
    if isinstance(right, (tuple, list)):
        return is_sequence(given) and len(given) == len(right) and all(map(is_same, given, right))
    if isinstance(right, dict):
        return (
            isinstance(given, dict) and given.keys() == right.keys() and all(is_same(given[k], right[k]) for k in right)
        )
    array = as_array(given)
    right = np.asarray(right)
    if array is None or array.shape != right.shape:
        return False
    return bool(np.all(is_close(array, right)))


def is_close(a: Array, b: Array) -> Array:
    """Compare elementwise; nan equals nan, inf equals inf."""
    a, b = a.astype(np.float64), b.astype(np.float64)
    scale = max(MIN_SCALE, float(np.abs(b[np.isfinite(b)]).max(initial=0.0)))
    with np.errstate(invalid="ignore"):
        return (np.abs(a - b) <= TOLERANCE * scale) | (a == b) | (np.isnan(a) & np.isnan(b))


def as_array(value: Any) -> Array | None:
    """Convert a number, an array or nested rows of numbers; None for anything else."""
    if isinstance(value, (np.ndarray, np.generic, bool, int, float)):
        return np.asarray(value)
    if is_sequence(value) and value:
        parts = [as_array(v) for v in value]
        arrays = [p for p in parts if p is not None]
        if len(arrays) == len(parts) and len({a.shape for a in arrays}) == 1:
            return np.stack(arrays)
    return None


def is_sequence(value: Any) -> bool:
    return isinstance(value, (tuple, list))


def name_results(value: Any, names: tuple[str, ...]) -> list[tuple[str, Any]]:
    """Pair the returned values with the names the exercise gives them."""
    return list(zip(names, value, strict=True)) if len(names) > 1 else [(names[0], value)]


def describe_differences(given: Any, right: Any, names: tuple[str, ...]) -> list[str]:
    """Return sentences about each returned value: what differs, or that it is right."""
    if len(names) > 1 and not (is_sequence(given) and len(given) == len(names)):
        return [f"It returns {describe_value(given)}; expected are {len(names)} things: {', '.join(names)}."]
    facts: list[str] = []
    for (name, mine), (_, theirs) in zip(name_results(given, names), name_results(right, names), strict=True):
        if is_same(mine, theirs):
            facts += [f"The {name} {verb_for(name)} right."] if len(names) > 1 else []
        else:
            facts += describe_difference(mine, theirs, name)
    return facts


def describe_difference(given: Any, right: Any, name: str) -> list[str]:
    if isinstance(right, (dict, list, tuple)):
        return [f"The {name} {verb_for(name)} not what was expected."]
    array, right = as_array(given), np.asarray(right)
    if array is None:
        advice = " Is a return missing?" if given is None else ""
        return [f"The {name} {verb_for(name)} {describe_value(given)}; expected is {describe_expected(right)}.{advice}"]
    if array.shape != right.shape:
        has = "have" if verb_for(name) == "are" else "has"
        wanted = format_shape(right) if right.ndim else "a single number"
        return [f"The {name} {has} shape {format_shape(array)}; expected is {wanted}.", *describe_shape(array, right)]
    bad = ~np.isfinite(array.astype(np.float64)) & np.isfinite(right.astype(np.float64))
    if bad.any():
        return [f"{bad.sum()} of {bad.size} numbers of the {name} are not finite (nan or inf)."]
    return [*describe_first_difference(array, right, name), *describe_pattern(array, right)]


def describe_first_difference(array: Array, right: Array, name: str) -> list[str]:
    wrong = ~is_close(array, right)
    first = tuple(int(i) for i in np.argwhere(wrong)[0])
    values = " instead of ".join(format_pair(array[first], right[first]))
    if not first:
        return [f"The {name} {verb_for(name)} {values}."]
    what = "entries" if right.dtype.kind == "b" else "numbers"
    count = f"all {what} differ" if wrong.all() else f"{wrong.sum()} of {wrong.size} {what} differ"
    count += "s" if wrong.sum() == 1 else ""
    return [f"Of the {name}, {count}; the first is {name}[{', '.join(map(str, first))}], {values}."]


def describe_pattern(array: Array, right: Array) -> list[str]:
    """Name a simple relation between wrong and right numbers (factor, offset, order), if there is one."""
    if array.size < 3:
        return []
    a, b = array.astype(np.float64), right.astype(np.float64)
    facts = []
    nonzero = np.abs(b) > TOLERANCE
    if nonzero.sum() >= 3 and not is_same(np.abs(b[nonzero]), np.full(int(nonzero.sum()), np.abs(b[nonzero]).flat[0])):
        factor = float(np.median(a[nonzero] / b[nonzero]))
        if abs(factor) > TOLERANCE and abs(factor - 1) > TOLERANCE and is_same(a, factor * b):
            facts.append(f"Every number is {format_number(factor)} times what it should be.")
        offset = float(np.median(a - b))
        if abs(offset) > TOLERANCE and is_same(a, b + offset):
            facts.append(f"Every number is {format_number(abs(offset))} too {'large' if offset > 0 else 'small'}.")
    if a.ndim >= 2 and a.shape[-1] == a.shape[-2] and is_same(a.swapaxes(-1, -2), b):
        facts.append("It is right but for its last two axes, which are exchanged.")
    elif a.ndim >= 2 and is_same(a[..., ::-1, :], b):
        facts.append("It is right but upside down: the rows stand in the opposite order.")
    elif is_same(np.sort(a, axis=None), np.sort(b, axis=None)):
        facts.append("The numbers are the right ones, in other places.")
    return facts


def describe_shape(array: Array, right: Array) -> list[str]:
    if array.ndim == right.ndim and array.ndim >= 2:
        for i in range(array.ndim):
            for j in range(i):
                swapped = array.swapaxes(i, j)
                if swapped.shape == right.shape and is_same(swapped, right):
                    return [f"With its axes {j} and {i} exchanged it would be right."]
    if array.size == right.size and is_same(array.reshape(right.shape), right):
        return ["The numbers are right and in the right order; only the shape is not."]
    return []


def describe_value(value: Any) -> str:
    """Describe the type and shape of a value."""
    if value is None:
        return "None"
    if isinstance(value, UnsupportedValue):
        return f"something of type {value.kind}"
    array = as_array(value)
    if array is not None and not isinstance(value, (tuple, list)):
        return f"an array of shape {format_shape(array)}" if array.ndim else f"the number {format_number(array)}"
    if is_sequence(value):
        ragged = array is None and all(map(is_sequence, value))
        return f"a {type(value).__name__} of {len(value)}" + (" rows of different lengths" if ragged else "")
    return f"a {type(value).__name__}"


def verb_for(name: str) -> str:
    """Return "are" for a plural name, else "is"."""
    return "are" if name.endswith("s") else "is"


def describe_expected(right: Array) -> str:
    return f"an array of shape {format_shape(right)}" if right.ndim else "a single number"


def format_pair(a: Any, b: Any) -> tuple[str, str]:
    """Format two numbers with enough digits to see that they differ."""
    if isinstance(a, (bool, np.bool_)) and isinstance(b, (bool, np.bool_)):
        return str(bool(a)), str(bool(b))
    texts = ((f"{float(a):.{digits}g}", f"{float(b):.{digits}g}") for digits in range(4, 17))
    return next((pair for pair in texts if pair[0] != pair[1]), (format_number(a), format_number(b)))


def format_shape(array: Any) -> str:
    return str(list(np.shape(array)))


def format_number(value: Any) -> str:
    if isinstance(value, (bool, np.bool_)):
        return str(bool(value))
    return f"{float(value):.4g}"
