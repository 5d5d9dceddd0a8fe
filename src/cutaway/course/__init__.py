"""The course: runnable lessons, graded exercises, and a lab for ablation experiments."""
