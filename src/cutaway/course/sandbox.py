"""Run a learner's file in a separate process with limits on time, memory and output.

    result = run_file(path, exercise.parts)        result.parts["attention"][2].value

The code of that process is in sandbox_child.py.
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

from cutaway.course.exercise import ExercisePart
from cutaway.course.values import pack, unpack

SECONDS = 7.0  # for all parts together, after the import
IMPORT_SECONDS = 60.0  # torch on a slow disk


@dataclass(frozen=True)
class Failure:
    """Why a call or a file has no result."""

    kind: str  # "missing", "no function", "signature", "to do", "error", "slow", "died", "skipped"
    message: str = ""
    line: int = 0  # of the learner's file; 0: unknown
    source: str = ""  # that line
    shapes: dict[str, list[int]] = field(default_factory=dict)  # of the local arrays at that line


@dataclass(frozen=True)
class Outcome:
    """The result of one call of the learner's function."""

    value: Any = None
    failure: Failure | None = None
    changed: tuple[int, ...] = ()  # indices of arguments that the call modified
    is_nondeterministic: bool = False  # a second, equal call returned something else


@dataclass(frozen=True)
class SandboxResult:
    """Outcomes of all parts of a file: part name -> one outcome for each of its `all_cases`."""

    library: str  # "numpy" or "torch"
    parts: dict[str, list[Outcome]]
    failure: Failure | None = None  # of the file as a whole
    printed: str = ""


def run_file(path: Path, parts: Sequence[ExercisePart], seconds: float = SECONDS) -> SandboxResult:
    """Call every part of a learner's file with its cases and those of its properties."""
    request = [{"name": p.name, "cases": [pack(c.arguments) for c in p.all_cases]} for p in parts]
    with tempfile.TemporaryDirectory(prefix="cutaway-check-") as folder:
        request_file, output = Path(folder, "request.json"), Path(folder, "output.jsonl")
        request_file.write_text(json.dumps(request), encoding="utf-8")
        output.touch()
        process = subprocess.Popen(
            # -P: a learner's file named json.py must not shadow the standard library
            [
                sys.executable,
                "-P",
                "-m",
                "cutaway.course.sandbox_child",
                str(path.resolve()),
                str(request_file),
                str(output),
            ],
            stdin=subprocess.PIPE,  # the child exits when this process does
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=path.resolve().parent,
            start_new_session=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"},
        )
        try:
            ended = wait_for_exit(process, output, seconds)
        finally:
            kill_process_group(process)
        return read_outcomes(output, parts, ended)


def kill_process_group(process: subprocess.Popen[bytes]) -> None:
    """Kill the process and all its children."""
    if hasattr(os, "killpg"):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    process.kill()
    process.wait()
    if process.stdin:
        process.stdin.close()


def wait_for_exit(process: subprocess.Popen[bytes], output: Path, seconds: float) -> bool:
    """Wait for the process; False if it exceeds its time limit."""
    started, imported = time.monotonic(), None
    while process.poll() is None:
        now = time.monotonic()
        if imported is None and output.stat().st_size:
            imported = now
        if now - started > IMPORT_SECONDS or (imported is not None and now - imported > seconds):
            return False
        time.sleep(0.01)
    return True


def read_outcomes(output: Path, parts: Sequence[ExercisePart], ended: bool) -> SandboxResult:
    """Read the outcomes; a part without a record gets a failure."""
    lines = output.read_text(encoding="utf-8").split("\n")
    records = [json.loads(line) for line in lines[:-1]]  # the last line is empty or incomplete
    about_file: dict[str, Any] = records[0] if records else {}
    outcomes: dict[str, list[Outcome]] = {}
    running = ""
    for record in records[1:]:
        running = record.get("started", "")
        if "name" in record:
            outcomes[record["name"]] = [parse_outcome(o) for o in record["outcomes"]]
    failure = parse_failure(about_file.get("failure"))
    if not records:
        failure = Failure("died" if ended else "slow", f"importing the file: {PROCESS_DIED if ended else TIMED_OUT}")
    elif failure is None or outcomes:
        outcomes = {
            part.name: outcomes.get(part.name) or [missing_outcome(part.name, running, ended)] for part in parts
        }
    printed = "".join(record.get("printed", "") for record in records)
    return SandboxResult(about_file.get("library", "numpy"), outcomes, failure, printed)


TIMED_OUT, PROCESS_DIED = "it did not finish in time", "it ended the Python process, or used too much memory"


def missing_outcome(part: str, running: str, ended: bool) -> Outcome:
    """The outcome of a part without a record: it was running when the process ended, or comes after that part."""
    if part == running:
        return Outcome(failure=Failure("died", PROCESS_DIED) if ended else Failure("slow", TIMED_OUT))
    why = "ended the Python process" if ended else "used up the time"
    return Outcome(failure=Failure("skipped", f"not tried: {running} {why}"))


def parse_outcome(record: dict[str, Any]) -> Outcome:
    return Outcome(
        unpack(record.get("value")),
        parse_failure(record.get("failure")),
        tuple(record.get("changed", ())),
        record.get("nondeterministic", False),
    )


def parse_failure(record: dict[str, Any] | None) -> Failure | None:
    return Failure(**record) if record else None
