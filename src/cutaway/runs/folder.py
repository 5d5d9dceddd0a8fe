"""The run folder: everything about one trained model, in plain files. No torch here.

    runs/NAME/
      config.json  tokenizer.json  model.safetensors   needed to load the run: the best weights
                                   adapter.safetensors  instead, if only an adapter was trained
      labels.json                                      classifiers and taggers: the names of the classes
      checkpoints/step_001000/                         needed to resume: model, optimizer, state
      snapshots/step_000100.safetensors                weights only, to see how the model learned
      data.json                                        a fingerprint of the training data, checked on resume
      metrics.jsonl  report.html  scores.json          losses and scores
      latest  best                                     text files with the name of a checkpoint

A file is written under a temporary name and then renamed (files.py). So a reader finds the old file or the new one,
never a part.

Files that change the output of a model are sealed, which means that a SHA-256 is saved. A weights file holds its own.
config.json holds its own and those of the tokenizer and labels, and is written last. Runs of version 0.1 have no seal
in config.json; they load with a notice.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from cutaway.config import SEAL, Config, config_from_tables
from cutaway.errors import ConfigError, RunError
from cutaway.runs.files import (
    CHECKSUM,
    checksum,
    clear_leftovers,
    damaged_error,
    open_locked,
    read_json,
    read_sealed_json,
    try_lock,
    write_bytes,
    write_json,
    write_sealed_json,
    write_text,
)
from cutaway.runs.weights import read_sealed, seal_weights


class RunFolder:
    """The paths of a run, and methods that read and write its small files."""

    def __init__(self, path: str | Path):
        self.path = Path(path)
        self.config = self.path / "config.json"
        self.tokenizer = self.path / "tokenizer.json"
        self.tokenizer_roles = self.path / "tokenizer_config.json"  # special tokens of a tokenizer.json from elsewhere
        self.labels = self.path / "labels.json"  # the names of the classes, in the order of their ids
        self.model = self.path / "model.safetensors"
        self.adapter = self.path / "adapter.safetensors"  # instead of model.safetensors
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
        """The weights file to load: of the whole model, or of an adapter."""
        return self.adapter if self.adapter.is_file() else self.model

    def require(self) -> RunFolder:
        """Return this run, or raise an error that names the missing files."""
        if not self.path.is_dir():
            raise RunError(f"there is no run folder {str(self.path)!r}.{self._list_other_runs()}")
        names = self.labels if self.labels.is_file() else self.tokenizer  # an image classifier has no tokenizer
        missing = [p.name for p in (self.config, names, self.weights) if not p.is_file()]
        if missing:
            is_started = self.config.is_file() and not self.weights.is_file()
            reason = "Its training has not saved weights yet: resume it, or train again. " if is_started else ""
            if (self.path / "operated.safetensors").is_file():  # see course/trial.py
                reason = "It is a run of the lab with a changed architecture, which cannot be loaded. "
            raise RunError(
                f"the run folder {str(self.path)!r} has no {' and no '.join(missing)}. {reason}"
                "A run needs config.json, tokenizer.json and model.safetensors."
            )
        return self

    def require_started(self) -> RunFolder:
        """Return this run, or raise an error if there is none to resume."""
        if not self.config.is_file():
            others = self._list_other_runs() if list(self.path.parent.glob("*/config.json")) else ""
            raise RunError(
                f"there is no run in {str(self.path)!r} to resume.{others} Train without --resume to start one."
            )
        self.refuse_links()
        return self

    def _list_other_runs(self) -> str:
        parent = self.path.parent
        runs = sorted(p.parent.name for p in parent.glob("*/config.json")) if parent.is_dir() else []
        if runs:
            return f" Runs in {str(parent)!r}: {', '.join(runs)}."
        return " Train one with `cutaway demo` or `cutaway train RECIPE.toml`."

    def read_config(self) -> Config:
        """Read the configuration. If it is sealed, check its checksum and those of the tokenizer and labels."""
        tables = read_json(self.config)
        seal = tables.pop(SEAL, None)
        if seal is not None:
            self._check_seal(tables, seal)
        try:
            return config_from_tables(tables)
        except ConfigError as error:
            raise RunError(f"{self.config} cannot be used: {error}") from None
        except Exception as error:  # an unsealed file may contain anything
            raise damaged_error(self.config, f"it is not a valid configuration ({error!r})") from None

    def write_config(self, config: Config) -> None:
        """Write config.json with checksums. It is the last file of a new run."""
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
            raise damaged_error(self.config, "its checksum differs from the one it was written with")
        for name in sorted({*seal, *now} - {self.config.name}):
            if name not in now:
                raise RunError(f"{self.path / name} is missing. Restore it from a copy.")
            if name not in seal:
                raise RunError(f"{self.path / name} was added after the run was written. Move it away.")
            if now[name] != seal[name]:
                raise damaged_error(self.path / name, f"its checksum differs from the one in {self.config.name}")

    @property
    def is_sealed(self) -> bool:
        """Whether config.json has checksums. Runs of version 0.1 have none."""
        return SEAL in read_json(self.config)

    def read_weights(self, path: Path | None = None) -> bytes:
        """Read a weights file of this run, by default the one to load, and check its checksum."""
        return read_sealed(path or self.weights, must_be_sealed=self.is_sealed)

    def verify(self) -> dict[str, str]:
        """Read every sealed file. File -> the error message; "" if the file is intact."""

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
        checkpoints = [file for folder in self.list_checkpoints() for file in sorted(folder.iterdir())]
        for file in (*weights, *checkpoints, *sorted(self.snapshots.glob("step_*.safetensors"))):
            read = partial(read_sealed, must_be_sealed=True) if file.suffix == ".safetensors" else read_sealed_json
            found[str(file.relative_to(self.path))] = problem(read, file)
        return found

    def seal(self) -> None:
        """Accept the files as they are now: write new checksums."""
        tables = read_json(self.config)
        tables.pop(SEAL, None)
        if self.data.is_file():
            record = read_json(self.data)
            record.pop(CHECKSUM, None)
            write_sealed_json(self.data, record)
        if self.adapter.is_file():
            # version 0.1 left the metadata out of the checksum
            write_bytes(self.adapter, seal_weights(self.read_weights(self.adapter)))
        self.write_config(config_from_tables(tables))

    def read_data(self) -> dict[str, Any]:
        """Read the fingerprint of the training data and the number of examples."""
        return read_sealed_json(self.data, must_be_sealed=self.is_sealed)

    def read_labels(self) -> list[str]:
        """Read the names of the classes. The list is empty if the run has no classes."""
        labels = read_json(self.labels, list) if self.labels.is_file() else []
        if not all(isinstance(label, str) for label in labels):
            raise damaged_error(self.labels, "a label is not a string")
        return list(labels)

    def read_job(self) -> str | None:
        """The torchrun job that started this run, if any."""
        with suppress(RunError):
            job = self.read_data().get("job")
            return job if isinstance(job, str) else None
        return None

    def checkpoint(self, step: int) -> Path:
        return self.checkpoints / f"step_{step:06d}"

    def snapshot(self, step: int) -> Path:
        return self.snapshots / f"step_{step:06d}.safetensors"

    def pointer(self, name: str) -> Path | None:
        """The checkpoint that the file `latest` or `best` names, if it exists."""
        file = self.path / name
        if not file.is_file():
            return None
        target = self.checkpoints / file.read_text(encoding="utf-8", errors="replace").strip()
        return target if target in self.list_checkpoints() else None

    def list_checkpoints(self) -> list[Path]:
        """All checkpoints, oldest first."""
        folders = [path for path in self.checkpoints.glob("step_*") if re.fullmatch(r"step_[0-9]{1,18}", path.name)]
        return sorted((path for path in folders if path.is_dir()), key=lambda path: int(path.name[5:]))

    def set_pointer(self, name: str, checkpoint: Path) -> None:
        write_text(self.path / name, checkpoint.name + "\n")

    def prune_checkpoints(self, keep: int) -> None:
        """Delete all checkpoints except the last `keep`, the best and the latest."""
        folders = self.list_checkpoints()
        kept = {*folders[-keep:], self.pointer("best"), self.pointer("latest")}
        for folder in folders:
            if folder not in kept:
                shutil.rmtree(folder)

    @contextmanager
    def lock(self, patience: float = 20.0) -> Iterator[None]:
        """A context in which no other process can train into this folder. The lock ends with the process.

        Wait up to `patience` seconds: after a training was killed, its other processes need a moment to end.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        self.refuse_links()
        lock, deadline = self.path / "lock", time.monotonic() + patience
        while (file := open_locked(lock)) is None:
            if time.monotonic() > deadline:
                raise RunError(
                    f"another process is training into {str(self.path)!r}. Wait until it has finished, stop it, or "
                    "train into another folder with --run."
                )
            time.sleep(0.1)
        with file:
            self.clear_leftovers()
            try:
                yield
            finally:
                with suppress(OSError):  # Windows does not remove an open file
                    lock.unlink()

    def refuse_links(self) -> None:
        """Raise an error if a file is a symbolic link: a training would write or delete in another folder."""
        for name in sorted(RUN_FILES):
            if (path := self.path / name).is_symlink():
                raise RunError(
                    f"{path} is a link to {os.path.realpath(path)}, and a training must not write outside its run "
                    "folder. Replace the link by a copy, or remove it."
                )

    def clear_leftovers(self) -> None:
        """Remove the temporary files of a killed training. The caller must have the lock."""
        clear_leftovers(self.path, RUN_FILES.__contains__)
        for folder in (self.checkpoints, self.snapshots, self.figures):
            clear_leftovers(folder)

    @property
    def is_being_trained(self) -> bool:
        """Whether a process has the lock."""
        try:
            with (self.path / "lock").open("r+b") as file:
                return not try_lock(file)
        except OSError:  # no lock file, or no permission
            return False

    def append_metrics(self, row: dict[str, Any]) -> None:
        with self.metrics.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")

    def read_metrics(self) -> list[dict[str, Any]]:
        if not self.metrics.is_file():
            return []
        rows = map(metrics_row, self.metrics.read_text(encoding="utf-8", errors="replace").splitlines())
        return [row for row in rows if row]

    def drop_metrics_after(self, step: int) -> None:
        """Delete the rows of steps that a resumed training will repeat."""
        rows = [row for row in self.read_metrics() if row.get("step", 0) <= step]
        write_text(self.metrics, "".join(json.dumps(row) + "\n" for row in rows))

    def clear(self) -> None:
        """Delete the files of an earlier training. Other files of the user stay."""
        for name in sorted(RUN_FILES - {"lock"}):  # config.json comes early: without it, the folder is not a run
            path = self.path / name
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)


