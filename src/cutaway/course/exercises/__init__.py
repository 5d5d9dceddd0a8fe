"""The exercises, as the grader knows them. What the learner gets are the files in `exercises/`."""

from __future__ import annotations

import importlib

from cutaway.course.exercise import Exercise
from cutaway.errors import DataError

NAMES = (
    "scaled_dot_product",
    "multi_head_attention",
    "positional_encoding",
    "encoder_block",
    "full_transformer",
)


def exercise_of(number: int) -> Exercise:
    if not 1 <= number <= len(NAMES):
        raise DataError(f"there is no exercise {number}. There are: {', '.join(map(str, range(1, len(NAMES) + 1)))}.")
    exercise: Exercise = importlib.import_module(f"{__name__}.{NAMES[number - 1]}").EXERCISE
    return exercise


def all_exercises() -> list[Exercise]:
    return [exercise_of(number) for number in range(1, len(NAMES) + 1)]
