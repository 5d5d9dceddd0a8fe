"""Whole models, built from the parts in `cutaway.nn`."""
