"""cutaway check [N]"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from cutaway.cli.console import command, out, print_json, say
from cutaway.course.exercise import Exercise
from cutaway.course.exercises import all_exercises, get_exercise
from cutaway.course.feedback import feedback, file_failure_lines, to_json
from cutaway.course.grader import Grade, Mark, grade_file
from cutaway.course.progress import note_exercises, note_progress, read_exercises
from cutaway.course.sandbox_child import detect_library, imported_exercises
from cutaway.errors import DataError
from cutaway.runs.files import write_text
from cutaway.system.resources import shipped

SIGNS = {"right": "[green]✓[/]", "wrong": "[red]✗[/]", "to do": "·", "not tried": "?"}
LIBRARIES = {"numpy": "NumPy arrays", "torch": "PyTorch tensors"}
LINES = 20  # of what a learner's code prints
EVERY = 0.3  # seconds between two looks at a file that is watched


def check(
    which: Annotated[
        str | None, typer.Argument(help="The number of an exercise, or your file. None: all of yours.", metavar="[N]")
    ] = None,
    hint: Annotated[bool, typer.Option("--hint", help="Give stronger hints.")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Check again each time the file is saved.")] = False,
    start: Annotated[
        Path | None, typer.Option(help="Copy the exercises into this folder, to work on them.", metavar="DIR")
    ] = None,
    solution: Annotated[bool, typer.Option("--solution", help="Print our solution. Think first.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """Build a Transformer yourself: five exercises, and a teacher who tells you which mistake it is.

    Examples:  cutaway check --start my-exercises

               cutaway check 1

               cutaway check 1 --watch

    Write with NumPy or PyTorch, as you like.
    """
    if start is not None:
        return start_exercises(start)
    if solution:
        return print_solution(number_of(require(which, "--solution")))
    if watch:
        return watch_file(require(which, "--watch"), hint)
    grades = [grade_file(*exercise_and_file(which))] if which else [grade_file(e, f) for e, f in files_of_all()]
    for grade in grades:
        remember(grade)
    if as_json:
        print_json([to_json(grade) for grade in grades])
    elif which:
        show(grades[0], hint, which)
    else:
        show_all(grades)
    if not grades or not all(grade.is_right for grade in grades):
        raise typer.Exit(1)
    return None


def require(which: str | None, option: str) -> str:
    if which is None:
        raise DataError(f"{option} of which exercise? Give its number, 1 to {len(all_exercises())}.")
    return which


# --- whose file? -------------------------------------------------------------------------------------------------


def number_of(which: str) -> int:
    """3, or the 3 in exercise_03_positional_encoding.py."""
    if which.isdigit():
        return get_exercise(int(which)).number
    for exercise in all_exercises():
        if Path(which).name.startswith(f"exercise_{exercise.number:02d}"):
            return exercise.number
    raise DataError(
        f"{which!r} is neither the number of an exercise (1 to {len(all_exercises())}) nor a file whose name begins "
        "with exercise_01, say. Give one of them."
    )


def exercise_and_file(which: str) -> tuple[Exercise, Path]:
    exercise = get_exercise(number_of(which))
    path = find_file(exercise) if which.isdigit() else Path(which)
    if path is None:
        raise DataError(
            f"{exercise.file} is neither here nor in exercises/. Copy the exercises out with: "
            f"{command('check', '--start', 'my-exercises')}"
        )
    if not path.is_file():
        raise DataError(f"there is no file {str(path)!r}. Give the number of an exercise, or a file that is there.")
    return exercise, path


def find_file(exercise: Exercise) -> Path | None:
    """Here; where they were copied to; or in a folder `exercises` below."""
    for folder in (Path(), read_exercises(), Path("exercises")):
        if folder is not None and (folder / exercise.file).is_file():
            return folder / exercise.file
    return None


def files_of_all() -> list[tuple[Exercise, Path]]:
    found = [(exercise, find_file(exercise)) for exercise in all_exercises()]
    return [(exercise, path) for exercise, path in found if path is not None]


def start_exercises(folder: Path) -> None:
    """Copy what is not there yet; what is there may be somebody's work."""
    if folder.is_file():
        raise DataError(f"{str(folder)!r} is a file. Give a folder, new or old.")
    kept = []
    for exercise in all_exercises():
        target = folder / exercise.file
        if target.exists():
            kept.append(exercise.file)
        else:
            write_text(target, (shipped("exercises") / exercise.file).read_text(encoding="utf-8"))
    note_exercises(folder.resolve())
    if kept:
        say(f"Left as they were: {', '.join(kept)}.")
    say(f"The exercises are in {folder}. Open {folder / get_exercise(1).file} and write. Then:")
    say(f"  {command('check', 1)}")


