"""Exercise 8 for the grader."""

from cutaway.course.exercise import Exercise

EXERCISE = Exercise(8, "learning", "Learning", parts=())
