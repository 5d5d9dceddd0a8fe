"""What the grader found, in words: the mistake, the smallest example that shows it, and a hint."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import Any

import numpy as np

from cutaway.course.differences import as_array, named, same
from cutaway.course.exercise import Case, Mistake
from cutaway.course.grader import Grade, Mark, Shown
from cutaway.course.sandbox import Trouble

FEW = 40  # numbers that are still shown one by one
ADVICE = {
    "EOFError": "There is no keyboard here: a function gets what it needs as arguments.",
    "SystemExit": "A function returns; it does not end the program.",
    "MemoryError": "Something became far too large. Look at the shapes.",
    "RecursionError": "It calls itself without end.",
}

TIPS = {
    "truth value of an array": "(An array is neither true nor false. To ask whether there is one: `is not None`. "
    "To compare number by number: np.maximum, np.where.)",
    "'tuple' object has no attribute": "(Something returns two things: take them apart, as in a, b = f(x).)",
    "'tuple' object is not": "(Something returns two things: take them apart, as in a, b = f(x).)",
}


def feedback(mark: Mark, stronger: bool = False) -> list[str]:
    """Lines about a part that is not right."""
    if mark.state == "to do":
        return ["not begun"]
    if mark.state == "not tried":
        return [mark.trouble.message if mark.trouble else "not tried"]
    if mark.is_right:
        return list(mark.facts)
    lines: list[str] = []
    if mark.explanations:
        lines += explanation_lines(mark)
    if mark.trouble:
        lines += trouble_lines(mark.trouble, mark.part.signature, mark.trouble_case)
    if mark.shown:
        example = shown_lines(mark.shown, mark)
        lines += example
        if mark.explanations and not any(line.startswith("  expected") for line in example):
            lines += mark.facts[:1]  # too large to be printed: the first number that differs, then
    if not mark.explanations:
        lines += mark.facts
        if mark.follows_from:
            lines.append(f"It uses {mark.follows_from}, which is not right yet. Mend that first.")
    elif all(m.name in mark.known for e in mark.explanations for m in e) and not mark.trouble:
        return [*lines, f"Mend {mark.follows_from}, and this will be right too."]
    return lines + hint_lines(mark, stronger)


def explanation_lines(mark: Mark) -> list[str]:
    """Of two mistakes that look the same from outside, either; of two at once, both."""
    if len(mark.explanations) > 1:
        told = [sentence(f"{'either ' if i == 0 else 'or '}{e[0].says}") for i, e in enumerate(mark.explanations)]
        return [*told, "From outside, the two look the same."]
    (mistakes,) = mark.explanations
    told = [sentence(m.says) + (f" (As in {mark.follows_from}.)" if m.name in mark.known else "") for m in mistakes]
    if len(told) == 1:
        return told
    count = {2: "Two", 3: "Three", 4: "Four"}.get(len(told), "Several")
    return [f"{count} mistakes at once:", *(f"{i}. {line}" for i, line in enumerate(told, 1))]


def hint_lines(mark: Mark, stronger: bool) -> list[str]:
    new = unique(m for e in mark.explanations for m in e if m.name not in mark.known)
    return [f"Hint: {m.stronger if stronger else m.hint}" for m in new]


def unique(mistakes: Iterable[Mistake]) -> list[Mistake]:
    return list({m.name: m for m in mistakes}.values())


def trouble_lines(trouble: Trouble, signature: str, case: Case | None) -> list[str]:
    name = signature.partition("(")[0]
    if trouble.kind == "missing":
        near = f" There is {trouble.message}: is that a typing error?" if trouble.message else ""
        return [f"There is no function {name} in the file.{near}"]
    if trouble.kind == "no function":
        return [f"{name} is no function here but of type {trouble.message}: the name is used again further down."]
    if trouble.kind == "signature":
        return [f"It is called as {signature}, but yours is {trouble.message}."]
    kind, _, _ = trouble.message.partition(":")
    lines = [f"It stops with {trouble.message}" if trouble.kind == "error" else sentence(trouble.message)]
    if trouble.line:
        lines.append(f"  line {trouble.line}:  {trouble.source}")
    if trouble.shapes:
        lines.append("  there:  " + ", ".join(f"{n} {size}" for n, size in trouble.shapes.items()))
    if case and trouble.kind == "error":
        lines.append(f"  tried on:  {case.what}")
    return lines + advice(kind, trouble)


def advice(kind: str, trouble: Trouble) -> list[str]:
    told = [ADVICE[kind]] if kind in ADVICE else []
    if "null bytes" in trouble.message or "codec can't decode" in trouble.message:
        told.append("Save the file as UTF-8.")
    told += [tip for sign, tip in TIPS.items() if sign in trouble.message]
    lost_axis = re.search(r"\.(max|sum|mean|amax|var|std)\(", trouble.source) and "keepdim" not in trouble.source
    if lost_axis and "could not be broadcast" in trouble.message:
        told.append("(A sum or a maximum along an axis loses that axis; keepdims=True keeps it.)")
    if ".T" in trouble.source and any(len(size) > 2 for size in trouble.shapes.values()):
        told.append("(.T turns all axes round. To exchange only the last two: swapaxes(-1, -2), or .mT.)")
    return told


def shown_lines(shown: Shown, mark: Mark) -> list[str]:
    """The example, if it is small enough to be looked at."""
    part = mark.part
    lines = [f"Tried on: {shown.case.what}"]
    arguments = dict(zip(part.arguments, shown.case.arguments, strict=True))
    if numbers_in(list(arguments.values())) <= FEW:
        lines += [line for n, v in arguments.items() for line in value_lines(n, v)]
    else:
        lines += [f"  {n} {list(np.shape(v))}" for n, v in arguments.items() if isinstance(v, np.ndarray)]
    for name, given, right in pieces(shown, part.returns):
        if not same(given, right) and numbers_in([given, right]) <= FEW:
            width = len(f"expected {name}")
            lines += value_lines(f"your {name}".ljust(width), given)
            lines += value_lines(f"expected {name}", right)
    return lines


def pieces(shown: Shown, names: tuple[str, ...]) -> list[tuple[str, Any, Any]]:
    """(name, yours, expected) of each thing that is returned; nothing if it is of another kind altogether."""
    if len(names) > 1 and not (isinstance(shown.given, (tuple, list)) and len(shown.given) == len(names)):
        return []
    both = zip(named(shown.given, names), named(shown.right, names), strict=True)
    return [(name, given, right) for (name, given), (_, right) in both if as_array(given) is not None]


def value_lines(name: str, value: Any) -> list[str]:
    if isinstance(value, dict):
        return [line for key, inner in value.items() for line in value_lines(f"{name}[{key!r}]", inner)]
    array = as_array(value)
    if array is None:
        return [f"  {name} = {value}"]
    head = f"  {name} = "
    text = np.array2string(array, precision=4, suppress_small=True, separator=", ", prefix=head)
    return (head + text).split("\n")


def numbers_in(value: Any) -> float:
    """How many numbers there are to look at."""
    if isinstance(value, dict):
        return numbers_in(list(value.values()))
    array = as_array(value)
    if array is not None:
        return array.size
    return sum(map(numbers_in, value)) if isinstance(value, (list, tuple)) else 0 if value is None else math.inf


def sentence(text: str) -> str:
    """With a capital and a full stop; but a name in code, such as d_model or eps, stays as it is."""
    first = text.partition(" ")[0]
    start = text[:1] if re.search(r"[_\d(]", first) or first == "eps" else text[:1].upper()
    return start + text[1:] + ("" if text.endswith((".", "!", "?")) else ".")


def file_trouble(trouble: Trouble) -> list[str]:
    """The file itself cannot be used."""
    return trouble_lines(trouble, "the file", None)


def to_json(grade: Grade) -> dict[str, Any]:
    """For programs."""
    return {
        "exercise": grade.exercise.number,
        "file": str(grade.file),
        "library": grade.library,
        "right": grade.is_right,
        "trouble": file_trouble(grade.trouble) if grade.trouble else [],
        "parts": [
            {
                "name": mark.part.name,
                "state": mark.state,
                "mistakes": [[m.name for m in mistakes] for mistakes in mark.explanations],
                "says": feedback(mark),
            }
            for mark in grade.marks
        ],
    }
