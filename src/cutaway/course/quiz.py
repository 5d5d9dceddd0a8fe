"""Questions on the lessons: lessons/quizzes/01.toml and so on, six for each lesson.

[[question]]
ask = "..."
right = "..."
because = "..."                        why it is right
wrong = [{ text = "...", why = "..." }, ...]
"""

from __future__ import annotations

import random
import tomllib
from dataclasses import dataclass

from cutaway.errors import DataError
from cutaway.system.resources import shipped_folder

LETTERS = "abcdef"


@dataclass(frozen=True)
class QuizQuestion:
    """A question and its choices in a fixed, shuffled order."""

    ask: str
    choices: tuple[str, ...]
    right: str
    because: str
    why: dict[str, str]  # wrong choice -> why it is wrong

    @property
    def letter(self) -> str:
        """The letter of the right choice."""
        return LETTERS[self.choices.index(self.right)]

    def is_right(self, letter: str) -> bool:
        return letter == self.letter

    def explain(self, letter: str) -> str:
        """Say why a choice is wrong, or why it is right."""
        choice = self.choices[LETTERS.index(letter)]
        return self.because if choice == self.right else self.why[choice]


def quiz_numbers() -> list[int]:
    return sorted(int(path.stem) for path in (shipped_folder("lessons") / "quizzes").glob("[0-9][0-9].toml"))


def read_quiz(number: int) -> list[QuizQuestion]:
    if number not in quiz_numbers():
        raise DataError(f"there is no quiz {number}. Choose one of: {', '.join(map(str, quiz_numbers()))}.")
    path = shipped_folder("lessons") / "quizzes" / f"{number:02d}.toml"
    return [read_question(table) for table in tomllib.loads(path.read_text(encoding="utf-8"))["question"]]


def read_question(table: dict[str, object]) -> QuizQuestion:
    ask, right, because, wrong = (table[key] for key in ("ask", "right", "because", "wrong"))
    assert isinstance(wrong, list)
    why = {str(one["text"]): str(one["why"]) for one in wrong}
    choices = [str(right), *why]
    random.Random(str(ask)).shuffle(choices)  # the same order for every reader
    return QuizQuestion(str(ask), tuple(choices), str(right), str(because), why)
