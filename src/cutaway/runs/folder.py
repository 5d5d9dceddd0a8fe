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
    damaged,
    locked_file,
    read_json,
    read_sealed_json,
    try_lock,
    write_bytes,
    write_json,
    write_sealed_json,
    write_text,
)
from cutaway.runs.weights import read_sealed, sealed


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
                return not try_lock(file)
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
