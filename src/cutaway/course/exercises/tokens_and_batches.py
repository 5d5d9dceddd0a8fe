"""Exercise 10 for the grader."""

from cutaway.course.exercise import Exercise

EXERCISE = Exercise(10, "tokens_and_batches", "Tokens and batches", parts=())
