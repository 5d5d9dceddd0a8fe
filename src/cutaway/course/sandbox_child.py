"""The process that runs a learner's file: python -m cutaway.course.sandbox_child FILE REQUEST OUTPUT

It appends lines of JSON to OUTPUT: one about the file, then two for each part, at its start and with its outcomes. If
the process is killed, the last line names the part that was running.
"""

from __future__ import annotations

import ast
import contextlib
import importlib.util
import inspect
import io
import json
import os
import signal
import sys
import traceback
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, TextIO

from cutaway.course.differences import is_same
from cutaway.course.values import as_arrays, as_tensors, is_tensor, pack, unpack
from cutaway.system.processes import lines_from_parent

CALL_LIMITS = (1.0, 3.0)  # seconds of CPU time (independent of other load), and of wall-clock time
IMPORT_LIMITS = (5.0, 7.0)
MEMORY = 6 << 30
GIVEN_FILE = str(Path(__file__).with_name("given.py"))
MAX_PRINTED = 2_000  # characters
MAX_MESSAGE = 300  # characters of an error's message


class TimeLimitExceeded(BaseException):
    """A BaseException, so that a learner's `except Exception` does not catch it."""


def main(file: str, request: str, output: str) -> None:
    lines_from_parent()  # no lines are expected; this ends the process when the parent ends
    parts = json.loads(Path(request).read_text(encoding="utf-8"))
    with open(output, "a", encoding="utf-8") as out:
        limit_resources()
        warnings.simplefilter("ignore")  # overflow and the like: the grader reports the resulting numbers
        library = detect_library(Path(file))
        with capture() as printed:
            module, failure = load_module(Path(file), library)
        write_record(out, {"library": library, "failure": failure, "printed": printed.value()})
        for part in parts:
            if module is None:
                break
            write_record(out, {"started": part["name"]})
            with capture() as printed:
                outcomes = try_part(module, part["name"], part["cases"], library)
            write_record(out, {"name": part["name"], "outcomes": outcomes, "printed": printed.value()})
    os._exit(0)  # do not wait for threads of the learner


def write_record(out: TextIO, record: dict[str, Any]) -> None:
    out.write(json.dumps(record) + "\n")
    out.flush()


def detect_library(path: Path) -> str:
    """Return "torch" if the file imports torch, else "numpy"; if it imports both, the one it uses more."""
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError, OSError):
        return "numpy"
    origin: dict[str, str] = {}  # name in the file -> its package
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            origin |= {(a.asname or a.name).partition(".")[0]: a.name.partition(".")[0] for a in node.names}
        elif isinstance(node, ast.ImportFrom):
            origin |= {a.asname or a.name: (node.module or "").partition(".")[0] for a in node.names}
    used = [origin.get(node.id) for node in ast.walk(tree) if isinstance(node, ast.Name)]
    return "torch" if "torch" in origin.values() and used.count("torch") >= used.count("numpy") else "numpy"


def imported_exercises(path: Path) -> list[Path]:
    """Return the learner's other exercise files that this one imports."""
    with contextlib.suppress(SyntaxError, ValueError, OSError):
        nodes = [node for node in ast.walk(ast.parse(path.read_bytes())) if isinstance(node, ast.ImportFrom)]
        found = [path.parent / f"{node.module}.py" for node in nodes if (node.module or "").startswith("exercise_")]
        return [file for file in found if file.is_file()]
    return []


def load_module(path: Path, library: str) -> tuple[ModuleType | None, dict[str, Any] | None]:
    """Import the learner's file; return the (partial) module and the failure, if any."""
    sys.path.insert(0, str(path.parent))  # so that it can import files next to it
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    try:
        if library == "torch":
            __import__("torch").set_num_threads(1)  # imported before the time limit starts
        with time_limit(*IMPORT_LIMITS):
            spec.loader.exec_module(module)
    except SyntaxError as error:
        where = {"line": error.lineno or 0, "source": (error.text or "").strip()}
        return None, {"kind": "error", "message": f"{type(error).__name__}: {error.msg}", **where}
    except BaseException as error:
        return module, describe_error(error, path)
    return module, None


def try_part(module: ModuleType, name: str, cases: list[Any], library: str) -> list[dict[str, Any]]:
    function = getattr(module, name, None)
    if not callable(function):
        what = type(function).__name__
        failure = {"kind": "missing", "message": similar_name(module, name)}
        return [{"failure": failure if function is None else {"kind": "no function", "message": what}}]
    outcomes = []
    for packed in cases:
        outcomes.append(try_case(module, function, packed, library))
        if outcomes[-1].get("failure", {}).get("kind") in ("to do", "slow", "signature"):
            return outcomes[-1:]
    if "value" in outcomes[0]:
        again = try_case(module, function, cases[0], library)
        outcomes[0]["nondeterministic"] = not is_same(unpack(again.get("value")), unpack(outcomes[0]["value"]))
    return outcomes


