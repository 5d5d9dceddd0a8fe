"""Grade the exercises of a class: one folder for each student, each file in its own sandbox."""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cutaway.course.exercises import all_exercises
from cutaway.course.feedback import feedback, file_failure_lines, sentence
from cutaway.course.grader import Grade, Mark, grade_file
from cutaway.errors import DataError
from cutaway.system.machine import cores

FILE_NAME = re.compile(r"exercise_(\d\d)")


@dataclass(frozen=True)
class Submission:
    """A student's file for one exercise."""

    student: str
    number: int
    path: Path
    older: tuple[Path, ...] = ()  # other files of the student for this exercise; they are not graded


@dataclass(frozen=True)
class GradedSubmission:
    submission: Submission
    grade: Grade

    @property
    def parts_right(self) -> int:
        return sum(mark.is_right for mark in self.grade.marks)

    @property
    def state(self) -> str:
        """For the table: "3 of 5", "all", or why there is no grade."""
        if self.grade.failure:
            return "cannot be read"
        total = len(self.grade.exercise.parts)
        return "all" if self.grade.is_right else f"{self.parts_right} of {total}"


def find_submissions(folder: Path, numbers: Sequence[int] = ()) -> list[Submission]:
    """Find FOLDER/STUDENT/**/exercise_NN*.py. Of several files for one exercise, the newest counts."""
    if not folder.is_dir():
        raise DataError(f"there is no folder {str(folder)!r}. Give a folder that has a folder for each student.")
    wanted = set(numbers) or {exercise.number for exercise in all_exercises()}
    found: dict[tuple[str, int], list[Path]] = {}
    for path in sorted(folder.glob("*/**/*.py")):
        match = FILE_NAME.match(path.name)
        if match and int(match[1]) in wanted and path.is_file():
            student = path.relative_to(folder).parts[0]
            found.setdefault((student, int(match[1])), []).append(path)
    if not found:
        of = f" for exercise {', '.join(map(str, sorted(wanted)))}" if numbers else ""
        raise DataError(
            f"no submissions{of} in {str(folder)!r}. Expected: a folder for each student, with files whose names start "
            f"with exercise_ and a number, such as {folder}/ada/{all_exercises()[0].file}."
        )
    submissions = []
    for (student, number), paths in found.items():
        newest, *older = sorted(paths, key=lambda path: path.stat().st_mtime, reverse=True)
        submissions.append(Submission(student, number, newest, tuple(older)))
    return sorted(submissions, key=lambda each: (each.student.casefold(), each.number))


def grade_class(
    submissions: Sequence[Submission], on_grade: Callable[[GradedSubmission], None] = lambda graded: None
) -> list[GradedSubmission]:
    """Grade all files, as many at a time as there are cores. The order is that of the submissions."""
    exercises = {exercise.number: exercise for exercise in all_exercises()}

    def grade_one(submission: Submission) -> GradedSubmission:
        graded = GradedSubmission(submission, grade_file(exercises[submission.number], submission.path))
        on_grade(graded)
        return graded

    with ThreadPoolExecutor(cores()) as pool:  # threads wait for the sandbox processes
        return list(pool.map(grade_one, submissions))


def reason(mark: Mark) -> str:
    """Why a part is wrong, in one sentence: the named mistakes, a failed call, a failed property, or what differs."""
    if mark.explanations:
        return " ".join(sentence(mistake.message) for mistake in mark.explanations[0])
    if mark.violation:
        return mark.violation
    return next(iter(feedback(mark)), "")


def common_mistakes(graded: Sequence[GradedSubmission]) -> list[tuple[int, str, str, list[str]]]:
    """Return (exercise, part, mistake, students) of named mistakes, the most frequent first."""
    students: dict[tuple[int, str, str], list[str]] = {}
    for each in graded:
        for mark in each.grade.marks:
            if len(mark.explanations) == 1 and not mark.follows_from:
                for mistake in mark.explanations[0]:
                    key = (each.submission.number, mark.part.name, sentence(mistake.message))
                    students.setdefault(key, []).append(each.submission.student)
    ordered = sorted(students.items(), key=lambda item: (-len(item[1]), item[0]))
    return [(*key, names) for key, names in ordered]


def rows_of(graded: Sequence[GradedSubmission]) -> list[dict[str, Any]]:
    """Return one row for each part of each file."""
    rows = []
    for each in graded:
        start = {
            "student": each.submission.student,
            "exercise": each.submission.number,
            "file": str(each.submission.path),
        }
        if each.grade.failure:
            why = " ".join(line.strip() for line in file_failure_lines(each.grade.failure))
            rows.append({**start, "part": "", "state": "cannot be read", "mistakes": "", "reason": why})
        rows += [
            {
                **start,
                "part": mark.part.name,
                "state": mark.state,
                "mistakes": " ".join(mistake.name for found in mark.explanations for mistake in found),
                "reason": reason(mark) if mark.state == "wrong" else "",
            }
            for mark in each.grade.marks
        ]
    return rows


def to_csv(graded: Sequence[GradedSubmission]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, ("student", "exercise", "part", "state", "mistakes", "reason", "file"))
    writer.writeheader()
    # a spreadsheet would run a cell that begins with one of these signs as a formula
    for row in rows_of(graded):
        writer.writerow({k: f"'{v}" if str(v).startswith(("=", "+", "-", "@")) else v for k, v in row.items()})
    return text.getvalue()


def count_right(graded: Sequence[GradedSubmission]) -> Counter[tuple[int, str]]:
    """Return (exercise, part) -> number of students who have it right."""
    return Counter(
        (each.submission.number, mark.part.name) for each in graded for mark in each.grade.marks if mark.is_right
    )
