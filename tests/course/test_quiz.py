"""Quizzes: every question is complete, and the command grades and explains."""

from collections import Counter
from importlib import import_module

import pytest
from typer.testing import CliRunner

from cutaway.cli import app
from cutaway.cli.lesson import find_lessons
from cutaway.course.progress import read_progress
from cutaway.course.quiz import quiz_numbers, read_quiz
from cutaway.errors import DataError

command = import_module("cutaway.cli.quiz")  # cutaway.cli.quiz is the function


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("CUTAWAY_HOME", str(tmp_path))


def test_every_lesson_has_six_questions():
    assert quiz_numbers() == [int(path.name[:2]) for path in find_lessons()]
    assert {len(read_quiz(number)) for number in quiz_numbers()} == {6}


def test_questions_are_complete_and_different():
    questions = [question for number in quiz_numbers() for question in read_quiz(number)]
    assert len({question.ask for question in questions}) == len(questions)
    for question in questions:
        assert len(set(question.choices)) == 4
        assert question.right in question.choices
        texts = [question.because, *question.why.values()]
        assert len(set(texts)) == 4
        assert all(text.endswith((".", ".)", "?")) for text in texts), question.ask


def test_no_letter_is_right_too_often():
    """Otherwise a reader could guess."""
    letters = Counter(question.letter for number in quiz_numbers() for question in read_quiz(number))
    assert set(letters) == set("abcd")
    assert max(letters.values()) < 20


def right_letters(number):
    return "".join(question.letter for question in read_quiz(number))


@pytest.mark.parametrize("number", quiz_numbers())
def test_right_answers_are_accepted(number):
    result = CliRunner().invoke(app, ["quiz", str(number), "--answers", right_letters(number)])
    assert result.exit_code == 0
    assert "6 of 6 right." in result.stdout
    assert read_progress()[f"quiz_{number:02d}"] == 6


def test_wrong_answers_are_explained():
    first = read_quiz(1)[0]
    wrong = next(letter for letter in "abcd" if letter != first.letter)
    result = CliRunner().invoke(app, ["quiz", "1", "--answers", wrong + right_letters(1)[1:]])
    assert result.exit_code == 1
    assert "5 of 6 right." in result.stdout
    assert first.explain(wrong) in result.stdout
    assert f"Right is {first.letter}) {first.right}." in result.stdout
    assert "5 of 6" in CliRunner().invoke(app, ["quiz"]).stdout


def test_a_pipe_gets_the_questions_without_answers():
    result = CliRunner().invoke(app, ["quiz", "2"])
    assert result.exit_code == 0
    questions = read_quiz(2)
    assert all(question.ask in result.stdout for question in questions)
    assert not any(question.because in result.stdout for question in questions)


def test_a_terminal_asks_until_the_answer_is_a_choice(monkeypatch):
    given = iter(["", "x", "ab", "B", "q"])
    monkeypatch.setattr("builtins.input", lambda prompt: next(given))
    question = read_quiz(1)[0]
    assert command.ask_letter(question) == "b"
    assert command.ask_letter(question) is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["9"], "there is no quiz 9. Choose one of: 1, 2"),
        (["1", "--answers", "abc"], "has 3 letters, but there are 6 questions"),
        (["1", "--answers", "abcdax"], "'x' is no choice of question 6. Choose from abcd."),
    ],
)
def test_wrong_use_is_refused(arguments, message):
    with pytest.raises(DataError) as error:
        app(["quiz", *arguments], standalone_mode=False)
    assert message in str(error.value)
