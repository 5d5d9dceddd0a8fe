"""Diagnosis of a run and of its data: measurements first, then findings."""
