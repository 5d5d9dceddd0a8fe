"""Exercise 6 for the grader."""

from cutaway.course.exercise import Exercise

EXERCISE = Exercise(6, "decoding", "Decoding", parts=())
