"""The cache of prepared corpora. The folder can be deleted at any time.

$CUTAWAY_CACHE, or the user's cache folder (~/.cache/cutaway on Linux)
  data/KEY/          KEY is a hash of everything that the contents depend on
    about.json       metadata; size and checksum of every other file
    tokenizer.json  train.*.bin  valid.*.bin
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from cutaway.data.memmap import file_checksum
from cutaway.errors import DataError

CACHE_VARIABLE = "CUTAWAY_CACHE"
ABOUT = "about.json"
LOCK = "lock"  # locked by the process that builds an entry
DAY_SECONDS = 24 * 60 * 60
LOCK_SECONDS = 1.0  # a new folder is locked within this time


def cache_folder() -> Path:
    if os.environ.get(CACHE_VARIABLE):
        return Path(os.environ[CACHE_VARIABLE]).expanduser()
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData/Local") / "cutaway" / "Cache"
    if sys.platform == "darwin":
        return Path.home() / "Library/Caches/cutaway"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "cutaway"


def cache_entry_path(cache_ingredients: dict[str, Any]) -> Path:
    """The folder of the entry with these ingredients."""
    key = hashlib.sha256(json.dumps(cache_ingredients, sort_keys=True).encode()).hexdigest()[:32]
    return cache_folder() / "data" / key


def file_digest(path: Path) -> str:
    """A hash of the contents of a file. Its name and folder do not matter."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_entry(path: Path) -> dict[str, Any] | None:
    """The contents of about.json, or None if a file is missing or damaged. Mark the entry as used."""
    try:
        about: dict[str, Any] = json.loads((path / ABOUT).read_text(encoding="utf-8"))
        for name, (size, checksum) in about["files"].items():
            file = path / name
            if file.stat().st_size != size or file_checksum(file) != checksum:
                return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    with suppress(OSError):  # another user may own the cache
        os.utime(path)  # the time of the last use, for `list_entries`
    return about


@dataclass(frozen=True)
class CacheEntry:
    """A prepared corpus in the cache."""

    path: Path
    task: str
    examples: int
    size: int  # bytes
    last_used: float  # seconds since 1970


def list_entries() -> list[CacheEntry]:
    """The entries of the cache, most recently used first."""
    found = []
    for about in (cache_folder() / "data").glob(f"*/{ABOUT}"):
        try:
            about_entry = json.loads(about.read_text(encoding="utf-8"))
            size = about.stat().st_size + sum(size for size, _ in about_entry["files"].values())
            path = about.parent
            found.append(
                CacheEntry(path, about_entry["made of"]["task"], about_entry["examples"], size, path.stat().st_mtime)
            )
        except (OSError, ValueError, KeyError, TypeError):
            continue  # incomplete or damaged
    return sorted(found, key=lambda entry: -entry.last_used)


def remove_entries(unused_for: float = 0.0) -> list[CacheEntry]:
    """Delete entries that were not used for `unused_for` seconds. A training that reads one can continue: it has the
    files open."""
    old = [entry for entry in list_entries() if time.time() - entry.last_used >= unused_for]
    for entry in old:
        shutil.rmtree(entry.path, ignore_errors=True)
    return old


@contextmanager
def build_entry(path: Path) -> Iterator[Path]:
    """A temporary folder. It is renamed to `path` if the with block succeeds, and removed if it fails.

    If two processes build the same entry, the first to finish wins.
    """
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        remove_abandoned(path)
        temporary = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}."))
        with (temporary / LOCK).open("ab") as lock:
            try_lock(lock)  # until this process ends
            yield temporary
        (temporary / LOCK).unlink()
        os.chmod(temporary, 0o755)
        if read_entry(path) is None:
            shutil.rmtree(path, ignore_errors=True)  # remove a damaged entry
            try:
                os.replace(temporary, path)
            except OSError:
                if read_entry(path) is None:  # otherwise another process was faster
                    raise
    except OSError as error:
        if isinstance(error, DataError):
            raise
        raise DataError(
            f"the prepared corpus cannot be written to {path.parent}: {error.strerror or error}. Free some disk space, "
            f"or set {CACHE_VARIABLE} to a folder with enough space."
        ) from None
    finally:
        if temporary is not None:
            shutil.rmtree(temporary, ignore_errors=True)


def remove_abandoned(path: Path) -> None:
    """Remove temporary folders of killed processes."""
    for folder in path.parent.glob(".*.*"):
        with suppress(OSError):  # another process may remove or rename it
            if is_abandoned(folder):
                shutil.rmtree(folder, ignore_errors=True)


def is_abandoned(folder: Path) -> bool:
    """Whether the process that built it has ended. Where files cannot be locked: whether it is older than a day."""
    age = time.time() - folder.stat().st_mtime
    if age > DAY_SECONDS:
        return True
    if age < LOCK_SECONDS or not (folder / LOCK).is_file():  # a new folder may not be locked yet
        return False
    with (folder / LOCK).open("ab") as lock:
        return try_lock(lock)


def try_lock(file: IO[bytes]) -> bool:
    """Lock a file for this process. Return False if another process has the lock."""
    try:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (ImportError, OSError):
        return False
    return True
