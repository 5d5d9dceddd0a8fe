"""Run folders: everything about one trained model, in plain files (folder.py). No torch here."""

from cutaway.runs.folder import RunFolder

__all__ = ["RunFolder"]
