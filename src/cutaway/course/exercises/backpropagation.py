"""Exercise 9 for the grader."""

from cutaway.course.exercise import Exercise

EXERCISE = Exercise(9, "backpropagation", "Backpropagation by hand", parts=())
