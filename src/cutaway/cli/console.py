"""How commands speak: results on standard output, everything else on standard error, colour only on a terminal."""

from __future__ import annotations

import json
import os
import shutil
import sys
from typing import Any, NoReturn

from rich.console import Console
from rich.markup import escape

WIDE = 160  # of a pipe, which has no width of its own
out = Console(highlight=False, soft_wrap=True, width=None if sys.stdout.isatty() else WIDE)
err = Console(stderr=True, highlight=False, soft_wrap=True)


def say(text: str = "") -> None:
    """Tell the user something that is not a result."""
    err.print(text)


def fail(message: str, code: int = 1) -> NoReturn:
    err.print(f"[bold red]error:[/] {escape(message)}" if code == 1 else escape(message))
    sys.exit(code)


def print_json(value: Any) -> None:
    sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def clock(seconds: float) -> str:
    """75 -> 1:15"""
    whole = max(0, round(seconds))
    hours, minutes, seconds = whole // 3600, whole // 60 % 60, whole % 60
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"


def command() -> str:
    """How this program was called, so that a suggested command can be typed as it stands: .venv/bin/cutaway, say."""
    called, on_path = sys.argv[0], shutil.which("cutaway")
    if os.path.basename(called) != "cutaway" or not os.path.isfile(called):
        return "cutaway"
    if on_path and os.path.samefile(on_path, called):
        return "cutaway"
    return os.path.relpath(called)
