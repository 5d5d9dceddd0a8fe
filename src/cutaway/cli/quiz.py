"""cutaway quiz [N]"""

from __future__ import annotations

import sys
from typing import Annotated

import typer
from rich.table import Table

from cutaway.cli.completion import complete_lessons
from cutaway.cli.console import command, out, print_text, say
from cutaway.course.progress import read_progress, save_progress
from cutaway.course.quiz import LETTERS, QuizQuestion, quiz_numbers, read_quiz
from cutaway.errors import DataError


def quiz(
    number: Annotated[
        int | None,
        typer.Argument(help="The lesson. Default: list all.", metavar="N", autocompletion=complete_lessons),
    ] = None,
    answers: Annotated[
        str | None, typer.Option(help="Your answers, without being asked, as in abcdab.", metavar="LETTERS")
    ] = None,
) -> None:
    """Answer six questions on a lesson. Wrong answers are explained.

    Examples:  cutaway quiz
               cutaway quiz 1
               cutaway quiz 1 --answers acbdab
    """
    if number is None:
        list_quizzes()
        return
    questions = read_quiz(number)
    if answers is None and not sys.stdin.isatty():
        for i, question in enumerate(questions, 1):
            print_question(i, question)
        say(f"Answer with:  {command('quiz', number, '--answers', 'LETTERS')}")
        return
    given = list(check_letters(answers, questions)) if answers is not None else None
    right = 0
    for i, question in enumerate(questions, 1):
        print_question(i, question)
        letter = given[i - 1] if given else ask_letter(question)
        if letter is None:
            say(f"Stopped after {i - 1} of {len(questions)} questions.")
            return
        right += question.is_right(letter)
        print_answer(question, letter)
    save_progress(f"quiz_{number:02d}", right)
    print_text(f"{right} of {len(questions)} right.", style="bold")
    if right < len(questions):
        say(f"Read again:  {command('lesson', number)}")
        raise typer.Exit(1)
    is_last = number == quiz_numbers()[-1]
    say(f"Next:  {command('check')}" if is_last else f"Next:  {command('lesson', number + 1)}")


def check_letters(answers: str, questions: list[QuizQuestion]) -> str:
    """Remove spaces and commas, and check that each letter names a choice."""
    letters = "".join(answers.lower().replace(",", " ").split())
    if len(letters) != len(questions):
        raise DataError(f"--answers {answers} has {len(letters)} letters, but there are {len(questions)} questions.")
    for i, (letter, question) in enumerate(zip(letters, questions, strict=True), 1):
        allowed = LETTERS[: len(question.choices)]
        if letter not in allowed:
            raise DataError(f"--answers {answers}: {letter!r} is no choice of question {i}. Choose from {allowed}.")
    return letters


def ask_letter(question: QuizQuestion) -> str | None:
    """Ask until the answer is a letter of a choice; None for q, Ctrl-D or Ctrl-C."""
    allowed = LETTERS[: len(question.choices)]
    while True:
        try:
            letter = input(f"  {', '.join(allowed)} (q stops): ").strip().lower()
        except (EOFError, KeyboardInterrupt):
            return None
        if letter in ("q", "quit"):
            return None
        if len(letter) == 1 and letter in allowed:
            return letter


def print_question(number: int, question: QuizQuestion) -> None:
    print_text(f"{number}. {question.ask}", style="bold")
    for letter, choice in zip(LETTERS, question.choices, strict=False):
        print_text(f"{letter}) {choice}", indent=3)


def print_answer(question: QuizQuestion, letter: str) -> None:
    """Print whether it is right, and why; after a wrong answer also the right one."""
    if question.is_right(letter):
        print_text(f"✓ {question.because}\n", indent=3, style="green")
        return
    print_text(f"✗ {letter}) is wrong. {question.explain(letter)}", indent=3, style="red")
    print_text(f"Right is {question.letter}) {question.right}. {question.because}\n", indent=3)


def list_quizzes() -> None:
    progress = read_progress()
    table = Table(box=None, pad_edge=False)
    for column in ("lesson", "questions", "best result"):
        table.add_column(column)
    for number in quiz_numbers():
        count, best = len(read_quiz(number)), progress.get(f"quiz_{number:02d}")
        table.add_row(str(number), str(count), "new" if best is None else f"{best} of {count}")
    out.print(table)
    unfinished = [n for n in quiz_numbers() if progress.get(f"quiz_{n:02d}", 0) < len(read_quiz(n))]
    if unfinished:
        say(f"Next:  {command('quiz', unfinished[0])}")