# All files of a run folder. No other file is ever deleted.
RUN_FILES = {
    "config.json", "tokenizer.json", "tokenizer_config.json", "labels.json", "model.safetensors", "adapter.safetensors",
    "data.json", "metrics.jsonl", "scores.json", "report.html", "figures", "checkpoints", "snapshots", "tensorboard",
    "latest", "best", "lock",
}  # fmt: skip


def check_target(folder: Path, overwrite: bool, is_ours: Callable[[Path], bool], known: Callable[[str], bool]) -> None:
    """Raise an error if `folder` must not be replaced: without --overwrite, or if it has other files than ours."""
    if folder.is_file():
        raise RunError(f"{folder} is a file. Name a folder that does not exist yet.")
    inside = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    if not inside:
        return
    if not overwrite:
        raise RunError(f"the folder {folder} is not empty. Name another one, or replace it with --overwrite.")
    if not is_ours(folder):
        raise RunError(f"the folder {folder} was not written by this command, so it is not replaced. Name another one.")
    foreign = [name for name in inside if not known(name)]
    if foreign:
        raise RunError(
            f"the folder {folder} contains other files ({', '.join(foreign[:3])}), so it is not replaced. Move them "
            "away, or name another folder."
        )
    if RunFolder(folder).is_being_trained:
        raise RunError(f"another process is training into {folder}. Wait, or name another folder.")


def metrics_row(line: str) -> dict[str, Any] | None:
    """Parse a line of metrics.jsonl. None if it is damaged, as the last line of a killed run may be."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(row, dict) or not isinstance(row.get("step"), int):
        return None
    samples = row.get("samples", [])
    are_strings = isinstance(samples, list) and all(
        isinstance(sample, dict) and {*map(type, sample.values())} <= {str} for sample in samples
    )
    numbers = [value for name, value in row.items() if name != "samples"]
    return row if are_strings and all(type(value) in (int, float) for value in numbers) else None