def print_solution(number: int) -> None:
    exercise = get_exercise(number)
    for path in sorted((shipped("exercises") / "solutions").glob(f"{Path(exercise.file).stem}*.py")):
        out.print(path.read_text(encoding="utf-8"), markup=False)


# --- what came of it ---------------------------------------------------------------------------------------------


def remember(grade: Grade) -> None:
    note_progress(Path(grade.exercise.file).stem, sum(mark.is_right for mark in grade.marks))


def show(grade: Grade, stronger: bool, which: str) -> None:
    exercise = grade.exercise
    written = f"{shown_path(grade.file)}, with {LIBRARIES[grade.library]}"
    out.print(f"[bold]Exercise {exercise.number}. {exercise.title}[/]    {escape(written)}\n")
    if grade.failure:
        for line in file_failure_lines(grade.failure):
            out.print(f"  {escape(line)}")
    for other in imported_exercises(grade.file):
        if (theirs := detect_library(other)) != grade.library:
            note = f"Note: {other.name} is written for {LIBRARIES[theirs]}, and this file is given "
            out.print(f"  {note}{LIBRARIES[grade.library]}: what it takes from there may fail.\n", markup=False)
    for mark in grade.marks:
        show_mark(mark, stronger)
    if grade.printed:
        out.print("\nYour code printed:")
        lines = grade.printed.rstrip("\n").split("\n")
        for line in lines[:LINES] + ["..."] * (len(lines) > LINES):
            out.print(f"  {line}", markup=False)
    out.print()
    out.print(summary(grade, stronger, which))


def show_mark(mark: Mark, stronger: bool) -> None:
    lines = feedback(mark, stronger)
    if mark.state in ("to do", "not tried"):
        out.print(f"  {SIGNS[mark.state]} {escape(mark.part.signature)}    {escape(lines[0])}")
        return
    out.print(f"  {SIGNS[mark.state]} [bold]{escape(mark.part.signature)}[/]")
    for line in lines:
        style = "cyan" if line.startswith("Hint: ") else None
        out.print(f"      {line}", markup=False, style=style)


def summary(grade: Grade, stronger: bool, which: str) -> str:
    right, whole = sum(mark.is_right for mark in grade.marks), len(grade.exercise.parts)
    number = grade.exercise.number
    if grade.is_right:
        last = number == len(all_exercises())
        after = f"That was the last one. Next: {command('lab')}" if last else f"Next: {command('check', number + 1)}"
        return f"[green]All right.[/] {after}"
    if all(mark.state == "to do" for mark in grade.marks) and grade.marks:
        return f"Begin with {grade.marks[0].part.name} in {escape(shown_path(grade.file))}."
    more = "" if stronger or not any(m.explanations for m in grade.marks) else "    A stronger hint: "
    return f"{right} of {whole} parts are right." + (f"{more}{command('check', which, '--hint')}" if more else "")


def show_all(grades: Sequence[Grade]) -> None:
    checked = {grade.exercise.number: grade for grade in grades}
    table = Table(box=None, pad_edge=False)
    for column in ("", "exercise", "right", "next"):
        table.add_column(column)
    for exercise in all_exercises():
        grade = checked.get(exercise.number)
        right = sum(mark.is_right for mark in grade.marks) if grade else 0
        missing = next((m.part.name for m in grade.marks if not m.is_right), "") if grade else "not started"
        missing = "the file cannot be read by Python" if grade and grade.failure else missing
        table.add_row(str(exercise.number), exercise.title, f"{right} of {len(exercise.parts)}", missing)
    out.print(table)
    if not grades:
        say(f"Begin with:  {command('check', '--start', 'my-exercises')}")
        return
    say(f"Checked in {shown_path(grades[0].file.parent)}.")
    first_open = next((g for g in grades if not g.is_right), None)
    say(f"Next:  {command('check', first_open.exercise.number)}" if first_open else f"Next:  {command('lab')}")


def shown_path(path: Path) -> str:
    """From here, if it is below."""
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)


def watch_file(which: str, stronger: bool) -> None:
    """Check at each save, until Ctrl-C."""
    exercise, path = exercise_and_file(which)
    seen: tuple[float, int] | None = None
    try:
        while True:
            now = signature_of(path)
            if now is not None and now != seen:
                seen = now
                grade = grade_file(exercise, path)
                remember(grade)
                if out.is_terminal:
                    out.clear()
                show(grade, stronger, which)
                say(f"Watching {path}. Ctrl-C ends.")
            time.sleep(EVERY)
    except KeyboardInterrupt:
        say("Stopped.")


def signature_of(path: Path) -> tuple[float, int] | None:
    """None while an editor is replacing the file."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime, status.st_size
