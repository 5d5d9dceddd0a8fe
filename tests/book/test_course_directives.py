"""The functions behind the directives `exercise` and `mistakes`, and the reader of lessons. No page is built here."""

import ast
import sys
from pathlib import Path

import pytest

from cutaway.cli.lesson import find_lessons
from cutaway.course.exercises import all_exercises, get_exercise

pytest.importorskip("sphinx")
jupytext = pytest.importorskip("jupytext")

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "book/_ext"))
try:
    import course
    import lesson_reader
finally:
    sys.path.remove(str(ROOT / "book/_ext"))

EXERCISES = pytest.mark.parametrize("exercise", all_exercises(), ids=lambda exercise: exercise.name)


def texts(statement):
    return [block.text for part in (statement, *statement.functions) for block in part.blocks]


@EXERCISES
def test_a_statement_has_every_function_with_the_arguments_that_the_grader_uses(exercise):
    statement = course.read_statement(exercise)
    assert statement.title.startswith(f"Exercise {exercise.number}. ")
    assert statement.reference
    if exercise.number <= 5:
        assert statement.reference.startswith("the paper, ")
        assert "lesson" in statement.reference
    names = {part.name for part in exercise.parts}
    functions = [function for function in statement.functions if function.name in names]  # others are ready made
    assert [function.name for function in functions] == [part.name for part in exercise.parts]
    for function, part in zip(functions, exercise.parts, strict=True):
        assert function.signature.replace("=None", "") == part.signature
        assert function.blocks


@EXERCISES
def test_a_statement_has_all_words_of_the_docstrings_and_no_line_of_the_solution(exercise):
    statement = course.read_statement(exercise)
    module = ast.parse((ROOT / "exercises" / exercise.file).read_text("utf-8"))
    functions = [node for node in module.body if isinstance(node, ast.FunctionDef)]
    words = [word for node in (module, *functions) for word in ast.get_docstring(node).split()]
    head = [*statement.title.split(), *f"({statement.reference})".split()]
    shown = [*head, *(word for text in texts(statement) for word in text.split())]
    assert [word.strip("()") for word in shown] == [word.strip("()") for word in words]

    solution = ast.parse((ROOT / "exercises/solutions" / exercise.file).read_text("utf-8"))
    bodies = [node.body[1:] for node in solution.body if isinstance(node, ast.FunctionDef)]
    everything = "\n".join([statement.given, *texts(statement)])
    assert all(ast.unparse(line) not in everything for body in bodies for line in body)


def test_prose_is_joined_and_layout_is_kept():
    blocks = course.split_blocks(
        "One sentence\nin two lines.\n\n    y = x    \n\n      z = y                equation 2\n\n"
        "x: [B, T]\nids, pad: numbers\n\n->  [B, T]\n\nIt is `x`: the same."
    )
    assert [(block.text, block.is_preformatted) for block in blocks] == [
        ("One sentence in two lines.", False),
        ("y = x    \n\n  z = y    (equation 2)", True),
        ("x: [B, T]\nids, pad: numbers\n\n->  [B, T]", True),
        ("It is `x`: the same.", False),
    ]


@EXERCISES
def test_every_mistake_of_the_grader_is_in_the_table_once(exercise):
    rows = course.named_mistakes(exercise, [])
    messages = [message for _, message in rows]
    assert len(messages) == len(set(messages))
    found = {(name, message) for names, message in rows for name in names}
    assert found == {(part.name, course.sentence(m.message)) for part in exercise.parts for m in part.mistakes}


def test_the_table_can_be_restricted_to_some_functions():
    rows = course.named_mistakes(get_exercise(1), ["causal_mask"])
    causal_mask = next(part for part in get_exercise(1).parts if part.name == "causal_mask")
    assert rows == [(["causal_mask"], course.sentence(m.message)) for m in causal_mask.mistakes]
    table = course.mistake_table(rows)
    assert table.astext().count("causal_mask") == len(rows)
    with pytest.raises(LookupError, match=r"no function 'sofmax'. It has: dot, weighted_average, softmax"):
        course.named_mistakes(get_exercise(1), ["sofmax"])


@pytest.mark.parametrize(
    ("number", "message"),
    [
        ("0", "Choose one of: 1, 2, 3, 4, 5"),
        ("11", "unknown exercise 11"),
        ("one", "'one' is not the number"),
        ("", "not"),
    ],
)
def test_an_unknown_exercise_is_an_error(number, message):
    with pytest.raises(LookupError, match=message):
        course.find_exercise(number)
    assert course.find_exercise("5") is get_exercise(5)


@pytest.mark.parametrize("path", find_lessons(), ids=lambda path: path.stem)
def test_a_lesson_keeps_its_cells_and_folds_the_code_of_every_figure(path):
    text = path.read_text("utf-8")
    cells = lesson_reader.read_lesson(text).cells
    added = [cell for cell in cells if "remove-cell" in cell.metadata.get("tags", [])]
    assert [cell.source for cell in added] == [lesson_reader.PRINT_ONLY]
    original = jupytext.reads(text, fmt="py:percent").cells
    assert [cell.source for cell in cells if cell not in added] == [cell.source for cell in original]
    folded = [cell for cell in cells if "hide-input" in cell.metadata.get("tags", [])]
    assert len(folded) == text.count("\nsave(figure, ") >= 3
    for cell in folded:
        assert "save(figure, " in cell.source
        assert len(cell.metadata["mystnb"]["image"]["alt"]) > len("Figure: ")


def test_the_alternative_text_is_the_titles_or_the_heading():
    lesson = (
        "# %% [markdown]\n# # 1. A\n#\n# ## Part two\n\n# %%\nprint(1)\n\n# %%\naxes.set_title('b')\n"
        "figure.suptitle('a\\nc')\nsave(figure, 'x')\n\n# %%\naxes.set_title(name)\nsave(figure, 'y')\nassert True\n"
    )
    cells = lesson_reader.read_lesson(lesson).cells
    alts = [cell.metadata.get("mystnb", {}).get("image", {}).get("alt") for cell in cells]
    assert alts == [None, None, None, "Figure: a c. b", "Figure: Part two"]
