"""Terminal output: results on standard output, messages on standard error, colour only on a terminal."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
from typing import Any, NoReturn

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

PIPE_WIDTH = 160  # a pipe has no width of its own
out = Console(highlight=False, soft_wrap=True, width=None if sys.stdout.isatty() else PIPE_WIDTH)
err = Console(stderr=True, highlight=False, soft_wrap=True)


def say(text: str | Text = "", style: str | None = None) -> None:
    """Print a message to standard error. Square brackets are not markup: a path may contain them.

    On a terminal, long lines break between words, except for a command, which must stay copyable.
    """
    has_command = f"{program()} " in str(text)
    err.print(text, style=style, markup=False, soft_wrap=has_command or not err.is_terminal)


def fail(message: str, code: int = 1) -> NoReturn:
    say(Text.assemble(("error: ", "bold red"), message) if code == 1 else message)
    sys.exit(code)


def print_text(text: str, indent: int = 0, style: str = "") -> None:
    """Print prose to standard output: on a terminal, long lines break between words; in a pipe, they do not break."""
    if out.is_terminal and text:
        out.print(Padding(Text(text, style), (0, 0, 0, indent), expand=False), soft_wrap=False)
    else:
        out.print(" " * indent + text, markup=False, style=style or None)


def print_json(value: Any) -> None:
    sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def clock(seconds: float) -> str:
    """75 -> 1:15"""
    whole = max(0, round(seconds))
    hours, minutes, seconds = whole // 3600, whole // 60 % 60, whole % 60
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"


def command(*arguments: object) -> str:
    """A command line of this program that can be copied into a shell."""
    return shlex.join([program(), *map(str, arguments)])


def program() -> str:
    """The name of this program if the shell finds it, else the shortest path, such as .venv/bin/cutaway."""
    called, on_path = sys.argv[0], shutil.which("cutaway")
    if os.path.basename(called) != "cutaway" or not os.path.isfile(called):
        return "cutaway"
    if on_path and os.path.samefile(on_path, called):
        return "cutaway"
    return min(os.path.relpath(called), os.path.abspath(called), key=len)
