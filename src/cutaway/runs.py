"""The run folder: everything about one trained model, in plain files. No torch here.

    runs/NAME/
      config.json  tokenizer.json  model.safetensors   enough to load: the best weights
                                   adapter.safetensors  instead, of a fine-tuned run that leaves its base as it is
      labels.json                                      of a classifier or tagger: the names of its classes
      checkpoints/step_001000/                         model, optimizer, state: enough to go on
      snapshots/step_000100.safetensors                weights only, to look at how it learned
      data.json                                        a fingerprint of the training data, checked on resume
      metrics.jsonl  report.html  scores.json          what happened
      latest  best                                     text files with the name of a checkpoint

Whatever is written is first written beside its place and then renamed into it, so a reader (or a killed
process) finds the old file or the new one, never half of one. Weights carry a checksum of themselves.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Set
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from cutaway.config import Config, is_run
from cutaway.errors import RunError

__all__ = ["is_run"]  # beside what is defined here
CHECKSUM = "sha256"  # the key in a safetensors file's metadata
LONGEST_HEADER = 100_000_000  # bytes: the format allows no more


class RunFolder:
    """The paths of a run, and how its small files are read and written."""

    def __init__(self, path: str | Path):
        self.path = Path(path)
        self.config = self.path / "config.json"
        self.tokenizer = self.path / "tokenizer.json"
        self.tokenizer_roles = self.path / "tokenizer_config.json"  # for a tokenizer that came from elsewhere
        self.labels = self.path / "labels.json"  # of a classifier or tagger: the names, in the order of their ids
        self.model = self.path / "model.safetensors"
        self.adapter = self.path / "adapter.safetensors"  # instead: what stands beside the weights of a base
        self.data = self.path / "data.json"
        self.metrics = self.path / "metrics.jsonl"
        self.scores = self.path / "scores.json"
        self.report = self.path / "report.html"
        self.figures = self.path / "figures"
        self.checkpoints = self.path / "checkpoints"
        self.snapshots = self.path / "snapshots"

    def __str__(self) -> str:
        return str(self.path)

    @property
    def weights(self) -> Path:
        """What the run is known by: all weights of a model, or those of an adapter."""
        return self.adapter if self.adapter.is_file() else self.model

    def require(self) -> RunFolder:
        """This run, or an error that says what is missing from it."""
        if not self.path.is_dir():
            raise RunError(f"there is no run folder {str(self.path)!r}.{self._neighbours()}")
        reads = self.labels if self.labels.is_file() else self.tokenizer  # a classifier of images has no tokenizer
        missing = [p.name for p in (self.config, reads, self.weights) if not p.is_file()]
        if missing:
            only_started = self.config.is_file() and not self.weights.is_file()
            started = "It was started but has no weights yet: train on, or anew. " if only_started else ""
            if (self.path / "operated.safetensors").is_file():  # see learn/arm.py
                started = "It is of the lab, and its model was operated on: no command can rebuild it. "
            raise RunError(
                f"the run folder {str(self.path)!r} has no {' and no '.join(missing)}. {started}"
                "A run that can be loaded has config.json, tokenizer.json and model.safetensors."
            )
        return self

    def require_started(self) -> RunFolder:
        """This run, if there is one to go on with."""
        if not self.config.is_file():
            raise RunError(f"there is no run in {str(self.path)!r} to resume. Train without --resume to begin one.")
        return self

    def _neighbours(self) -> str:
        parent = self.path.parent
        runs = sorted(p.parent.name for p in parent.glob("*/config.json")) if parent.is_dir() else []
        if runs:
            return f" In {str(parent)!r} there are: {', '.join(runs)}."
        return " Train one with `cutaway demo` or `cutaway train RECIPE.toml`."

    def read_config(self) -> Config:
        try:
            return Config.from_json(self.config.read_text(encoding="utf-8"))
        except json.JSONDecodeError as error:
            raise RunError(f"{self.config} is damaged (not JSON: {error}). Restore it or train again.") from None

    def read_labels(self) -> list[str]:
        """The names of the classes; none, if the run has no classes."""
        return list(json.loads(self.labels.read_text(encoding="utf-8"))) if self.labels.is_file() else []

    def checkpoint(self, step: int) -> Path:
        return self.checkpoints / f"step_{step:06d}"

    def snapshot(self, step: int) -> Path:
        return self.snapshots / f"step_{step:06d}.safetensors"

    def pointer(self, name: str) -> Path | None:
        """The checkpoint that `latest` or `best` names, if there is one."""
        file = self.path / name
        if not file.is_file():
            return None
        target = self.checkpoints / file.read_text(encoding="utf-8").strip()
        return target if target.is_dir() else None

    def set_pointer(self, name: str, checkpoint: Path) -> None:
        write_text(self.path / name, checkpoint.name + "\n")

    def prune_checkpoints(self, keep: int) -> None:
        """Keep the last `keep` checkpoints, and the best one."""
        everything = sorted(self.checkpoints.glob("step_*[0-9]"), key=lambda p: int(p.name.split("_")[1]))
        spared = {*everything[-keep:], self.pointer("best"), self.pointer("latest")}
        for folder in everything:
            if folder not in spared:
                shutil.rmtree(folder)

    @contextmanager
    def locked(self, patience: float = 20.0) -> Iterator[None]:
        """While the block runs, no other process trains into this folder. It ends with the process, however that ends.

        One that was killed may leave others that are still about to notice: they get some seconds.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        lock, deadline = self.path / "lock", time.monotonic() + patience
        while (file := locked_file(lock)) is None:
            if time.monotonic() > deadline:
                raise RunError(
                    f"another process is training into {str(self.path)!r}. Wait until it is done, stop it, or "
                    "train into another folder with --run."
                )
            time.sleep(0.1)
        with file:
            try:
                yield
            finally:
                with suppress(OSError):  # Windows keeps what is open
                    lock.unlink()

    @property
    def is_being_trained(self) -> bool:
        """Whether a process holds the lock."""
        try:
            with (self.path / "lock").open("r+b") as file:
                return not _lock(file)
        except OSError:  # no lock, or not ours to open
            return False

    def append_metrics(self, row: dict[str, Any]) -> None:
        with self.metrics.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")

    def read_metrics(self) -> list[dict[str, Any]]:
        if not self.metrics.is_file():
            return []
        rows = []
        for line in self.metrics.read_text(encoding="utf-8").splitlines():
            try:
                rows.append(json.loads(line))
            except json.JSONDecodeError:  # the last line of a killed run
                continue
        return rows

    def forget_metrics_after(self, step: int) -> None:
        """Drop the rows of steps that a resumed run is going to do again."""
        rows = [row for row in self.read_metrics() if row.get("step", 0) <= step]
        write_text(self.metrics, "".join(json.dumps(row) + "\n" for row in rows))

    def clear(self) -> None:
        """Remove what an earlier training left here, and only that: other files of the user's stay."""
        for path in (self.checkpoints, self.snapshots, self.figures, self.path / "tensorboard"):
            shutil.rmtree(path, ignore_errors=True)
        files = (
            self.config,
            self.tokenizer,
            self.tokenizer_roles,
            self.labels,
            self.model,
            self.adapter,
            self.data,
            self.metrics,
            self.scores,
            self.report,
        )
        for file in (*files, self.path / "latest", self.path / "best"):
            file.unlink(missing_ok=True)


