"""Exercise 7 for the grader."""

from cutaway.course.exercise import Exercise

EXERCISE = Exercise(7, "cache", "The key-value cache", parts=())
