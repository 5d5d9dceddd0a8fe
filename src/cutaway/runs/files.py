"""Atomic writing of files and folders, JSON files with a checksum, and file locks.

A file is written under a temporary name in the same folder and then renamed. So a reader finds the old file or the
new one, never a part. The next process removes the temporary files of a killed one.
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

CHECKSUM = "sha256"  # the key of the checksum in JSON files and in the metadata of safetensors files


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary file. After the block it is renamed to `path`; after an error it is removed."""
    with name_in_errors(path):
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
    """Like `replacing`, for a whole folder. The old folder is moved away first, and removed after the rename."""
    path = Path(os.path.realpath(path))
    if path in (Path.cwd(), *Path.cwd().parents):
        raise RunError(f"{path} is the current folder or contains it, so it cannot be replaced. Name another folder.")
    with name_in_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        clear_leftovers(path.parent, path.name.__eq__)
        temporary = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}."))
    try:
        with _lock_folder(temporary):
            yield temporary
            for file in (file for file in temporary.rglob("*") if file.is_file()):
                _flush_to_disk(file)
            os.chmod(temporary, 0o777 & ~_umask())
            _move_to(temporary, path)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


@contextmanager
def name_in_errors(path: Path) -> Iterator[None]:
    """Name `path` in errors of the operating system, instead of the temporary file."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None


TEMPORARY = re.compile(r"\.(?P<name>.+?)\.(?P<moved>before\.)?[a-z0-9_]{8}")  # the names that tempfile makes


def clear_leftovers(folder: Path, is_ours: Callable[[str], bool] = lambda name: True) -> None:
    """Remove the temporary files of killed processes from `folder`. Move back a folder that they had moved away."""
    for path in folder.iterdir() if folder.is_dir() and not folder.is_symlink() else ():
        match = TEMPORARY.fullmatch(path.name)
        if not match or not is_ours(match["name"]) or _is_in_use(path):
            continue
        target = folder / match["name"]
        if match["moved"] and (path / match["name"]).exists() and not target.exists():
            os.replace(path / match["name"], target)  # killed between the two renames
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


@contextmanager
def _lock_folder(path: Path) -> Iterator[None]:
    """A context in which other processes see that `path` is in use. (Windows cannot lock a folder.)"""
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
    """Whether a running process writes it. One that is up to a second old may not be locked yet."""
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


def _move_to(new: Path, path: Path) -> None:
    if not path.exists():
        os.replace(new, path)
        return
    old = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}.before."))
    os.replace(path, old / path.name)
    try:
        os.replace(new, path)
    except OSError:
        os.replace(old / path.name, path)
        raise
    finally:
        shutil.rmtree(old, ignore_errors=True)


def write_text(path: Path, text: str) -> None:
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")


def write_bytes(path: Path, data: bytes) -> None:
    with replacing(path) as temporary:
        temporary.write_bytes(data)


def write_json(path: Path, value: Any) -> None:
    write_text(path, json.dumps(value, indent=2) + "\n")


def read_text(path: Path) -> str:
    """Read a file that Cutaway wrote."""
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise RunError(f"there is no file {path}. Restore it from a copy.") from None
    except UnicodeDecodeError as error:
        raise damaged_error(path, f"it is not UTF-8 ({error})") from None


def read_json(path: Path, kind: type = dict) -> Any:
    """Read a JSON file that Cutaway wrote. A damaged file raises a RunError with its name."""
    try:
        value = json.loads(read_text(path))
    except (ValueError, RecursionError) as error:
        raise damaged_error(path, f"it is not JSON ({error})") from None
    if not isinstance(value, kind):
        raise damaged_error(path, f"it contains a {type(value).__name__} instead of a {kind.__name__}")
    return value


def write_sealed_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write a JSON file with a checksum of its content."""
    write_json(path, {**value, CHECKSUM: checksum(value)})


def read_sealed_json(path: Path, must_be_sealed: bool = True) -> dict[str, Any]:
    value = read_json(path)
    expected = value.pop(CHECKSUM, None)
    if expected != checksum(value) and (must_be_sealed or expected is not None):
        raise damaged_error(path, "its checksum differs from the one it was written with")
    return dict(value)


def damaged_error(path: Path, how: str) -> RunError:
    """The error for a damaged file. `how` is a sentence without its period."""
    remedy = "Restore it from a copy."
    if path.name == "config.json" and "checksum" in how:
        remedy += f" If you changed it on purpose, accept the change with: cutaway runs {path.parent} --seal"
    if path.suffix == ".safetensors":
        remedy = "Restore it from a copy, or use the weights of a checkpoint in the run's checkpoints/ folder."
    return RunError(f"{path} is damaged: {how}. {remedy}")


def checksum(value: Mapping[str, Any]) -> str:
    """The SHA-256 of a JSON value. It does not depend on the layout of the file."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


LOCK_OFFSET = 1 << 40  # beyond the end of every file: on Windows, a locked range cannot be read


def open_locked(path: Path) -> IO[bytes] | None:
    """Open and lock the file at `path`. The lock ends with the file or the process. None if another process has it."""
    file = path.open("ab")
    try:
        is_locked = try_lock(file) and os.fstat(file.fileno()).st_ino == path.stat().st_ino  # not removed meanwhile
    except OSError:
        is_locked = False
    if is_locked:
        return file
    file.close()
    return None


def try_lock(file: IO[bytes]) -> bool:
    try:
        if sys.platform == "win32":
            import msvcrt

            file.seek(LOCK_OFFSET)
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
            file.seek(0, os.SEEK_END)
        else:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno not in (errno.EWOULDBLOCK, errno.EACCES, errno.EDEADLK)  # else: no locks on this disk
    return True


def _flush_to_disk(path: Path) -> None:
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
