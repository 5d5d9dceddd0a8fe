"""Definitions of the exercises for the grader. The learner's files are in `exercises/`."""

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
    "decoding",
    "cache",
    "learning",
    "backpropagation",
    "tokens_and_batches",
)


def get_exercise(number: int) -> Exercise:
    if not 1 <= number <= len(NAMES):
        raise DataError(f"unknown exercise {number}. Choose one of: {', '.join(map(str, range(1, len(NAMES) + 1)))}.")
    exercise: Exercise = importlib.import_module(f"{__name__}.{NAMES[number - 1]}").EXERCISE
    return exercise


def all_exercises() -> list[Exercise]:
    return [get_exercise(number) for number in range(1, len(NAMES) + 1)]
