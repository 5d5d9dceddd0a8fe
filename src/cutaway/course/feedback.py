"""Turn a grade into text: the mistake, the smallest failing case, and a hint."""

from __future__ import annotations

import math
import pprint
import re
from collections.abc import Iterable
from typing import Any

import numpy as np

from cutaway.course.differences import as_array, as_plain, format_key, is_same, name_results, with_text_keys
from cutaway.course.exercise import Case, Exercise, Mistake
from cutaway.course.grader import Counterexample, Grade, Mark
from cutaway.course.sandbox import Failure

FEW = 40  # arrays with at most this many numbers are printed
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
    "does not require grad": "(The functions of cutaway.course.given return tensors without gradients. For autograd, "
    "take PyTorch's own, such as torch.softmax, or your own of an earlier exercise.)",
}


def feedback(mark: Mark, level: int = 0) -> list[str]:
    """Return lines of feedback for one part. Level 0 has hints, 1 stronger ones, 2 also the line of thought."""
    if mark.state == "to do":
        return ["not begun"]
    if mark.state == "not tried":
        return [mark.failure.message if mark.failure else "not tried"]
    if mark.is_right:
        return []
    if mark.imported:
        return [mark.imported]
    lines: list[str] = []
    if mark.explanations:
        lines += explanation_lines(mark)
    if mark.failure:
        lines += failure_lines(mark.failure, mark.part.signature, mark.failed_case)
    if mark.counterexample:
        example = counterexample_lines(mark.counterexample, mark)
        lines += example
        if mark.explanations and not any(line.startswith("  expected") for line in example):
            lines += mark.facts[:1]  # too large to print: name the first number that differs
    if not mark.explanations:
        lines += [*mark.facts, *filter(None, [mark.violation])]
        if mark.follows_from:
            lines.append(f"It uses {mark.follows_from}, which is not right yet. Correct that first.")
    elif all(m.name in mark.known for e in mark.explanations for m in e) and not mark.failure:
        return [*lines, f"Correct {mark.follows_from}, and this will be right too."]
    return lines + hint_lines(mark, level)


def explanation_lines(mark: Mark) -> list[str]:
    """Name the mistakes: either of two that cannot be distinguished, or all of a set."""
    if len(mark.explanations) > 1:
        lines = [sentence(f"{'either ' if i == 0 else 'or '}{e[0].message}") for i, e in enumerate(mark.explanations)]
        return [*lines, "From outside, the two look the same."]
    (mistakes,) = mark.explanations
    lines = [
        sentence(m.message) + (f" (As in {mark.known[m.name]}.)" if m.name in mark.known else "") for m in mistakes
    ]
    if len(lines) == 1:
        return lines
    count = {2: "Two", 3: "Three", 4: "Four"}.get(len(lines), "Several")
    return [f"{count} mistakes at once:", *(f"{i}. {line}" for i, line in enumerate(lines, 1))]


def hint_lines(mark: Mark, level: int) -> list[str]:
    """Return the hints of the named mistakes; if none was named, those of the part, unless a called part is wrong."""
    named = unique(m for e in mark.explanations for m in e if m.name not in mark.known)
    has_wrong_result = mark.counterexample or mark.violation or mark.failure
    part = (mark.part,) if has_wrong_result and not mark.explanations and not mark.follows_from else ()
    hints = [about.strong_hint if level else about.hint for about in (*named, *part)]
    has_thought = level > 1 and mark.part.thought and (hints or not mark.follows_from)
    thought = [f"Line of thought: {mark.part.thought}"] if has_thought else []
    return [f"Hint: {hint}" for hint in hints if hint] + thought


def unique(mistakes: Iterable[Mistake]) -> list[Mistake]:
    return list({m.name: m for m in mistakes}.values())


def failure_lines(failure: Failure, signature: str, case: Case | None) -> list[str]:
    name = signature.partition("(")[0]
    if failure.kind == "missing":
        near = f" There is {failure.message}: is that a typing error?" if failure.message else ""
        return [f"There is no function {name} in the file.{near}"]
    if failure.kind == "no function":
        return [f"{name} is no function here but of type {failure.message}: the name is used again further down."]
    if failure.kind == "signature":
        return [f"It is called as {signature}, but yours is {failure.message}."]
    kind, _, _ = failure.message.partition(":")
    lines = [f"It stops with {failure.message}" if failure.kind == "error" else sentence(failure.message)]
    if failure.line:
        lines.append(f"  line {failure.line}:  {failure.source}")
    if failure.shapes:
        lines.append("  there:  " + ", ".join(f"{n} {size}" for n, size in failure.shapes.items()))
    if case and failure.kind == "error":
        lines.append(f"  tried on:  {case.description}")
    return lines + advice(kind, failure)


def advice(kind: str, failure: Failure) -> list[str]:
    lines = [ADVICE[kind]] if kind in ADVICE else []
    if "null bytes" in failure.message or "codec can't decode" in failure.message:
        lines.append("Save the file as UTF-8.")
    lines += [tip for sign, tip in TIPS.items() if sign in failure.message]
    lost_axis = re.search(r"\.(max|sum|mean|amax|var|std)\(", failure.source) and "keepdim" not in failure.source
    if lost_axis and "could not be broadcast" in failure.message:
        lines.append("(A sum or a maximum along an axis loses that axis; keepdims=True keeps it.)")
    if ".T" in failure.source and any(len(size) > 2 for size in failure.shapes.values()):
        lines.append("(.T turns all axes round. To exchange only the last two: swapaxes(-1, -2), or .mT.)")
    return lines


