"""How good is it? Pure functions over texts, probabilities and alignments."""