# What a run folder may hold: nothing else is ever removed with it.
RUN_FILES = {
    "config.json", "tokenizer.json", "tokenizer_config.json", "labels.json", "model.safetensors", "adapter.safetensors",
    "data.json", "metrics.jsonl", "scores.json", "report.html", "figures", "checkpoints", "snapshots", "tensorboard",
    "latest", "best", "lock",
}  # fmt: skip


def check_target(folder: Path, overwrite: bool, is_ours: Callable[[Path], bool], known: Callable[[str], bool]) -> None:
    """A folder that holds anything is replaced on request alone, and only if it holds nothing but what we write."""
    if folder.is_file():
        raise RunError(f"{folder} is a file. Name a folder that does not exist yet.")
    inside = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    if not inside:
        return
    if not overwrite:
        raise RunError(f"the folder {folder} is not empty. Name another one, or have it replaced (--overwrite).")
    if not is_ours(folder):
        raise RunError(
            f"the folder {folder} is not what would be written there, so it is not replaced. Name another one."
        )
    foreign = [name for name in inside if not known(name)]
    if foreign:
        raise RunError(
            f"the folder {folder} holds other files too ({', '.join(foreign[:3])}), so it is not replaced. Move them "
            "away, or name another folder."
        )
    if RunFolder(folder).is_being_trained:
        raise RunError(f"another process is training into {folder}. Wait until it is done, or name another folder.")


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary file beside `path`, renamed to it when the block ends well and removed when it does not."""
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
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}."))
    try:
        yield temporary
        for file in (file for file in temporary.rglob("*") if file.is_file()):
            _flush_to_disk(file)
        os.chmod(temporary, 0o777 & ~_umask())
        _put_in_place(temporary, path)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _put_in_place(new: Path, path: Path) -> None:
    if not path.exists():
        os.replace(new, path)
        return
    aside = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}."))
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


def sealed(safetensors: bytes) -> bytes:
    """A serialised safetensors file with a checksum of its tensors added to its own header.

    One file that checks itself can be replaced in one rename; a file and its checksum cannot.
    """
    header, data = _split(safetensors)
    told = {**header.get("__metadata__", {}), CHECKSUM: _checksum(header, data)}
    header["__metadata__"] = dict(sorted(told.items()))  # the library gives them in any order
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # the format wants the tensors aligned
    return struct.pack("<Q", len(text)) + text + data


def read_sealed(path: Path) -> bytes:
    """The bytes of a weights file, after checking that they are those that were written."""
    damaged = f"{path} is damaged"
    remedy = "Restore it from a copy, or take the weights of a checkpoint in the run's checkpoints/ folder."
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise RunError(f"there is no weights file {path}.") from None
    try:
        header, data = _split(content)
    except (struct.error, ValueError):
        raise RunError(f"{damaged}: its header is cut off or not readable ({len(content)} bytes). {remedy}") from None
    expected_size = max((entry["data_offsets"][1] for key, entry in header.items() if key != "__metadata__"), default=0)
    if len(data) != expected_size:
        raise RunError(f"{damaged}: it holds {len(data)} bytes of weights, {expected_size} were written. {remedy}")
    expected = header.get("__metadata__", {}).get(CHECKSUM)
    if expected and _checksum(header, data) != expected:
        raise RunError(f"{damaged}: its checksum differs from the one it was written with. {remedy}")
    return content


def metadata_of(path: Path) -> dict[str, str]:
    """What the header of a weights file says beside its tensors: its checksum, and of an adapter what it is for."""
    try:
        with path.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            header = json.loads(file.read(min(length, LONGEST_HEADER)))
        return dict(header.get("__metadata__", {}))
    except FileNotFoundError:
        raise RunError(f"there is no weights file {path}.") from None
    except (struct.error, ValueError, AttributeError):
        raise RunError(f"{path} is damaged: its header is cut off or not readable. Restore it from a copy.") from None


def identity_of(path: Path) -> str:
    """By which weights are known again: the checksum that they were sealed with."""
    return metadata_of(path).get(CHECKSUM) or _checksum(*_split(path.read_bytes()))


Shapes = Mapping[str, tuple[int, ...]]


def check_fit(expected: Shapes, saved: Shapes, where: str) -> None:
    """Saved weights fit a model if no name is missing, none is left over, and every shape agrees."""
    question = "Is config.json the one that they were trained with?"
    missing, surplus = expected.keys() - saved.keys(), saved.keys() - expected.keys()
    if missing or surplus:
        raise RunError(
            f"{where} and the model do not fit: missing {_some(missing)}, unknown {_some(surplus)}. {question}"
        )
    for name, shape in expected.items():
        if tuple(shape) != tuple(saved[name]):
            there, here = tuple(saved[name]), tuple(shape)
            raise RunError(f"{where} and the model do not fit: {name} is {there} there and {here} here. {question}")


def _some(names: Set[str]) -> str:
    """A few of many names, for a message."""
    shown = sorted(names)[:3]
    return (", ".join(shown) + (f" and {len(names) - 3} more" if len(names) > 3 else "")) or "nothing"


def _split(content: bytes) -> tuple[dict[str, Any], memoryview]:
    """A safetensors file is: length of the header (8 bytes), header (JSON), tensors."""
    (length,) = struct.unpack_from("<Q", content)
    return json.loads(content[8 : 8 + length].decode()), memoryview(content)[8 + length :]


def _checksum(header: dict[str, Any], data: memoryview) -> str:
    tensors = {key: entry for key, entry in header.items() if key != "__metadata__"}
    digest = hashlib.sha256(json.dumps(tensors, sort_keys=True).encode())
    digest.update(data)
    return digest.hexdigest()


FAR = 1 << 40


def locked_file(path: Path) -> IO[bytes] | None:
    """The file at `path`, held by this process until it is closed or the process ends; None if another has it."""
    file = path.open("ab")
    try:
        is_mine = _lock(file) and os.fstat(file.fileno()).st_ino == path.stat().st_ino  # not one just removed
    except OSError:
        is_mine = False
    if is_mine:
        return file
    file.close()
    return None


def _lock(file: IO[bytes]) -> bool:
    try:
        if sys.platform == "win32":
            import msvcrt

            file.seek(FAR)  # a place that all agree on and nobody writes to: there, a lock shuts out readers too
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
            file.seek(0, os.SEEK_END)
        else:
            import fcntl

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
