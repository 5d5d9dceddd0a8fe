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
process) finds the old file or the new one, never half of one. What a killed process left is removed by the next one.

Every file that decides an answer is sealed. A weights file carries a SHA-256 of itself; config.json carries one of
itself, and of the files beside it that never change. It is written last. Runs of version 0.1 have no seal in
config.json: they load, with a note.
"""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
import re
import shutil
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Set
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import IO, Any

from cutaway.config import SEAL, Config, ModelConfig, config_from_tables, is_run
from cutaway.errors import ConfigError, RunError

if sys.platform != "win32":
    import fcntl

__all__ = ["is_run"]  # beside what is defined here
CHECKSUM = "sha256"  # the key in a safetensors file's metadata
LONGEST_HEADER = 100_000_000  # bytes: the format allows no more
Shapes = Mapping[str, tuple[int, ...]]


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
            if (self.path / "operated.safetensors").is_file():  # see course/trial.py
                started = "It is of the lab, and its model was operated on: no command can rebuild it. "
            raise RunError(
                f"the run folder {str(self.path)!r} has no {' and no '.join(missing)}. {started}"
                "A run that can be loaded has config.json, tokenizer.json and model.safetensors."
            )
        return self

    def require_started(self) -> RunFolder:
        """This run, if there is one to go on with."""
        if not self.config.is_file():
            others = self._neighbours() if list(self.path.parent.glob("*/config.json")) else ""
            raise RunError(
                f"there is no run in {str(self.path)!r} to resume.{others} Train without --resume to begin one."
            )
        self.refuse_links()
        return self

    def _neighbours(self) -> str:
        parent = self.path.parent
        runs = sorted(p.parent.name for p in parent.glob("*/config.json")) if parent.is_dir() else []
        if runs:
            return f" In {str(parent)!r} there are: {', '.join(runs)}."
        return " Train one with `cutaway demo` or `cutaway train RECIPE.toml`."

    def read_config(self) -> Config:
        """The configuration, after checking that it and the files beside it are those that were written."""
        tables = read_json(self.config)
        seal = tables.pop(SEAL, None)
        if seal is not None:
            self._check_seal(tables, seal)
        try:
            return config_from_tables(tables)
        except ConfigError as error:
            raise RunError(f"{self.config} cannot be used: {error}") from None
        except Exception as error:  # of an unsealed file: anything may stand anywhere
            raise damaged(self.config, f"it makes no sense ({error!r})") from None

    def write_config(self, config: Config) -> None:
        """Write config.json, the last file of a new run: it seals itself and the files beside it."""
        tables = json.loads(config.to_json())
        write_json(self.config, {**tables, SEAL: self._seal(tables)})

    def _seal(self, tables: Mapping[str, Any]) -> dict[str, str]:
        files = (self.tokenizer, self.tokenizer_roles, self.labels)
        seal = {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files if file.is_file()}
        return {**seal, self.config.name: checksum({**tables, SEAL: seal})}

    def _check_seal(self, tables: Mapping[str, Any], seal: Any) -> None:
        now = self._seal(tables)
        if not isinstance(seal, dict) or seal.get(self.config.name) != checksum(
            {**tables, SEAL: {name: value for name, value in seal.items() if name != self.config.name}}
        ):
            raise damaged(self.config, "its checksum differs from the one it was written with")
        for name in sorted({*seal, *now} - {self.config.name}):
            if name not in now:
                raise RunError(f"{self.path / name} is missing. Restore it from a copy.")
            if name not in seal:
                raise RunError(f"{self.path / name} was not there when the run was written. Move it away.")
            if now[name] != seal[name]:
                raise damaged(self.path / name, f"its checksum differs from the one in {self.config.name}")

    @property
    def is_sealed(self) -> bool:
        """Whether config.json carries checksums; runs of version 0.1 have none."""
        return SEAL in read_json(self.config)

    def read_weights(self, path: Path | None = None) -> bytes:
        """The bytes of a weights file of this run: that of its model, or another one."""
        return read_sealed(path or self.weights, must_be_sealed=self.is_sealed)

    def verify(self) -> dict[str, str]:
        """Read every sealed file. File -> what is wrong with it; empty if it is whole."""

        def problem(read: Callable[..., Any], *arguments: Any) -> str:
            try:
                read(*arguments)
            except RunError as error:
                return str(error)
            return ""

        found = {self.config.name: problem(self.read_config)}
        if self.data.is_file():
            found[self.data.name] = problem(self.read_data)
        weights = [self.weights] if self.weights.is_file() else []
        checkpoints = [file for folder in self.saved() for file in sorted(folder.iterdir())]
        for file in (*weights, *checkpoints, *sorted(self.snapshots.glob("step_*.safetensors"))):
            read = partial(read_sealed, must_be_sealed=True) if file.suffix == ".safetensors" else read_sealed_json
            found[str(file.relative_to(self.path))] = problem(read, file)
        return found

    def seal(self) -> None:
        """Give the files as they are now new checksums in config.json."""
        tables = read_json(self.config)
        tables.pop(SEAL, None)
        if self.data.is_file():
            record = read_json(self.data)
            record.pop(CHECKSUM, None)
            write_sealed_json(self.data, record)
        if self.adapter.is_file():
            write_bytes(self.adapter, sealed(self.read_weights(self.adapter)))  # metadata was not covered once
        self.write_config(config_from_tables(tables))

    def read_data(self) -> dict[str, Any]:
        """What is known of the training data: its fingerprint, and how many examples there are."""
        return read_sealed_json(self.data, must_be_sealed=self.is_sealed)

    def read_labels(self) -> list[str]:
        """The names of the classes; none, if the run has no classes."""
        labels = read_json(self.labels, list) if self.labels.is_file() else []
        if not all(isinstance(label, str) for label in labels):
            raise damaged(self.labels, "a label is not a text")
        return list(labels)

    def read_job(self) -> str | None:
        """The torchrun job that began this run, if one did."""
        with suppress(RunError):
            job = self.read_data().get("job")
            return job if isinstance(job, str) else None
        return None

    def checkpoint(self, step: int) -> Path:
        return self.checkpoints / f"step_{step:06d}"

    def snapshot(self, step: int) -> Path:
        return self.snapshots / f"step_{step:06d}.safetensors"

    def pointer(self, name: str) -> Path | None:
        """The checkpoint that `latest` or `best` names, if there is one."""
        file = self.path / name
        if not file.is_file():
            return None
        target = self.checkpoints / file.read_text(encoding="utf-8", errors="replace").strip()
        return target if target in self.saved() else None

    def saved(self) -> list[Path]:
        """The checkpoints, oldest first."""
        folders = [path for path in self.checkpoints.glob("step_*") if re.fullmatch(r"step_[0-9]{1,18}", path.name)]
        return sorted((path for path in folders if path.is_dir()), key=lambda path: int(path.name[5:]))

    def set_pointer(self, name: str, checkpoint: Path) -> None:
        write_text(self.path / name, checkpoint.name + "\n")

    def prune_checkpoints(self, keep: int) -> None:
        """Keep the last `keep` checkpoints, and the best one."""
        everything = self.saved()
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
        self.refuse_links()
        lock, deadline = self.path / "lock", time.monotonic() + patience
        while (file := locked_file(lock)) is None:
            if time.monotonic() > deadline:
                raise RunError(
                    f"another process is training into {str(self.path)!r}. Wait until it is done, stop it, or "
                    "train into another folder with --run."
                )
            time.sleep(0.1)
        with file:
            self.clear_leftovers()
            try:
                yield
            finally:
                with suppress(OSError):  # Windows keeps what is open
                    lock.unlink()

    def refuse_links(self) -> None:
        """What a training writes or deletes must be in this folder: a link would lead it to another run's files."""
        for name in sorted(RUN_FILES):
            if (path := self.path / name).is_symlink():
                raise RunError(
                    f"{path} is a link to {os.path.realpath(path)}, and a run writes and deletes in its own folder "
                    "only. Replace the link by what it points to, or remove it."
                )

    def clear_leftovers(self) -> None:
        """Remove the temporary files of a training that was killed while it saved. For who holds the lock."""
        clear_leftovers(self.path, RUN_FILES.__contains__)
        for folder in (self.checkpoints, self.snapshots, self.figures):
            clear_leftovers(folder)

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
        rows = map(metrics_row, self.metrics.read_text(encoding="utf-8", errors="replace").splitlines())
        return [row for row in rows if row]

    def forget_metrics_after(self, step: int) -> None:
        """Drop the rows of steps that a resumed run is going to do again."""
        rows = [row for row in self.read_metrics() if row.get("step", 0) <= step]
        write_text(self.metrics, "".join(json.dumps(row) + "\n" for row in rows))

    def clear(self) -> None:
        """Remove what an earlier training left here, and only that: other files of the user's stay."""
        for name in sorted(RUN_FILES - {"lock"}):  # config.json before the rest: what is left is then no run
            path = self.path / name
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)


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