def try_case(module: ModuleType, function: Any, packed: Any, library: str) -> dict[str, Any]:
    given = as_tensors if library == "torch" else as_arrays
    arguments = given(unpack(packed))
    before = [pack(a) for a in arguments]
    try:
        inspect.signature(function).bind(*arguments)
    except TypeError:
        takes = inspect.signature(function)
        return {"failure": {"kind": "signature", "message": f"{function.__name__}{takes}"}}
    except ValueError:
        pass  # a compiled function without a signature
    try:
        with time_limit(*CALL_LIMITS):
            value = pack(function(*arguments))
    except BaseException as error:
        return {"failure": describe_error(error, Path(module.__file__ or ""))}
    changed = [i for i, a in enumerate(arguments) if pack(a) != before[i]]
    return {"value": value, "changed": changed}


def describe_error(error: BaseException, path: Path) -> dict[str, Any]:
    """Describe an exception and its line in the learner's file."""
    kind, message = "error", error_message(error)
    frames = list(traceback.walk_tb(error.__traceback__))
    files = [Path(frame.f_code.co_filename) for frame, _ in frames]
    if isinstance(error, TimeLimitExceeded):
        kind, message = "slow", "it did not finish in time"
    elif isinstance(error, NotImplementedError) and files[-1] == path:
        kind = "to do"
    elif isinstance(error, NotImplementedError):
        message += f" (in {files[-1].name}, which is not finished)"
    inner = next((f.f_locals["reference"].__name__ for f, _ in frames if f.f_code.co_filename == GIVEN_FILE), "")
    failure: dict[str, Any] = {"kind": kind, "message": message + (f" (inside {inner})" if inner else "")}
    for frame, line in reversed(frames):
        if Path(frame.f_code.co_filename) == path:
            source = path.read_text(encoding="utf-8", errors="replace").splitlines()
            failure |= {"line": line, "source": source[line - 1].strip() if line <= len(source) else ""}
            failure["shapes"] = array_shapes(frame.f_locals) if kind == "error" else {}
            break
    return failure


def error_message(error: BaseException) -> str:
    """Return the type and the start of the message; str() of a learner's exception may fail."""
    try:
        text = str(error)
    except Exception:
        text = ""
    text = text if len(text) <= MAX_MESSAGE else text[:MAX_MESSAGE] + " ..."
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def array_shapes(names: dict[str, Any]) -> dict[str, list[int]]:
    """Return the shapes of all arrays and tensors among some variables."""
    import numpy as np

    arrays = {k: v for k, v in names.items() if isinstance(v, np.ndarray) or is_tensor(v)}
    return {name: [int(size) for size in array.shape] for name, array in arrays.items()}


def similar_name(module: ModuleType, name: str) -> str:
    """Return a similar function name in the module (probably a typo), or ''."""
    import difflib

    own = [k for k, v in vars(module).items() if inspect.isfunction(v) and v.__module__ == module.__name__]
    near = difflib.get_close_matches(name, own, n=1, cutoff=0.6)
    return near[0] if near else ""


class BoundedBuffer(io.TextIOBase):
    """Stores the start of the output and discards the rest."""

    def __init__(self) -> None:
        self.text = ""

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        if len(self.text) <= MAX_PRINTED:
            self.text += text[: MAX_PRINTED + 1]
        return len(text)

    def value(self) -> str:
        return self.text if len(self.text) <= MAX_PRINTED else self.text[:MAX_PRINTED] + " ...\n"


@contextlib.contextmanager
def capture() -> Iterator[BoundedBuffer]:
    printed = BoundedBuffer()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        yield printed


@contextlib.contextmanager
def time_limit(computing: float, clock: float) -> Iterator[None]:
    """Interrupt code that takes longer. (Windows has no such signals; there the parent kills the process.)"""
    if not hasattr(signal, "setitimer"):
        yield
        return

    def stop(number: int, frame: object) -> None:
        raise TimeLimitExceeded

    signal.signal(signal.SIGPROF, stop)
    signal.signal(signal.SIGALRM, stop)
    # repeated, for code that catches every exception
    signal.setitimer(signal.ITIMER_PROF, computing, 0.1)
    signal.setitimer(signal.ITIMER_REAL, clock, 0.1)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)


def limit_resources() -> None:
    """Limit memory and file size, disable core dumps. (Windows has no such limits.)"""
    try:
        import resource
    except ImportError:
        return
    for what, limit in ((resource.RLIMIT_AS, MEMORY), (resource.RLIMIT_FSIZE, 64 << 20), (resource.RLIMIT_CORE, 0)):
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(what, (limit, resource.getrlimit(what)[1]))


if __name__ == "__main__":
    main(*sys.argv[1:])
