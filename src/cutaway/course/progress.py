"""Store the reader's progress in a small file in the home folder."""

from __future__ import annotations

import json
import os
from pathlib import Path

from cutaway.runs.files import write_json, write_text

HOME = "CUTAWAY_HOME"  # environment variable: another folder for it


def home() -> Path:
    return Path(os.environ.get(HOME) or Path.home() / ".cutaway")


def progress_file() -> Path:
    return home() / "progress.json"


def read_progress() -> dict[str, int]:
    """Return lesson -> number of cells read, exercise -> number of parts right.

    An unreadable file counts as no progress.
    """
    try:
        progress = json.loads(progress_file().read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return {str(k): v for k, v in progress.items() if isinstance(v, int)} if isinstance(progress, dict) else {}


def save_progress(name: str, done: int) -> None:
    """Save the number of cells or parts if it is higher than before."""
    progress = read_progress()
    if done > progress.get(name, 0):
        write_json(progress_file(), {**progress, name: done})


def read_exercise_folder() -> Path | None:
    """Return the folder that the exercises were last copied to."""
    try:
        return Path((home() / "exercises").read_text(encoding="utf-8").strip())
    except OSError:
        return None


def save_exercise_folder(folder: Path) -> None:
    write_text(home() / "exercises", f"{folder}\n")
