"""Training: an objective, an optimizer, a schedule, and a loop that can be stopped at any moment."""
