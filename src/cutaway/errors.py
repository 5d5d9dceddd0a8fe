"""Everything that can go wrong because of what a user gave us.

    CutawayError                 caught once, by the command line, and printed without a traceback
    ├── ConfigError              a setting that is unknown, impossible, or at odds with another
    ├── DataError                a file or a text that cannot be used
    ├── RunError                 a run folder that is missing, incomplete or damaged
    ├── MissingExtra             an optional dependency that is not installed
    ├── Diverged                 a training whose loss is no longer a number
    ├── TrainingFailed           a training that the machine could not go on with: no memory, no disk
    ├── WorkFailed               work on a file that the machine could not go on with; what is done is kept
    └── Interrupted              what the user stopped; everything is saved

A message says what was given, what was expected, and what to do.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class CutawayError(Exception):
    """The root: something a user can mend."""

    exit_code = 1  # of the command line


class ConfigError(CutawayError, ValueError):
    """A setting that is unknown, impossible, or at odds with another."""


class DataError(CutawayError, ValueError):
    """A file or a text that cannot be used."""


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
        """How it travels between processes: an exception is otherwise made again of its message alone."""
        return type(self), self.given


class Diverged(CutawayError):
    """A training whose loss is no longer a number."""


class TrainingFailed(CutawayError):
    """A training that the machine could not go on with: no memory, no disk, another process gone."""


class WorkFailed(CutawayError):
    """Work on a file that the machine could not go on with: a process of it is gone. What is done is kept."""


class Interrupted(CutawayError):
    """A training, or work on a file, that the user stopped; everything is saved."""

    exit_code = 130  # what shells report for Ctrl-C


class CutawayWarning(UserWarning):
    """What a user should know though the work goes on; the command line prints it as a note."""


def did_you_mean(given: str, allowed: Iterable[str]) -> str:
    """The tail of a message about a misspelt name: the nearest allowed one, then all of them."""
    allowed = list(allowed)
    return f"{nearest(given, allowed)}Allowed: {', '.join(map(str, allowed))}."


def nearest(given: str, allowed: Iterable[str]) -> str:
    """The same where there are too many to list: the nearest one, if any is near, and a space behind it."""
    near = difflib.get_close_matches(given, list(allowed), n=1)
    return f"Did you mean {near[0]!r}? " if near else ""