def metrics_row(line: str) -> dict[str, Any] | None:
    """A line of metrics.jsonl: numbers by name, and samples. None: it is damaged, as the last line of a killed run."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(row, dict) or not isinstance(row.get("step"), int):
        return None
    samples = row.get("samples", [])
    are_texts = isinstance(samples, list) and all(
        isinstance(sample, dict) and {*map(type, sample.values())} <= {str} for sample in samples
    )
    numbers = [value for name, value in row.items() if name != "samples"]
    return row if are_texts and all(type(value) in (int, float) for value in numbers) else None


def sealed(safetensors: bytes) -> bytes:
    """A serialised safetensors file with a checksum of its content added to its own header.

    One file that checks itself can be replaced in one rename; a file and its checksum cannot.
    """
    header, data = _split(safetensors)
    metadata = {**header.get("__metadata__", {}), CHECKSUM: _checksum(header, data)}
    header["__metadata__"] = dict(sorted(metadata.items()))  # the library gives them in any order
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # the format wants the tensors aligned
    return struct.pack("<Q", len(text)) + text + data


def read_sealed(path: Path, must_be_sealed: bool = False) -> bytes:
    """The bytes of a weights file, after checking that they are those that were written."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise RunError(f"there is no weights file {path}.") from None
    header, data = _split(content, path)
    written = max((entry["data_offsets"][1] for entry in _entries(header)), default=0)
    if len(data) != written:
        raise damaged(path, f"it holds {len(data)} bytes of weights, {written} were written")
    expected = header.get("__metadata__", {}).get(CHECKSUM)
    if expected is None and must_be_sealed:
        raise damaged(path, "it carries no checksum, and all files of this run do")
    if expected is not None and expected not in (_checksum(header, data), _checksum_of_tensors(header, data)):
        raise damaged(path, "its checksum differs from the one it was written with")
    return content


