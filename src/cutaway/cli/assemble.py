"""cutaway check --assemble"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path

import typer
from rich.table import Table

from cutaway.cli.console import clock, command, out, print_text, say
from cutaway.course.classroom import reason
from cutaway.course.exercise import Exercise
from cutaway.course.feedback import file_failure_lines
from cutaway.course.grader import Grade, grade_file
from cutaway.errors import DataError, MissingExtra
from cutaway.system.machine import cores

TITLES = {
    "reverse": "Reverse a sequence of letters",
    "demo": "Translate English to French (tinyworld)",
}
SAME = 1e-3  # logits of the learner and of the library may differ by this much of the largest


def assemble(found: list[tuple[Exercise, Path]], folder: Path) -> None:
    """Check all exercises; if they are right, build a Transformer of them, train it, and say how to look inside."""
    from cutaway.course.capstone import LAST_EXERCISE, library_of

    exercises = {exercise.number: exercise for exercise, _ in found}
    files = {exercise.number: path for exercise, path in found}
    library = library_of(files) if 1 in files else "numpy"
    numbers = range(1, LAST_EXERCISE[library] + 1)
    missing = [str(number) for number in numbers if number not in files]
    if missing:
        raise DataError(
            f"exercise {', '.join(missing)} is not there. A model needs exercises 1 to {LAST_EXERCISE[library]}: "
            f"{command('check', '--start', 'my-exercises')}"
        )
    if library == "torch" and not find_spec("torch"):
        raise MissingExtra("torch", "torch", what="your model")
    say(f"Checking exercises 1 to {LAST_EXERCISE[library]} ...")
    with ThreadPoolExecutor(cores()) as pool:
        grades = list(pool.map(lambda number: grade_file(exercises[number], files[number]), numbers))
    if not all(grade.is_right for grade in grades):
        print_open_parts(grades)
        raise typer.Exit(1)
    print_text("All parts are correct. This is your Transformer.\n", style="bold")
    train_and_show({number: files[number] for number in numbers}, library, folder)


def print_open_parts(grades: list[Grade]) -> None:
    """Name each part that is not right, with the reason. Nothing is trained."""
    print_text("Not assembled. Correct these parts first:", style="bold")
    for grade in grades:
        number = grade.exercise.number
        if grade.failure:
            print_text(f"exercise {number}: {' '.join(line.strip() for line in file_failure_lines(grade.failure))}", 2)
        for mark in grade.marks:
            if not mark.is_right:
                why = reason(mark) if mark.state == "wrong" else "not begun" if mark.state == "to do" else "not tried"
                print_text(f"exercise {number}, {mark.part.name}: {why}", 2)
    first = next(grade.exercise.number for grade in grades if not grade.is_right)
    say(f"Next:  {command('check', first)}")


def train_and_show(files: dict[int, Path], library: str, folder: Path) -> None:
    from cutaway.cli.progress import TrainingProgress
    from cutaway.course.capstone import SCORED, TASKS, examine, load_functions, prepare_training

    if library == "torch":
        import torch

        torch.set_num_threads(1)  # the matrices are small: a second thread costs more than it gains
    started = time.monotonic()
    with load_functions(files) as functions:
        for task in TASKS:
            run = folder if task == "demo" else folder.with_name(f"{folder.name}-{task}")
            print_text(TITLES[task], style="bold")
            trainer = prepare_training(task, functions, library, run, [TrainingProgress("translation")])
            trainer.run()
            difference = trainer.largest_difference()
            if difference > SAME:
                raise DataError(
                    f"your logits differ from those of Cutaway's model with your weights by {difference:.1%} of the "
                    "largest. All parts passed the grader, so please report this: it should not happen."
                )
            result = examine(trainer)
            print_text(f"exact match {result.exact_match:.1%}, BLEU {result.bleu:.1f} on {SCORED} held-out texts")
            print_text(f"Cutaway's own model with your weights has the same logits (difference {difference:.0e}).\n")
            out.print(example_table(result.examples))
            out.print()
    say(f"Took {clock(time.monotonic() - started)}.")
    say(f"Look inside your model:  {command('explore', folder)}")


def example_table(examples: list[tuple[str, str, str]]) -> Table:
    table = Table(box=None, pad_edge=False)
    for column in ("text", "your greedy search", "your beam search"):
        table.add_column(column)
    for row in examples:
        table.add_row(*row)
    return table
