"""Inside the process that runs a learner's file: python -m cutaway.course.sandbox_child FILE REQUEST TOLD

The first line told is about the file, then come two for each part: that it begins, and its outcomes. So whoever reads
them knows where it was when it had to be stopped.
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

from cutaway.course.values import as_arrays, as_tensors, is_tensor, pack, unpack
from cutaway.system.processes import lines_from_parent

A_CALL = (1.0, 3.0)  # seconds: of computing (a busy machine is no reason to fail), and by the clock
TO_IMPORT = (5.0, 7.0)
MEMORY = 6 << 30
GIVEN = str(Path(__file__).with_name("given.py"))
PRINTED = 2_000  # characters that are kept
MESSAGE = 300  # characters of an error's message


class OutOfTime(BaseException):
    """Not an Exception, so that a learner's `except Exception` lets it through."""


def main(file: str, request: str, told: str) -> None:
    lines_from_parent()  # there are none; but without the parent, this process and all that it starts end
    parts = json.loads(Path(request).read_text(encoding="utf-8"))
    with open(told, "a", encoding="utf-8") as out:
        limit_resources()
        warnings.simplefilter("ignore")  # of overflow and the like: the grader says what came of it
        library = library_of(Path(file))
        with capture() as printed:
            module, trouble = load(Path(file), library)
        tell(out, {"library": library, "trouble": trouble, "printed": printed.kept()})
        for part in parts:
            if module is None:
                break
            tell(out, {"begins": part["name"]})
            with capture() as printed:
                outcomes = try_part(module, part["name"], part["cases"], library)
            tell(out, {"name": part["name"], "outcomes": outcomes, "printed": printed.kept()})
    os._exit(0)  # whatever threads the learner has left behind


def tell(out: TextIO, record: dict[str, Any]) -> None:
    out.write(json.dumps(record) + "\n")
    out.flush()


def library_of(path: Path) -> str:
    """Who imports torch is given tensors, who does not, arrays. Of two that are imported, the one that is used more."""
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError, OSError):
        return "numpy"
    origin: dict[str, str] = {}  # a name in the file -> the package that it comes from
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            origin |= {(a.asname or a.name).partition(".")[0]: a.name.partition(".")[0] for a in node.names}
        elif isinstance(node, ast.ImportFrom):
            origin |= {a.asname or a.name: (node.module or "").partition(".")[0] for a in node.names}
    used = [origin.get(node.id) for node in ast.walk(tree) if isinstance(node, ast.Name)]
    return "torch" if "torch" in origin.values() and used.count("torch") >= used.count("numpy") else "numpy"


def imported_exercises(path: Path) -> list[Path]:
    """The learner's other exercises that this one makes use of."""
    with contextlib.suppress(SyntaxError, ValueError, OSError):
        nodes = [node for node in ast.walk(ast.parse(path.read_bytes())) if isinstance(node, ast.ImportFrom)]
        found = [path.parent / f"{node.module}.py" for node in nodes if (node.module or "").startswith("exercise_")]
        return [file for file in found if file.is_file()]
    return []


def load(path: Path, library: str) -> tuple[ModuleType | None, dict[str, Any] | None]:
    """The learner's file as a module, as far as Python came with it, and what went wrong."""
    sys.path.insert(0, str(path.parent))  # so that it can import its neighbours
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    try:
        if library == "torch":
            __import__("torch").set_num_threads(1)  # before the clock runs
        with time_limit(*TO_IMPORT):
            spec.loader.exec_module(module)
    except SyntaxError as error:
        where = {"line": error.lineno or 0, "source": (error.text or "").strip()}
        return None, {"kind": "error", "message": f"{type(error).__name__}: {error.msg}", **where}
    except BaseException as error:
        return module, trouble_of(error, path)
    return module, None


def try_part(module: ModuleType, name: str, cases: list[Any], library: str) -> list[dict[str, Any]]:
    function = getattr(module, name, None)
    if not callable(function):
        what = type(function).__name__
        trouble = {"kind": "missing", "message": near_name(module, name)}
        return [{"trouble": trouble if function is None else {"kind": "no function", "message": what}}]
    outcomes = []
    for packed in cases:
        outcomes.append(try_case(module, function, packed, library))
        if outcomes[-1].get("trouble", {}).get("kind") in ("to do", "slow", "signature"):
            return outcomes[-1:]
    if "value" in outcomes[0]:
        again = try_case(module, function, cases[0], library)
        outcomes[0]["wavers"] = json.dumps(again.get("value")) != json.dumps(outcomes[0]["value"])
    return outcomes


