"""Files that a killed process never leaves half-written, and JSON that says when it is damaged.

Whatever is written is first written beside its place and then renamed into it, so a reader finds the old file or the
new one. What a killed process left is removed by the next one.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from cutaway.errors import RunError

if sys.platform != "win32":
    import fcntl


CHECKSUM = "sha256"  # the key in a safetensors file's metadata


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary file beside `path`, renamed to it when the block ends well and removed when it does not."""
    with naming(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        _flush_to_disk(temporary)
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def replacing_folder(path: Path) -> Iterator[Path]:
    """As `replacing`, for a whole folder. What it replaces is put aside, and removed when the new one stands there."""
    path = Path(os.path.realpath(path))
    if path in (Path.cwd(), *Path.cwd().parents):
        raise RunError(f"{path} is the folder that you are in: it cannot be replaced from within. Name another one.")
    with naming(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        clear_leftovers(path.parent, path.name.__eq__)
        temporary = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}."))
    try:
        with _held(temporary):
            yield temporary
            for file in (file for file in temporary.rglob("*") if file.is_file()):
                _flush_to_disk(file)
            os.chmod(temporary, 0o777 & ~_umask())
            _put_in_place(temporary, path)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """An error of the system speaks of the file that the user knows, not of the temporary one beside it."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None


TEMPORARY = re.compile(r"\.(?P<name>.+?)\.(?P<aside>before\.)?[a-z0-9_]{8}")  # as tempfile names them


def clear_leftovers(folder: Path, is_ours: Callable[[str], bool] = lambda name: True) -> None:
    """Remove what killed processes left in `folder` while they replaced a file or folder; put back what they moved."""
    for path in folder.iterdir() if folder.is_dir() and not folder.is_symlink() else ():
        match = TEMPORARY.fullmatch(path.name)
        if not match or not is_ours(match["name"]) or _is_in_use(path):
            continue
        whole = folder / match["name"]
        if match["aside"] and (path / match["name"]).exists() and not whole.exists():
            os.replace(path / match["name"], whole)  # killed after the old one was moved, before the new one came
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


@contextmanager
def _held(path: Path) -> Iterator[None]:
    """While the block runs, other processes see that `path` is in use. (Windows cannot lock a folder.)"""
    if sys.platform == "win32":
        yield
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        with suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(handle)


def _is_in_use(path: Path) -> bool:
    """Whether a process that lives is writing it. What is a second old or less may not have been locked yet."""
    try:
        if time.time() - path.lstat().st_mtime <= 1 or sys.platform == "win32":
            return True
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError:
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(handle)
    return False


def _put_in_place(new: Path, path: Path) -> None:
    if not path.exists():
        os.replace(new, path)
        return
    aside = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}.before."))
    os.replace(path, aside / path.name)
    try:
        os.replace(new, path)
    except OSError:
        os.replace(aside / path.name, path)
        raise
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def write_text(path: Path, text: str) -> None:
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")


def write_bytes(path: Path, data: bytes) -> None:
    with replacing(path) as temporary:
        temporary.write_bytes(data)


def write_json(path: Path, value: Any) -> None:
    write_text(path, json.dumps(value, indent=2) + "\n")


def read_text(path: Path) -> str:
    """The text of a file that Cutaway wrote."""
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise RunError(f"there is no file {path}. Restore it from a copy.") from None
    except UnicodeDecodeError as error:
        raise damaged(path, f"it is not UTF-8 ({error})") from None


def read_json(path: Path, kind: type = dict) -> Any:
    """The content of a JSON file that Cutaway wrote. Whatever is wrong with the file is a RunError that names it."""
    try:
        value = json.loads(read_text(path))
    except (ValueError, RecursionError) as error:
        raise damaged(path, f"it is not JSON ({error})") from None
    if not isinstance(value, kind):
        raise damaged(path, f"it holds a {type(value).__name__} and not a {kind.__name__}")
    return value


def write_sealed_json(path: Path, value: Mapping[str, Any]) -> None:
    """A JSON file that carries a checksum of itself."""
    write_json(path, {**value, CHECKSUM: checksum(value)})


def read_sealed_json(path: Path, must_be_sealed: bool = True) -> dict[str, Any]:
    value = read_json(path)
    expected = value.pop(CHECKSUM, None)
    if expected != checksum(value) and (must_be_sealed or expected is not None):
        raise damaged(path, "its checksum differs from the one it was written with")
    return dict(value)


def damaged(path: Path, how: str) -> RunError:
    remedy = "Restore it from a copy."
    if path.name == "config.json" and "checksum" in how:
        remedy += f" If you changed it on purpose, accept it with: cutaway runs {path.parent} --seal"
    if path.suffix == ".safetensors":
        remedy = "Restore it from a copy, or take the weights of a checkpoint in the run's checkpoints/ folder."
    return RunError(f"{path} is damaged: {how}. {remedy}")


def checksum(value: Mapping[str, Any]) -> str:
    """A SHA-256 of what JSON says, however it is laid out."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


FAR = 1 << 40


def locked_file(path: Path) -> IO[bytes] | None:
    """The file at `path`, held by this process until it is closed or the process ends; None if another has it."""
    file = path.open("ab")
    try:
        is_mine = try_lock(file) and os.fstat(file.fileno()).st_ino == path.stat().st_ino  # not one just removed
    except OSError:
        is_mine = False
    if is_mine:
        return file
    file.close()
    return None


def try_lock(file: IO[bytes]) -> bool:
    try:
        if sys.platform == "win32":
            import msvcrt

            file.seek(FAR)  # a place that all agree on and nobody writes to: there, a lock shuts out readers too
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
            file.seek(0, os.SEEK_END)
        else:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno not in (errno.EWOULDBLOCK, errno.EACCES, errno.EDEADLK)  # else: a disk that knows no locks
    return True


def _flush_to_disk(path: Path) -> None:
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
