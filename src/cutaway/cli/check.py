"""cutaway check [N]"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from cutaway.cli.completion import complete_exercises
from cutaway.cli.console import command, out, print_json, print_text, say
from cutaway.cli.options import Json
from cutaway.course.exercise import Exercise
from cutaway.course.exercises import all_exercises, get_exercise
from cutaway.course.feedback import explain_solution, feedback, file_failure_lines, to_json
from cutaway.course.grader import Grade, Mark, grade_file
from cutaway.course.progress import read_exercise_folder, save_exercise_folder, save_progress
from cutaway.course.sandbox_child import detect_library, imported_exercises
from cutaway.errors import DataError
from cutaway.runs.files import write_text
from cutaway.system.resources import shipped_folder

SIGNS = {"right": "[green]✓[/]", "wrong": "[red]✗[/]", "to do": "·", "not tried": "?"}
LIBRARIES = {"numpy": "NumPy arrays", "torch": "PyTorch tensors"}
MAX_LINES = 20  # of the learner's own output
POLL_SECONDS = 0.3  # of --watch


def check(
    which: Annotated[
        str | None,
        typer.Argument(
            help="The number of an exercise, or your file. Default: all.",
            metavar="N",
            autocompletion=complete_exercises,
        ),
    ] = None,
    start: Annotated[Path | None, typer.Option(help="Copy the exercises into this folder.", metavar="FOLDER")] = None,
    hint: Annotated[bool, typer.Option("--hint", help="Print stronger hints.")] = False,
    think: Annotated[bool, typer.Option("--think", help="Print the line of thought that leads to a solution.")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Check again each time the file is saved.")] = False,
    solution: Annotated[bool, typer.Option("--solution", help="Print the solutions, explained.")] = False,
    assemble: Annotated[
        bool, typer.Option("--assemble", help="Build a Transformer of your solutions, and train it.")
    ] = False,
    run: Annotated[Path, typer.Option(help="The run folder of --assemble.", metavar="RUN")] = Path("runs/mine"),
    as_json: Json = False,
) -> None:
    """Check your solutions of the exercises, and name the mistakes.

    Examples:  cutaway check --start my-exercises
               cutaway check 1
               cutaway check 1 --watch
               cutaway check --assemble

    There are ten exercises. Solve them with NumPy or PyTorch.
    """
    level = 2 if think else 1 if hint else 0
    if start is not None:
        return start_exercises(start)
    if assemble:
        from cutaway.cli.assemble import assemble as assemble_model

        return assemble_model(list_files(), run)
    if solution:
        return print_solution(exercise_number(require_exercise(which, "--solution")))
    if watch:
        return watch_file(require_exercise(which, "--watch"), level)
    files = [find_exercise(which)] if which else list_files()
    grades = [grade_file(exercise, path) for exercise, path in files]
    for grade in grades:
        record_progress(grade)
    if as_json:
        print_json([to_json(grade) for grade in grades])
    elif which:
        print_grade(grades[0], level, which)
    else:
        print_overview(grades)
    if not grades or not all(grade.is_right for grade in grades):
        raise typer.Exit(1)
    return None


def require_exercise(which: str | None, option: str) -> str:
    if which is None:
        raise DataError(f"{option} needs an exercise. Give its number, 1 to {len(all_exercises())}.")
    return which


# --- find the file -----------------------------------------------------------------------------------------------


def exercise_number(which: str) -> int:
    """3 for "3" and for "exercise_03_positional_encoding.py"."""
    if which.isdigit():
        return get_exercise(int(which)).number
    for exercise in all_exercises():
        if Path(which).name.startswith(f"exercise_{exercise.number:02d}"):
            return exercise.number
    raise DataError(
        f"{which!r} is neither the number of an exercise (1 to {len(all_exercises())}) nor a file whose name starts "
        "with exercise_ and a number, such as exercise_01."
    )


def find_exercise(which: str) -> tuple[Exercise, Path]:
    exercise = get_exercise(exercise_number(which))
    path = find_file(exercise) if which.isdigit() else Path(which)
    if path is None:
        raise DataError(
            f"{exercise.file} is neither in this folder nor in exercises/. Copy the exercises with: "
            f"{command('check', '--start', 'my-exercises')}"
        )
    if not path.is_file():
        raise DataError(f"there is no file {str(path)!r}. Give the number of an exercise, or an existing file.")
    return exercise, path


def find_file(exercise: Exercise) -> Path | None:
    """In this folder, in the folder of --start, or in exercises/."""
    for folder in (Path(), read_exercise_folder(), Path("exercises")):
        if folder is not None and (folder / exercise.file).is_file():
            return folder / exercise.file
    return None


def list_files() -> list[tuple[Exercise, Path]]:
    found = [(exercise, find_file(exercise)) for exercise in all_exercises()]
    return [(exercise, path) for exercise, path in found if path is not None]


def start_exercises(folder: Path) -> None:
    """Copy the exercises. Files that exist already are kept, because they may contain answers."""
    if folder.is_file():
        raise DataError(f"{str(folder)!r} is a file. Give a folder.")
    kept = []
    for exercise in all_exercises():
        target = folder / exercise.file
        if target.exists():
            kept.append(exercise.file)
        else:
            write_text(target, (shipped_folder("exercises") / exercise.file).read_text(encoding="utf-8"))
    save_exercise_folder(folder.resolve())
    if kept:
        say(f"Not overwritten: {', '.join(kept)}.")
    say(f"The exercises are in {folder}. Edit {folder / get_exercise(1).file}, then run:")
    say(f"  {command('check', 1)}")


def print_solution(number: int) -> None:
    exercise = get_exercise(number)
    for path in sorted((shipped_folder("exercises") / "solutions").glob(f"{Path(exercise.file).stem}*.py")):
        out.print(explain_solution(exercise, path.read_text(encoding="utf-8")), markup=False)


# --- print the grades --------------------------------------------------------------------------------------------


def record_progress(grade: Grade) -> None:
    save_progress(Path(grade.exercise.file).stem, sum(mark.is_right for mark in grade.marks))


def print_grade(grade: Grade, level: int, which: str) -> None:
    exercise = grade.exercise
    print_text(f"Exercise {exercise.number}. {exercise.title}", style="bold")
    print_text(f"{short_path(grade.file)}, with {LIBRARIES[grade.library]}\n")
    if grade.failure:
        for line in file_failure_lines(grade.failure):
            print_text(line, indent=2)
    for other in imported_exercises(grade.file):
        if (library := detect_library(other)) != grade.library:
            note = f"Note: {other.name} is written for {LIBRARIES[library]}, but this file is tested with "
            print_text(f"{note}{LIBRARIES[grade.library]}. Functions that it imports from there may fail.\n", indent=2)
    for mark in grade.marks:
        print_mark(mark, level)
    if grade.printed:
        out.print("\nYour code printed:")
        lines = grade.printed.rstrip("\n").split("\n")
        for line in lines[:MAX_LINES] + ["..."] * (len(lines) > MAX_LINES):
            out.print(f"  {line}", markup=False)
    out.print()
    out.print(next_step(grade, level, which))


def print_mark(mark: Mark, level: int) -> None:
    lines = feedback(mark, level)
    if mark.state in ("to do", "not tried"):
        out.print(f"  {SIGNS[mark.state]} {escape(mark.part.signature)}    {escape(lines[0])}")
        return
    out.print(f"  {SIGNS[mark.state]} [bold]{escape(mark.part.signature)}[/]")
    for line in lines:
        print_text(line, indent=6, style="cyan" if line.startswith(("Hint: ", "Line of thought: ")) else "")


def next_step(grade: Grade, level: int, which: str) -> str:
    right, total = sum(mark.is_right for mark in grade.marks), len(grade.exercise.parts)
    number = grade.exercise.number
    if grade.is_right:
        is_last = number == len(all_exercises())
        after = f"This was the last one. Next: {command('lab')}" if is_last else f"Next: {command('check', number + 1)}"
        return f"[green]All correct.[/] {after}"
    if all(mark.state == "to do" for mark in grade.marks) and grade.marks:
        return f"Start with {grade.marks[0].part.name} in {escape(short_path(grade.file))}."
    wrong = [mark for mark in grade.marks if mark.state == "wrong"]
    hint = ""
    if level == 0 and any(mark.explanations or mark.part.strong_hint for mark in wrong):
        hint = f"\nA stronger hint: {command('check', which, '--hint')}"
    elif level < 2 and any(mark.part.thought for mark in wrong):
        hint = f"\nThe line of thought: {command('check', which, '--think')}"
    elif level == 2 and wrong:
        hint = f"\nThe solution, explained: {command('check', which, '--solution')}"
    return f"{right} of {total} parts are correct.{hint}"


def print_overview(grades: Sequence[Grade]) -> None:
    checked = {grade.exercise.number: grade for grade in grades}
    table = Table(box=None, pad_edge=False)
    for column in ("", "exercise", "correct", "next"):
        table.add_column(column)
    for exercise in all_exercises():
        grade = checked.get(exercise.number)
        right = sum(mark.is_right for mark in grade.marks) if grade else 0
        missing = next((m.part.name for m in grade.marks if not m.is_right), "") if grade else "not started"
        missing = "Python cannot read the file" if grade and grade.failure else missing
        table.add_row(str(exercise.number), exercise.title, f"{right} of {len(exercise.parts)}", missing)
    out.print(table)
    if not grades:
        say(f"Start with:  {command('check', '--start', 'my-exercises')}")
        return
    say(f"Checked in {short_path(grades[0].file.parent)}.")
    first_open = next((g for g in grades if not g.is_right), None)
    say(f"Next:  {command('check', first_open.exercise.number)}" if first_open else f"Next:  {command('lab')}")


def short_path(path: Path) -> str:
    """Relative to this folder if it is inside."""
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)


def watch_file(which: str, level: int) -> None:
    """Check each time the file is saved, until Ctrl-C."""
    exercise, path = find_exercise(which)
    last: tuple[float, int] | None = None
    try:
        while True:
            now = file_version(path)
            if now is not None and now != last:
                last = now
                grade = grade_file(exercise, path)
                record_progress(grade)
                if out.is_terminal:
                    out.clear()
                print_grade(grade, level, which)
                say(f"Watching {path}. Press Ctrl-C to stop.")
            time.sleep(POLL_SECONDS)
    except KeyboardInterrupt:
        say("Stopped.")


def file_version(path: Path) -> tuple[float, int] | None:
    """Time and size of the file; None while an editor replaces it."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime, status.st_size
