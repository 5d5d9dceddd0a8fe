"""The errors that a user can cause or fix.

    CutawayError                 the command line prints it without a traceback
    ├── ConfigError              a setting that is unknown, impossible, or conflicts with another
    ├── DataError                a file or text that cannot be used
    ├── RunError                 a run folder that is missing, incomplete or damaged
    ├── MissingExtra             an optional dependency that is not installed
    ├── Diverged                 the loss of a training is no longer finite
    ├── TrainingFailed           a training failed for lack of memory or disk space, or because a process died
    ├── BulkFailed               processing of a file failed; finished lines are kept
    └── Interrupted              the user stopped the command; everything is saved

A message says what was given, what was expected, and what to do.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class CutawayError(Exception):
    """The base class of all errors that a user can fix."""

    exit_code = 1  # of the command line


class ConfigError(CutawayError, ValueError):
    """A setting that is unknown, impossible, or conflicts with another."""


class DataError(CutawayError, ValueError):
    """A file or text that cannot be used."""


class RunError(CutawayError, OSError):
    """A run folder that is missing, incomplete or damaged."""


class MissingExtra(CutawayError, ImportError):
    """An optional dependency that is not installed."""

    def __init__(self, package: str, extra: str, what: str = "this", instead: str = ""):
        super().__init__(
            f"{what} needs {package}, which is not installed. Install it with: pip install 'cutaway[{extra}]'{instead}"
        )
        self.given = package, extra, what, instead

    def __reduce__(self) -> tuple[type[MissingExtra], tuple[str, ...]]:
        """Pickle the arguments. By default, an exception is rebuilt from its message, which is not an argument here."""
        return type(self), self.given


class Diverged(CutawayError):
    """The loss of a training is no longer finite."""


class TrainingFailed(CutawayError):
    """A training failed for lack of memory or disk space, or because another process died."""


class BulkFailed(CutawayError):
    """Processing of a file failed, for example because a worker died. Finished lines are kept."""


class Interrupted(CutawayError):
    """The user stopped a training or the processing of a file. Everything is saved."""

    exit_code = 130  # what shells report for Ctrl-C


class CutawayWarning(UserWarning):
    """A notice for the user while the work continues. The command line prints it as a note."""


def did_you_mean(given: str, allowed: Iterable[str]) -> str:
    """The end of a message about an unknown name: the nearest allowed name, then all of them."""
    allowed = list(allowed)
    return f"{nearest(given, allowed)}Allowed: {', '.join(map(str, allowed))}."


def nearest(given: str, allowed: Iterable[str]) -> str:
    """The same without the list, if it would be too long: "Did you mean 'x'? ", or "" if no name is near."""
    near = difflib.get_close_matches(given, list(allowed), n=1)
    return f"Did you mean {near[0]!r}? " if near else ""
