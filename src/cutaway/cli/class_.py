"""cutaway class FOLDER"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table

from cutaway.cli.console import err, out, print_json, print_text, say
from cutaway.cli.options import Json
from cutaway.course.classroom import (
    GradedSubmission,
    common_mistakes,
    count_right,
    find_submissions,
    grade_class,
    rows_of,
    to_csv,
)
from cutaway.course.exercises import get_exercise
from cutaway.runs.files import write_text

MOST = 15  # rows of the table of mistakes
NAMES = 4  # students named in a row


def class_(
    folder: Annotated[Path, typer.Argument(help="A folder with a folder for each student.", metavar="FOLDER")],
    exercise: Annotated[
        list[int] | None, typer.Option(help="Grade only this exercise. Can be repeated.", metavar="N")
    ] = None,
    csv: Annotated[Path | None, typer.Option(help="Write a row for each part of each file.", metavar="FILE")] = None,
    as_json: Json = False,
) -> None:
    """Grade the exercises of a class: who has which part right, and which mistakes are common.

    Examples:  cutaway class handed-in
               cutaway class handed-in --exercise 1 --csv grades.csv

    Each file runs in its own process, with limits on time and memory. The limits prevent accidents, not attacks: grade
    files from strangers in a container.
    """
    numbers = [get_exercise(number).number for number in exercise or ()]
    submissions = find_submissions(folder, numbers)
    for submission in submissions:
        if submission.older:
            names = ", ".join(str(path.relative_to(folder)) for path in submission.older)
            say(f"{submission.path.relative_to(folder)} is newer than {names}: only the newest file is graded.")
    columns = (TextColumn("grading"), BarColumn(20), MofNCompleteColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=err, transient=True, disable=not err.is_terminal) as progress:
        task = progress.add_task("", total=len(submissions))
        graded = grade_class(
            submissions,
            lambda one: progress.update(task, advance=1, description=escape(one.submission.student)),
        )
    if csv is not None:
        write_text(csv, to_csv(graded))
        say(f"Wrote {csv}.")
    if as_json:
        print_json({"parts": rows_of(graded), "mistakes": mistakes_as_json(graded)})
        return
    print_students(graded)
    print_parts(graded)
    print_mistakes(graded)


def mistakes_as_json(graded: list[GradedSubmission]) -> list[dict[str, object]]:
    keys = ("exercise", "part", "mistake", "students")
    return [dict(zip(keys, found, strict=True)) for found in common_mistakes(graded)]


def print_students(graded: list[GradedSubmission]) -> None:
    """A row for each student, a column for each exercise."""
    numbers = sorted({each.submission.number for each in graded})
    states = {(each.submission.student, each.submission.number): each.state for each in graded}
    table = Table(box=None, pad_edge=False)
    for column in ("student", *(f"exercise {number}" for number in numbers)):
        table.add_column(column)
    for student in dict.fromkeys(each.submission.student for each in graded):
        table.add_row(escape(student), *(states.get((student, number), "-") for number in numbers))
    out.print(table)


def print_parts(graded: list[GradedSubmission]) -> None:
    """A row for each part, with the number of students who have it right."""
    right = count_right(graded)
    table = Table(box=None, pad_edge=False)
    for column in ("exercise", "part", "right"):
        table.add_column(column)
    for number in sorted({each.submission.number for each in graded}):
        files = sum(each.submission.number == number for each in graded)
        for part in get_exercise(number).parts:
            table.add_row(str(number), part.name, f"{right[number, part.name]} of {files}")
    out.print()
    out.print(table)


def print_mistakes(graded: list[GradedSubmission]) -> None:
    found = common_mistakes(graded)
    if not found:
        return
    print_text("\nCommon mistakes", style="bold")
    for number, part, mistake, students in found[:MOST]:
        who = ", ".join(students[:NAMES]) + (f" and {len(students) - NAMES} more" if len(students) > NAMES else "")
        print_text(f"{len(students):>3}  exercise {number}, {part}: {mistake} ({who})")
    if len(found) > MOST:
        say(f"{len(found) - MOST} more: --json or --csv lists all.")
