"""Traces of a model's forward pass, figures, reports, and the explorer page."""
