"""Scores and baselines: pure functions of texts, labels, probabilities and alignments."""