def metadata_of(path: Path) -> dict[str, str]:
    """What the header of a weights file says beside its tensors: its checksum, and of an adapter what it is for."""
    return dict(read_header(path).get("__metadata__", {}))


def read_header(path: Path) -> dict[str, Any]:
    """The header of a weights file, without its tensors: type, shape and place of each, and the metadata."""
    try:
        with path.open("rb") as file:
            start = file.read(8)
            length = struct.unpack("<Q", start)[0] if len(start) == 8 else 0
            header = _header(file.read(min(length, LONGEST_HEADER)), path)
            end = 8 + length + max((entry["data_offsets"][1] for entry in _entries(header)), default=0)
            if (size := os.fstat(file.fileno()).st_size) != end:
                raise damaged(path, f"it has {size} bytes, {end} were written")
            return header
    except FileNotFoundError:
        raise RunError(f"there is no weights file {path}.") from None


def shapes_of(path: Path) -> Shapes:
    """The shape of each tensor in a weights file."""
    return {name: tuple(entry["shape"]) for name, entry in read_header(path).items() if name != "__metadata__"}


def identity_of(path: Path) -> str:
    """By which weights are known again: the checksum that they were sealed with."""
    return metadata_of(path).get(CHECKSUM) or _checksum(*_split(path.read_bytes(), path))


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


def check_sizes(model: ModelConfig, shapes: Shapes, where: str) -> None:
    """Refuse a configuration that asks for more than the weights hold, before anything of that size is built."""
    layers = sum(getattr(model, f"{side}_layers") for side in model.sides)
    experts, width = max(1, model.experts), model.d_model
    tensors = layers * (4 + 2 * experts)  # at least: four projections of attention, two matrices of each network
    attention = 2 * width * (model.n_heads + model.kv_heads) * model.head_width
    weights = layers * (attention + 2 * experts * width * model.d_ff) + width * (model.vocab_size + model.n_classes)
    held = sum(math.prod(shape) for shape in shapes.values())
    if tensors > len(shapes) or weights > held:
        raise RunError(
            f"{where} and config.json do not fit: a model of {layers} layers and width {width} has at least "
            f"{weights:,} weights in {tensors:,} tensors, and the file holds {held:,} in {len(shapes):,}. "
            "Restore the one that was changed."
        )


def _some(names: Set[str]) -> str:
    """A few of many names, for a message."""
    shown = sorted(names)[:3]
    return (", ".join(shown) + (f" and {len(names) - 3} more" if len(names) > 3 else "")) or "nothing"


def _split(content: bytes, path: Path = Path("weights")) -> tuple[dict[str, Any], memoryview]:
    """A safetensors file is: length of the header (8 bytes), header (JSON), tensors."""
    length = struct.unpack_from("<Q", content)[0] if len(content) >= 8 else 0
    return _header(content[8 : 8 + length], path), memoryview(content)[8 + length :]


def _header(text: bytes, path: Path) -> dict[str, Any]:
    try:
        header = json.loads(text)
        metadata = header.get("__metadata__", {})
        are_texts = all(isinstance(value, str) for value in metadata.values())
        for entry in _entries(header):
            begin, end = entry["data_offsets"]
            numbers = [begin, end, *entry["shape"]]
            if not all(type(number) is int and number >= 0 for number in numbers) or begin > end:
                raise ValueError(entry)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        are_texts = False
    if not are_texts:
        raise damaged(path, "its header is cut off or not readable")
    return dict(header)


def _entries(header: Mapping[str, Any]) -> list[Any]:
    return [entry for name, entry in header.items() if name != "__metadata__"]


def _checksum(header: Mapping[str, Any], data: memoryview) -> str:
    """Of the tensors, and of the metadata if there is any: an adapter's says which base it is for."""
    metadata = {name: value for name, value in header.get("__metadata__", {}).items() if name != CHECKSUM}
    covered = {name: entry for name, entry in header.items() if name != "__metadata__"}
    covered |= {"__metadata__": metadata} if metadata else {}
    digest = hashlib.sha256(json.dumps(covered, sort_keys=True).encode())
    digest.update(data)
    return digest.hexdigest()


def _checksum_of_tensors(header: Mapping[str, Any], data: memoryview) -> str:
    """As version 0.1 computed it."""
    return _checksum({name: entry for name, entry in header.items() if name != "__metadata__"}, data)


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
