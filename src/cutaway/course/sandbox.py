"""A learner's file run in a process of its own, with limits: it may crash, loop, eat memory or print a novel.

    outcomes = run_file(path, exercise.parts)        outcomes.parts["attention"][2].value

What happens inside that process is in inside.py.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cutaway.course.exercise import Part
from cutaway.course.values import pack, unpack

SECONDS = 7.0  # for all parts together, once the file is imported
SECONDS_TO_IMPORT = 60.0  # torch on a slow disk


@dataclass(frozen=True)
class Trouble:
    """Why there is no answer."""

    kind: str  # "missing", "no function", "signature", "to do", "error", "slow", "died", "skipped"
    message: str = ""
    line: int = 0  # of the learner's file; 0: unknown
    source: str = ""  # that line
    shapes: dict[str, list[int]] = field(default_factory=dict)  # of the arrays at hand there


@dataclass(frozen=True)
class Outcome:
    """What a call of the learner's function gave."""

    value: Any = None
    trouble: Trouble | None = None
    changed: tuple[int, ...] = ()  # the arguments that are not what they were before the call
    wavers: bool = False  # the same call gave something else the second time


@dataclass(frozen=True)
class Outcomes:
    library: str  # "numpy" or "torch"
    parts: dict[str, list[Outcome]]
    trouble: Trouble | None = None  # of the file as a whole
    printed: str = ""


def run_file(path: Path, parts: Sequence[Part], seconds: float = SECONDS) -> Outcomes:
    """Try every part of a learner's file on its cases."""
    request = [{"name": p.name, "cases": [pack(c.arguments) for c in p.cases]} for p in parts]
    with tempfile.TemporaryDirectory(prefix="cutaway-check-") as folder:
        asked, told = Path(folder, "request.json"), Path(folder, "told.jsonl")
        asked.write_text(json.dumps(request), encoding="utf-8")
        told.touch()
        process = subprocess.Popen(
            # -P: a file of the learner's that is called json.py must not be taken for Python's own
            [sys.executable, "-P", "-m", "cutaway.course.sandbox_child", str(path.resolve()), str(asked), str(told)],
            stdin=subprocess.PIPE,  # it ends when this does
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=path.resolve().parent,
            start_new_session=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"},
        )
        try:
            ended = wait(process, told, seconds)
        finally:
            end(process)
        return read_outcomes(told, parts, ended)


def end(process: subprocess.Popen[bytes]) -> None:
    """The process, and whatever it has started."""
    if hasattr(os, "killpg"):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    process.kill()
    process.wait()
    if process.stdin:
        process.stdin.close()


def wait(process: subprocess.Popen[bytes], told: Path, seconds: float) -> bool:
    """True if it ended by itself in time."""
    started, imported = time.monotonic(), None
    while process.poll() is None:
        now = time.monotonic()
        if imported is None and told.stat().st_size:
            imported = now
        if now - started > SECONDS_TO_IMPORT or (imported is not None and now - imported > seconds):
            return False
        time.sleep(0.01)
    return True


def read_outcomes(told: Path, parts: Sequence[Part], ended: bool) -> Outcomes:
    """What was told, and for the rest, why it was not."""
    lines = told.read_text(encoding="utf-8").split("\n")
    records = [json.loads(line) for line in lines[:-1]]  # the last line is empty, or was cut off in the middle
    about_file: dict[str, Any] = records[0] if records else {}
    outcomes: dict[str, list[Outcome]] = {}
    running = ""
    for record in records[1:]:
        running = record.get("begins", "")
        if "name" in record:
            outcomes[record["name"]] = [to_outcome(o) for o in record["outcomes"]]
    trouble = to_trouble(about_file.get("trouble"))
    if not records:
        trouble = Trouble("died" if ended else "slow", f"importing the file: {THE_END if ended else ENDLESS}")
    elif trouble is None or outcomes:
        outcomes = {part.name: outcomes.get(part.name) or [untried(part.name, running, ended)] for part in parts}
    printed = "".join(record.get("printed", "") for record in records)
    return Outcomes(about_file.get("library", "numpy"), outcomes, trouble, printed)


ENDLESS, THE_END = "it does not come to an end", "it ended Python itself, or took too much memory"


def untried(part: str, running: str, ended: bool) -> Outcome:
    """Of a part that nothing was told about: it is the one at which it all ended, or comes after it."""
    if part == running:
        return Outcome(trouble=Trouble("died", THE_END) if ended else Trouble("slow", ENDLESS))
    why = "ended Python" if ended else "left no time"
    return Outcome(trouble=Trouble("skipped", f"not tried: {running} {why}"))


def to_outcome(record: dict[str, Any]) -> Outcome:
    return Outcome(
        unpack(record.get("value")),
        to_trouble(record.get("trouble")),
        tuple(record.get("changed", ())),
        record.get("wavers", False),
    )


def to_trouble(record: dict[str, Any] | None) -> Trouble | None:
    return Trouble(**record) if record else None
