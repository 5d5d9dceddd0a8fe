"""The grader names mistakes in any coding style, accepts every right answer, and does not guess."""

import importlib
import itertools
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from cutaway.course import sandbox_child
from cutaway.course.differences import is_same
from cutaway.course.exercises import all_exercises
from cutaway.course.grader import MIN_EVIDENCE, count_differences, grade, reference_answer
from cutaway.course.sandbox import SandboxResult, parse_failure, parse_outcome
from cutaway.course.values import pack
from cutaway.system.resources import shipped_folder

pytestmark = pytest.mark.filterwarnings("ignore")  # learners' code may overflow
EXERCISES = {e.number: e for e in all_exercises()}
ANSWERS = Path(__file__).parent / "answers"
sys.path.insert(0, str(ANSWERS))


def right_answer(number, style):
    """Return a right answer: the shipped solution in NumPy or PyTorch, or the one with loops for the tests."""
    name = Path(EXERCISES[number].file).stem
    files = {
        "numpy": shipped_folder("exercises") / "solutions" / f"{name}.py",
        "torch": shipped_folder("exercises") / "solutions" / f"{name}_torch.py",
        "loops": ANSWERS / f"exercise_{number:02d}_loops.py",
    }
    return files[style].read_text(encoding="utf-8")


def edited_answer(number, style, edits):
    """Apply edits to a right answer. The style may have a note after a comma: "numpy, the minimum"."""
    text = right_answer(number, style.partition(",")[0])
    for old, new in edits:
        assert old in text, f"{old!r} is not in the answer in {style}"
        text = text.replace(old, new, 1)
    return text


@cache
def without_properties(number):
    """Return the exercise with the compared cases only. A known mistake is named from these alone."""
    exercise = EXERCISES[number]
    return replace(exercise, parts=tuple(replace(part, properties=()) for part in exercise.parts))


@cache
def packed_cases(part):
    return [pack(case.arguments) for case in part.all_cases]


def grade_text(number, text, tmp_path, with_properties=True):
    """Grade in this process, because it is faster. (test_check.py and the slow tests use the sandbox.)"""
    exercise, path = EXERCISES[number], tmp_path / EXERCISES[number].file
    exercise = exercise if with_properties else without_properties(number)
    path.write_text(text, encoding="utf-8")
    library = sandbox_child.detect_library(path)
    before = list(sys.path)
    try:
        module, failure = sandbox_child.load_module(path, library)
        parts = {}
        for part in exercise.parts if module else ():
            outcomes = sandbox_child.try_part(module, part.name, packed_cases(part), library)
            parts[part.name] = [parse_outcome(outcome) for outcome in outcomes]
    finally:
        sys.path[:] = before
        sys.modules.pop(path.stem, None)
    return grade(exercise, path, SandboxResult(library, parts, parse_failure(failure)))


def edits_of(number):
    return importlib.import_module(f"edits_{number:02d}")


ALL_EDITS = [
    pytest.param(number, part, mistake, style, edits, id=f"{number}-{part}-{mistake}-{style}")
    for number in EXERCISES
    for (part, mistake), ways in edits_of(number).EDITS.items()
    for style, edits in ways.items()
]
ALL_UNLISTED = [
    pytest.param(number, part, style, edits, id=f"{number}-{part}-{style}-{i}")
    for number in EXERCISES
    for i, (part, style, edits) in enumerate(edits_of(number).UNLISTED)
]


@pytest.mark.parametrize(("number", "part", "mistake", "style", "edits"), ALL_EDITS)
def test_a_mistake_is_named(number, part, mistake, style, edits, tmp_path):
    result = grade_text(number, edited_answer(number, style, edits), tmp_path, with_properties=False)
    mark = next(m for m in result.marks if m.part.name == part)
    assert [[m.name for m in e] for e in mark.explanations] == [[mistake]], (mark.facts, mark.failure)
    assert mark.state == "wrong"
    assert mark.counterexample is not None
    for other in result.marks:  # all other parts are right, unless they call this one; then nothing else is named
        if other is not mark and not other.is_right:
            assert other.follows_from, (other.part.name, other.facts)
            if number not in (7, 8):  # some of their mistakes have another name in a part that calls this one
                assert {m.name for e in other.explanations for m in e} <= {mistake}, other.part.name


@pytest.mark.parametrize(("number", "part", "style", "edits"), ALL_UNLISTED)
def test_an_unknown_mistake_is_not_named(number, part, style, edits, tmp_path):
    mark = next(
        m for m in grade_text(number, edited_answer(number, style, edits), tmp_path).marks if m.part.name == part
    )
    assert mark.state == "wrong"
    assert mark.explanations == ()
    assert mark.facts or mark.failure or mark.violation


@pytest.mark.parametrize("style", ["numpy", "torch", "loops"])
@pytest.mark.parametrize("number", EXERCISES)
def test_right_answers_in_three_styles_are_accepted(number, style, tmp_path):
    result = grade_text(number, right_answer(number, style), tmp_path)
    assert result.is_right, [(m.part.name, m.facts, m.failure) for m in result.marks if not m.is_right]
    assert result.library == ("torch" if style == "torch" else "numpy")


@pytest.mark.parametrize("number", EXERCISES)
def test_a_stub_is_to_do(number, tmp_path):
    stub = (shipped_folder("exercises") / EXERCISES[number].file).read_text(encoding="utf-8")
    result = grade_text(number, stub, tmp_path)
    assert {m.state for m in result.marks} == {"to do"}
    assert not result.is_right


def test_every_mistake_is_tested_in_two_styles():
    for number, exercise in EXERCISES.items():
        edits = edits_of(number).EDITS
        listed = {(part.name, mistake.name) for part in exercise.parts for mistake in part.mistakes}
        # mistakes of a called part are tested there
        tried = {pair for pair, ways in edits.items() if len({style.partition(",")[0] for style in ways}) >= 2}
        names_tried = {name for _, name in tried}
        assert {name for _, name in listed} <= names_tried, {name for _, name in listed} - names_tried
        assert set(edits) <= listed, set(edits) - listed
    assert len({name for n in EXERCISES for _, name in edits_of(n).EDITS}) >= 40


PARTS = [pytest.param(part, id=f"{e.number}-{part.name}") for e in EXERCISES.values() for part in e.parts]


@pytest.mark.parametrize("part", PARTS)
def test_the_cases_distinguish_all_mistakes(part):
    """No two mistakes have the same results, and none has the right results."""

    def answers(switch):
        return [reference_answer(part, case, frozenset([switch] if switch else [])) for case in part.cases]

    right = answers("")
    results = {(m.name, switch): answers(switch) for m in part.mistakes for switch in m.switches}
    for (name, switch), mine in results.items():
        differences = [count_differences(p, r, True) for p, r in zip(mine, right, strict=True) if p is not None]
        assert sum(differences) >= MIN_EVIDENCE, f"{name} ({switch}) is too close to the right answer"
    for one, other in itertools.combinations(results, 2):
        if one[0] != other[0]:
            alike = all(same_or_crashed(a, b) for a, b in zip(results[one], results[other], strict=True))
            assert not alike, f"{one} looks like {other}"


def same_or_crashed(a, b):
    return a is b if a is None or b is None else is_same(a, b)
