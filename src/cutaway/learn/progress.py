"""How far a reader has come, kept in a small file in the home folder."""

from __future__ import annotations

import json
import os
from pathlib import Path

from cutaway.runs import write_json

HOME = "CUTAWAY_HOME"  # the environment variable that moves it elsewhere


def progress_file() -> Path:
    return Path(os.environ.get(HOME) or Path.home() / ".cutaway") / "progress.json"


def read_progress() -> dict[str, int]:
    """Lesson -> how many of its cells have been read. A file that cannot be read is no progress, and no error."""
    try:
        progress = json.loads(progress_file().read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return {str(k): v for k, v in progress.items() if isinstance(v, int)} if isinstance(progress, dict) else {}


def note_progress(lesson: str, cells: int) -> None:
    """Remember the farthest cell."""
    progress = read_progress()
    if cells > progress.get(lesson, 0):
        write_json(progress_file(), {**progress, lesson: cells})
