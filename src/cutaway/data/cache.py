"""Where prepared corpora are kept, so that they are prepared once. The folder can be deleted at any time.

$CUTAWAY_CACHE, else the user's cache folder (~/.cache/cutaway on Linux)
  data/KEY/          the key follows from all that the contents follow from
    about.json       what is in it; size and checksum of every other file
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

VARIABLE = "CUTAWAY_CACHE"
ABOUT = "about.json"
LOCK = "lock"  # held by the process that is building an entry
A_DAY, A_MOMENT = 24 * 60 * 60, 1.0  # seconds


def cache_folder() -> Path:
    if os.environ.get(VARIABLE):
        return Path(os.environ[VARIABLE]).expanduser()
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData/Local") / "cutaway" / "Cache"
    if sys.platform == "darwin":
        return Path.home() / "Library/Caches/cutaway"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "cutaway"


def cache_entry_path(cache_ingredients: dict[str, Any]) -> Path:
    """The folder for what follows from these, and from nothing else."""
    key = hashlib.sha256(json.dumps(cache_ingredients, sort_keys=True).encode()).hexdigest()[:32]
    return cache_folder() / "data" / key


def digest(path: Path) -> str:
    """Of the contents of a file, wherever it lies and whatever it is called."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_entry(place: Path) -> dict[str, Any] | None:
    """What about.json says, if all files are as they were written; else None, as if there were nothing."""
    try:
        about: dict[str, Any] = json.loads((place / ABOUT).read_text(encoding="utf-8"))
        for name, (size, checksum) in about["files"].items():
            file = place / name
            if file.stat().st_size != size or file_checksum(file) != checksum:
                return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    with suppress(OSError):  # of a cache that others have made
        os.utime(place)  # so that `entries` can tell when it was last used
    return about


@dataclass(frozen=True)
class CacheEntry:
    """A prepared corpus, for people who want to know what fills their disk."""

    place: Path
    task: str
    examples: int
    size: int  # bytes
    last_used: float  # seconds since 1970


def entries() -> list[CacheEntry]:
    """What is in the cache, what was used last coming first."""
    found = []
    for about in (cache_folder() / "data").glob(f"*/{ABOUT}"):
        try:
            about_entry = json.loads(about.read_text(encoding="utf-8"))
            size = about.stat().st_size + sum(size for size, _ in about_entry["files"].values())
            place = about.parent
            found.append(
                CacheEntry(place, about_entry["made of"]["task"], about_entry["examples"], size, place.stat().st_mtime)
            )
        except (OSError, ValueError, KeyError, TypeError):
            continue  # it is being made, or damaged: then it is made again when it is needed
    return sorted(found, key=lambda entry: -entry.last_used)


def remove_entries(unused_for: float = 0.0) -> list[CacheEntry]:
    """Those that nobody has used for so many seconds. A training that reads one goes on: its files are open."""
    old = [entry for entry in entries() if time.time() - entry.last_used >= unused_for]
    for entry in old:
        shutil.rmtree(entry.place, ignore_errors=True)
    return old


@contextmanager
def building(place: Path) -> Iterator[Path]:
    """A folder beside `place`, renamed to it when the block ends well and removed when it does not.

    Two processes may build the same entry: the one that is finished first stays.
    """
    temporary = None
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        remove_abandoned(place)
        temporary = Path(tempfile.mkdtemp(dir=place.parent, prefix=f".{place.name}."))
        with (temporary / LOCK).open("ab") as lock:
            try_lock(lock)  # as long as this process lives
            yield temporary
        (temporary / LOCK).unlink()
        os.chmod(temporary, 0o755)
        if read_entry(place) is None:
            shutil.rmtree(place, ignore_errors=True)  # a damaged one
            try:
                os.replace(temporary, place)
            except OSError:
                if read_entry(place) is None:  # not because another process was quicker
                    raise
    except OSError as error:
        if isinstance(error, DataError):
            raise
        raise DataError(
            f"the prepared corpus cannot be written to {place.parent}: {error.strerror or error}. Make room there, "
            f"or set {VARIABLE} to a folder that has it."
        ) from None
    finally:
        if temporary is not None:
            shutil.rmtree(temporary, ignore_errors=True)


def remove_abandoned(place: Path) -> None:
    """What processes left behind that were killed while they were building an entry."""
    for folder in place.parent.glob(".*.*"):
        with suppress(OSError):  # another process removes it, or has finished it
            if is_abandoned(folder):
                shutil.rmtree(folder, ignore_errors=True)


def is_abandoned(folder: Path) -> bool:
    """Whether the process that was building it is gone; where files cannot be locked, whether a day has passed."""
    age = time.time() - folder.stat().st_mtime
    if age > A_DAY:
        return True
    if age < A_MOMENT or not (folder / LOCK).is_file():  # a new one may not have locked it yet
        return False
    with (folder / LOCK).open("ab") as lock:
        return try_lock(lock)


def try_lock(file: IO[bytes]) -> bool:
    """Lock a file for this process, and say whether that was possible: another may hold it."""
    try:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (ImportError, OSError):
        return False
    return True
