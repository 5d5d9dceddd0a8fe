"""Describe how an answer differs from the right one. Every sentence states a checked fact."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cutaway.course.values import UnsupportedValue

Array = NDArray[Any]
# Relative to the largest number. Learners may use single precision; the cases make every mistake far larger than this.
TOLERANCE = 1e-4
SHORT = 6  # lists of at most this many numbers or texts are printed within a sentence
MIN_SCALE = 1e-2  # below this scale, differences cannot be distinguished from rounding


def is_same(given: Any, right: Any) -> bool:
    """Compare two answers up to rounding. True equals 1, and a list of numbers equals an array."""
    if right is None or isinstance(right, str):
        return isinstance(given, type(right)) and bool(given == right)
    if isinstance(right, UnsupportedValue):
        return isinstance(given, UnsupportedValue) and given.kind == right.kind
    if isinstance(right, (tuple, list)):
        if isinstance(right, list) and isinstance(given, np.ndarray) and given.ndim:
            given = list(given)
        return is_sequence(given) and len(given) == len(right) and all(map(is_same, given, right))
    if isinstance(right, dict):
        if not isinstance(given, dict):
            return False
        given, right = with_text_keys(given), with_text_keys(right)
        return given.keys() == right.keys() and all(is_same(given[k], right[k]) for k in right)
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


def with_text_keys(value: dict[Any, Any]) -> dict[str, Any]:
    """Return the dict with its keys as texts: so they come back from the learner's process, ('a', 'b') too."""
    return {str(key): inner for key, inner in value.items()}


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
    if isinstance(given, dict) and isinstance(right, dict):
        return describe_dict(with_text_keys(given), with_text_keys(right), name)
    if isinstance(right, (list, tuple)):
        given = list(given) if isinstance(given, np.ndarray) and given.ndim else given
        if is_sequence(given):
            return describe_entries(given, right, name)
    if right is None or isinstance(right, (str, dict, list, tuple)):
        advice = " Is a return missing?" if given is None else ""
        return [
            f"{subject_for(name)} {verb_for(name)} {format_entry(given)}; expected is {format_entry(right)}.{advice}"
        ]
    array, right = as_array(given), np.asarray(right)
    if array is None:
        advice = " Is a return missing?" if given is None else ""
        return [f"The {name} {verb_for(name)} {describe_value(given)}; expected is {describe_expected(right)}.{advice}"]
    if array.shape != right.shape:
        wanted = format_shape(right) if right.ndim else "a single number"
        return [
            f"The {name} {has_for(name)} shape {format_shape(array)}; expected is {wanted}.",
            *describe_shape(array, right),
        ]
    bad = ~np.isfinite(array.astype(np.float64)) & np.isfinite(right.astype(np.float64))
    if bad.any():
        return [f"{bad.sum()} of {bad.size} numbers of the {name} are not finite (nan or inf)."]
    return [*describe_first_difference(array, right, name), *describe_pattern(array, right)]


def describe_entries(given: Any, right: Any, name: str) -> list[str]:
    """Compare two lists: their lengths, the first entry that differs, and the order."""
    n, expected, facts = len(given), len(right), []
    if n != expected:
        facts.append(
            f"{subject_for(name)} {has_for(name)} {count_entries(n)}; expected {is_or_are(expected)} {expected}."
        )
    first = next((i for i in range(min(n, expected)) if not is_same(given[i], right[i])), None)
    if first is not None:
        facts += describe_entry(given[first], right[first], f"{name}[{first}]")
    elif n < expected:
        facts.append(f"{name}[{n}] is missing; expected is {format_entry(right[n])}.")
    elif n > expected:
        facts.append(f"{name}[{expected}] is {format_entry(given[expected])}; nothing more is expected.")
    if n == expected and has_same_entries(given, right):
        facts.append("The entries are the right ones, in another order.")
    return facts


def describe_dict(given: dict[str, Any], right: dict[str, Any], name: str) -> list[str]:
    """Compare two dicts: missing keys, keys too many, the first wrong value."""
    facts = []
    for keys, what in ((right.keys() - given.keys(), "no entry"), (given.keys() - right.keys(), "an unexpected entry")):
        if keys:
            first = next(key for key in (*right, *given) if key in keys)
            others = f" ({len(keys) - 1} more like that)" if len(keys) > 1 else ""
            facts.append(f"{subject_for(name)} {has_for(name)} {what} {format_key(first)}{others}.")
    wrong = [key for key in right if key in given and not is_same(given[key], right[key])]
    if wrong:
        facts += describe_entry(given[wrong[0]], right[wrong[0]], f"{name}[{format_key(wrong[0])}]")
    if 1 < len(wrong) <= 6:
        facts.append(f"Of {len(right)} entries, {len(wrong)} are wrong: {', '.join(map(format_key, wrong))}.")
    return facts


def describe_entry(given: Any, right: Any, name: str) -> list[str]:
    """Compare two entries of a list or a dict: short ones as a whole, others by what differs in them."""
    if is_short(given) and is_short(right):
        numbers = as_array(given), as_array(right)
        if all(number is not None and not number.ndim for number in numbers):
            mine, theirs = format_pair(*numbers)
        else:
            mine, theirs = format_entry(given), format_entry(right)
        return [f"{name} is {mine}; expected is {theirs}."]
    return describe_difference(given, right, name)


def has_same_entries(given: Any, right: Any) -> bool:
    """Check whether two lists of the same length differ only in their order."""
    rest = list(right)
    for entry in given if len(rest) <= 100 else ():
        i = next((i for i, other in enumerate(rest) if is_same(entry, other)), None)
        if i is None:
            return False
        del rest[i]
    return not rest


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


def as_plain(value: Any) -> Any:
    """Convert arrays in lists and dicts to Python's own numbers and lists."""
    if is_sequence(value):
        return type(value)(map(as_plain, value))
    if isinstance(value, dict):
        return {key: as_plain(inner) for key, inner in value.items()}
    return value.tolist() if isinstance(value, (np.ndarray, np.generic)) else value


def is_short(value: Any, depth: int = 1) -> bool:
    """Check for a number, a text, or a list of a few of them."""
    if is_sequence(value):
        return depth > 0 and len(value) <= SHORT and all(is_short(entry, depth - 1) for entry in value)
    array = as_array(value)
    return isinstance(value, str) or (array is not None and not array.ndim)


def format_entry(value: Any) -> str:
    """Format a text, a number, or a list of a few of them; describe anything else."""
    if is_short(value):
        return repr(as_plain(value))
    return f"a {type(value).__name__} of {count_entries(len(value))}" if is_sequence(value) else describe_value(value)


def format_key(key: str) -> str:
    return key if key.startswith("(") else repr(key)


def subject_for(name: str) -> str:
    """Return "The tokens" for a returned value, "tokens[2]" for an entry of it."""
    return name if "[" in name else f"The {name}"


def has_for(name: str) -> str:
    return "have" if verb_for(name) == "are" else "has"


def is_or_are(count: int) -> str:
    return "is" if count == 1 else "are"


def count_entries(count: int) -> str:
    return f"{count} entr{'y' if count == 1 else 'ies'}"


def verb_for(name: str) -> str:
    """Return "are" for a plural name, else "is"."""
    return "are" if name.endswith("s") and not name.endswith("ss") else "is"


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