def try_case(module: ModuleType, function: Any, packed: Any, library: str) -> dict[str, Any]:
    given = as_tensors if library == "torch" else as_arrays
    arguments = given(unpack(packed))
    before = [json.dumps(pack(a)) for a in arguments]
    try:
        inspect.signature(function).bind(*arguments)
    except TypeError:
        takes = inspect.signature(function)
        return {"trouble": {"kind": "signature", "message": f"{function.__name__}{takes}"}}
    except ValueError:
        pass  # something compiled, that does not say what it takes
    try:
        with time_limit(*A_CALL):
            value = pack(function(*arguments))
    except BaseException as error:
        return {"trouble": trouble_of(error, Path(module.__file__ or ""))}
    changed = [i for i, a in enumerate(arguments) if json.dumps(pack(a)) != before[i]]
    return {"value": value, "changed": changed}


def trouble_of(error: BaseException, path: Path) -> dict[str, Any]:
    """What happened, and on which line of the learner's file."""
    kind, message = "error", message_of(error)
    frames = list(traceback.walk_tb(error.__traceback__))
    files = [Path(frame.f_code.co_filename) for frame, _ in frames]
    if isinstance(error, OutOfTime):
        kind, message = "slow", "it does not come to an end"
    elif isinstance(error, NotImplementedError) and files[-1] == path:
        kind = "to do"
    elif isinstance(error, NotImplementedError):
        message += f" (in {files[-1].name}, which is not finished)"
    inner = next((f.f_locals["reference"].__name__ for f, _ in frames if f.f_code.co_filename == GIVEN), "")
    trouble: dict[str, Any] = {"kind": kind, "message": message + (f" (inside {inner})" if inner else "")}
    for frame, line in reversed(frames):
        if Path(frame.f_code.co_filename) == path:
            source = path.read_text(encoding="utf-8", errors="replace").splitlines()
            trouble |= {"line": line, "source": source[line - 1].strip() if line <= len(source) else ""}
            trouble["shapes"] = shapes_in(frame.f_locals) if kind == "error" else {}
            break
    return trouble


def message_of(error: BaseException) -> str:
    """Its kind and its first words; an exception of the learner's own may fail to say any."""
    try:
        text = str(error)
    except Exception:
        text = ""
    text = text if len(text) <= MESSAGE else text[:MESSAGE] + " ..."
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def shapes_in(names: dict[str, Any]) -> dict[str, list[int]]:
    """The arrays and tensors among some variables, with their shapes."""
    import numpy as np

    arrays = {k: v for k, v in names.items() if isinstance(v, np.ndarray) or is_tensor(v)}
    return {name: [int(size) for size in array.shape] for name, array in arrays.items()}


def near_name(module: ModuleType, name: str) -> str:
    """A name like it that is there: a typing error, perhaps."""
    import difflib

    own = [k for k, v in vars(module).items() if inspect.isfunction(v) and v.__module__ == module.__name__]
    near = difflib.get_close_matches(name, own, n=1, cutoff=0.6)
    return near[0] if near else ""


class Bounded(io.TextIOBase):
    """Keeps the beginning of what is printed, and forgets the rest."""

    def __init__(self) -> None:
        self.text = ""

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        if len(self.text) <= PRINTED:
            self.text += text[: PRINTED + 1]
        return len(text)

    def kept(self) -> str:
        return self.text if len(self.text) <= PRINTED else self.text[:PRINTED] + " ...\n"


@contextlib.contextmanager
def capture() -> Iterator[Bounded]:
    printed = Bounded()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        yield printed


@contextlib.contextmanager
def time_limit(computing: float, clock: float) -> Iterator[None]:
    """Stop Python code that takes longer. (Windows has no such signals; there the parent stops the process.)"""
    if not hasattr(signal, "setitimer"):
        yield
        return

    def stop(number: int, frame: object) -> None:
        raise OutOfTime

    signal.signal(signal.SIGPROF, stop)
    signal.signal(signal.SIGALRM, stop)
    # again and again, for code that catches everything
    signal.setitimer(signal.ITIMER_PROF, computing, 0.1)
    signal.setitimer(signal.ITIMER_REAL, clock, 0.1)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)


def limit_resources() -> None:
    """Memory, size of files, no core dumps. (Windows has no such limits.)"""
    try:
        import resource
    except ImportError:
        return
    for what, limit in ((resource.RLIMIT_AS, MEMORY), (resource.RLIMIT_FSIZE, 64 << 20), (resource.RLIMIT_CORE, 0)):
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(what, (limit, resource.getrlimit(what)[1]))


if __name__ == "__main__":
    main(*sys.argv[1:])