def counterexample_lines(counterexample: Counterexample, mark: Mark) -> list[str]:
    """Print the case and the results if they are small enough."""
    part = mark.part
    lines = [f"Tried on: {counterexample.case.description}"]
    arguments = dict(zip(part.arguments, counterexample.case.arguments, strict=True))
    if numbers_in(list(arguments.values())) <= FEW:
        lines += [line for n, v in arguments.items() for line in value_lines(n, v)]
    else:
        lines += [f"  {n} {list(np.shape(v))}" for n, v in arguments.items() if isinstance(v, np.ndarray)]
    for name, given, right in pieces(counterexample, part.returns):
        if not is_same(given, right) and numbers_in([given, right]) <= FEW:
            width = len(f"expected {name}")
            lines += value_lines(f"your {name}".ljust(width), given)
            lines += value_lines(f"expected {name}", right)
    return lines


def pieces(counterexample: Counterexample, names: tuple[str, ...]) -> list[tuple[str, Any, Any]]:
    """Return (name, given, expected) for each returned value; empty if the type is wrong."""
    if len(names) > 1 and not (
        isinstance(counterexample.given, (tuple, list)) and len(counterexample.given) == len(names)
    ):
        return []
    both = zip(name_results(counterexample.given, names), name_results(counterexample.right, names), strict=True)
    return [
        (name, given, right)
        for (name, given), (_, right) in both
        if as_array(given) is not None or isinstance(right, (str, list, tuple, dict))
    ]


def value_lines(name: str, value: Any) -> list[str]:
    head = f"  {name} = "
    if not is_plain(value):
        if isinstance(value, dict):
            return [line for key, inner in value.items() for line in value_lines(f"{name}[{key!r}]", inner)]
        if isinstance(value, (list, tuple)) and as_array(value) is None:
            return [line for i, inner in enumerate(value) for line in value_lines(f"{name}[{i}]", inner)]
    array = as_array(value)
    if array is None:
        text = format_plain(value, width=max(40, 100 - len(head)))
        return (head + text.replace("\n", "\n" + " " * len(head))).split("\n")
    text = np.array2string(array, precision=4, suppress_small=True, separator=", ", prefix=head)
    return (head + text).split("\n")


def is_plain(value: Any) -> bool:
    """Check for texts and numbers, and lists and dicts of them: no arrays."""
    if isinstance(value, dict):
        return all(map(is_plain, value.values()))
    return all(map(is_plain, value)) if isinstance(value, (list, tuple)) else np.ndim(value) == 0


def format_plain(value: Any, width: int) -> str:
    """Format texts, lists and dicts as Python does, in lines of this width."""
    if isinstance(value, dict):
        lines = [""]
        for key, inner in with_text_keys(value).items():
            entry = f"{format_key(key)}: {as_plain(inner)!r}, "
            lines += [""] if len(lines[-1] + entry) > width else []
            lines[-1] += entry
        return "{" + "\n ".join(line.rstrip() for line in lines).removesuffix(",") + "}"
    value = as_plain(value)
    is_list = isinstance(value, (list, tuple))
    return pprint.pformat(value, width=width, compact=True, sort_dicts=False) if is_list else repr(value)


def numbers_in(value: Any) -> float:
    """Count the numbers in a nested value. A text counts as one for each ten letters."""
    if isinstance(value, dict):
        return numbers_in(list(value.values()))
    if isinstance(value, str):
        return 1 + len(value) // 10
    array = as_array(value)
    if array is not None:
        return array.size
    return sum(map(numbers_in, value)) if isinstance(value, (list, tuple)) else 0 if value is None else math.inf


def sentence(text: str) -> str:
    """Add a capital and a full stop; a code name such as d_model, eps or x keeps its case."""
    first = text.partition(" ")[0]
    is_code = re.search(r"[_\d(]", first) or first == "eps" or (len(first) == 1 and first != "a")
    start = text[:1] if is_code else text[:1].upper()
    return start + text[1:] + ("" if text.endswith((".", "!", "?")) else ".")


def explain_solution(exercise: Exercise, source: str) -> str:
    """Replace each comment `# mistakes: NAME, NAME` of a solution by what the grader says about these mistakes.

    Several parts may have a mistake of the same name. The function above the comment decides.
    """
    known = {(part.name, mistake.name): mistake for part in exercise.parts for mistake in part.mistakes}
    lines, function = [], ""
    for line in source.split("\n"):
        if found := re.match(r"def (\w+)", line):
            function = found[1]
        if found := re.match(r"( *)# mistakes: (.+)$", line):
            lines.append(f"{found[1]}# Common mistakes here:")
            for name in map(str.strip, found[2].split(",")):
                others = [mistake for (_, other), mistake in known.items() if other == name]
                lines.append(f"{found[1]}#   - {sentence(known.get((function, name), others[0]).message)}")
        else:
            lines.append(line)
    return "\n".join(lines)


def file_failure_lines(failure: Failure) -> list[str]:
    """Describe why the whole file failed."""
    return failure_lines(failure, "the file", None)


def to_json(grade: Grade) -> dict[str, Any]:
    """Return the grade as JSON data."""
    return {
        "exercise": grade.exercise.number,
        "file": str(grade.file),
        "library": grade.library,
        "right": grade.is_right,
        "trouble": file_failure_lines(grade.failure) if grade.failure else [],
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
