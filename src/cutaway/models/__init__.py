"""Whole models, put together from the parts in `cutaway.nn`."""
