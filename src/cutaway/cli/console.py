"""How commands speak: results on standard output, everything else on standard error, colour only on a terminal."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
from typing import Any, NoReturn

from rich.console import Console
from rich.markup import escape

WIDE = 160  # of a pipe, which has no width of its own
out = Console(highlight=False, soft_wrap=True, width=None if sys.stdout.isatty() else WIDE)
err = Console(stderr=True, highlight=False, soft_wrap=True)


def say(text: str = "", style: str | None = None) -> None:
    """Tell the user something that is not a result. The text is text: a path may hold square brackets."""
    err.print(text, style=style, markup=False)


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


def command(*arguments: object) -> str:
    """A command line for this program that can be typed as it stands, beginning with how it was called this time."""
    return shlex.join([program(), *map(str, arguments)])


def program() -> str:
    """The name, if the shell finds it; else the shortest path: .venv/bin/cutaway, say."""
    called, on_path = sys.argv[0], shutil.which("cutaway")
    if os.path.basename(called) != "cutaway" or not os.path.isfile(called):
        return "cutaway"
    if on_path and os.path.samefile(on_path, called):
        return "cutaway"
    return min(os.path.relpath(called), os.path.abspath(called), key=len)
