"""The summary of a run folder: its progress, scores and speed. No torch here.

metrics.jsonl ──History.of──▶ training rows and validations ──summarize──▶ RunSummary, a line of `cutaway runs`
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from cutaway.config import Config, TrainConfig
from cutaway.errors import CutawayError, RunError
from cutaway.runs import RunFolder
from cutaway.runs.files import read_json
from cutaway.runs.weights import read_metadata, read_shapes

Row = Mapping[str, Any]  # a line of metrics.jsonl
Curve = list[tuple[int, float]]  # (step, value)

JUST_NOW = 120.0  # seconds: if a file was written since then, the training may still run
BETTER = {"loss": ("valid_loss", -1), "accuracy": ("valid_accuracy", 1), "bleu": ("valid_bleu", 1)}


@dataclass(frozen=True)
class History:
    """The rows of metrics.jsonl: training and validation."""

    steps: tuple[Row, ...] = ()  # each row is a mean over some steps
    validations: tuple[Row, ...] = ()

    @classmethod
    def of(cls, rows: Iterable[Row]) -> History:
        rows = [row for row in rows if isinstance(row.get("step"), int)]
        return cls(
            steps=tuple(row for row in rows if "nll" in row),
            validations=tuple(row for row in rows if "valid_loss" in row),
        )

    @property
    def last_step(self) -> int:
        return max((row["step"] for row in (*self.steps, *self.validations)), default=0)

    @property
    def seconds(self) -> float:
        return max((row.get("seconds", 0.0) for row in (*self.steps, *self.validations)), default=0.0)

    def curve(self, name: str) -> Curve:
        """The finite values of one field, with their steps."""
        rows = self.validations if name.startswith("valid_") else self.steps
        return [(row["step"], row[name]) for row in rows if is_number(row.get(name))]

    def speeds(self) -> Curve:
        """The predictions (target tokens, labels, tags) per second, between each row and the one before."""
        pairs = zip(self.steps, self.steps[1:], strict=False)
        timed = [(b["step"], b["tokens"] - a["tokens"], b["seconds"] - a["seconds"]) for a, b in pairs]
        return [(step, tokens / seconds) for step, tokens, seconds in timed if seconds > 0 and tokens > 0]

    def speed(self) -> float | None:
        """The median speed, which validations do not change."""
        speeds = [value for _, value in self.speeds()]
        if speeds:
            return median(speeds)
        return self.steps[-1]["tokens"] / self.seconds if self.steps and self.seconds else None

    def best(self, best_by: str) -> Row | None:
        """The best validation; its weights are those of the run."""
        name, sign = BETTER[best_by]
        rows = [row for row in self.validations if is_number(row.get(name))]
        return max(rows, key=lambda row: sign * row[name], default=None)

    def progress(self, config: TrainConfig) -> float:
        """The finished fraction of the training, from 0 to 1."""
        last: Row = self.steps[-1] if self.steps else {}
        used = {
            "steps": self.last_step,
            "epochs": last.get("epochs", 0.0),
            "tokens": last.get("tokens", 0),
            "minutes": self.seconds / 60,
        }
        return float(min(1.0, used[config.budget] / getattr(config, config.budget)))

    def is_out_of_patience(self, config: TrainConfig) -> bool:
        best = self.best(config.best_by)
        since = sum(row["step"] > best["step"] for row in self.validations) if best else 0
        return bool(config.patience) and since >= config.patience


def is_number(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


@dataclass(frozen=True)
class RunSummary:
    """A line of `cutaway runs`. None means "not known"."""

    name: str
    path: str
    state: str  # finished, ended early, stopped, running, diverged, started, damaged, weights only
    done: float = 0.0
    can_resume: bool = False
    why: str = ""  # the error message of a damaged run
    task: str = ""
    corpus: str = ""
    parameters: int | None = None
    steps: int = 0
    best_step: int | None = None
    valid_loss: float | None = None
    valid_accuracy: float | None = None
    valid_bleu: float | None = None
    scores: dict[str, Any] = field(default_factory=dict)
    tokens_per_second: float | None = None
    seconds: float = 0.0
    when: float = 0.0  # the time of the last change, in seconds since 1970
    valid_losses: Curve = field(default_factory=list)

    @property
    def state_text(self) -> str:
        """The state with the progress, and whether the run can be resumed."""
        if self.state in ("stopped", "diverged", "running"):
            at = {"stopped": "stopped at", "diverged": "diverged at", "running": "running, at"}[self.state]
            return f"{at} {self.done:.0%}" + (", resumable" if self.can_resume and self.state == "stopped" else "")
        return self.state


def summarize(run: RunFolder) -> RunSummary:
    """Summarize a run. A run that cannot be read gets the state "damaged" and the reason; it raises no error."""
    name, path = run.path.name, str(run.path)
    try:
        config, history = run.read_config(), History.of(run.read_metrics())
        parameters = count_parameters(run)
    except (CutawayError, OSError, ValueError, AttributeError) as error:
        return RunSummary(name, path, "damaged", why=str(error), when=last_written(run))
    best = history.best(config.train.best_by) or {}
    return RunSummary(
        name=name,
        path=path,
        state=find_state(run, config, history),
        done=history.progress(config.train),
        can_resume=run.pointer("latest") is not None,
        task=config.model.task,
        corpus=config.data.corpus or " ".join(Path(file).name for file in config.data.train),
        parameters=parameters,
        steps=history.last_step,
        best_step=best.get("step"),
        valid_loss=best.get("valid_loss"),
        valid_accuracy=best.get("valid_accuracy"),
        valid_bleu=best.get("valid_bleu"),
        scores=read_scores(run),
        tokens_per_second=history.speed(),
        seconds=history.seconds,
        when=last_written(run),
        valid_losses=history.curve("valid_loss"),
    )


def find_state(run: RunFolder, config: Config, history: History) -> str:
    if not history.steps and not run.data.is_file() and run.weights.is_file():
        return "weights only"  # imported, not trained here
    if history.progress(config.train) >= 1:
        return "finished"
    if history.is_out_of_patience(config.train):
        return "ended early"
    if history.steps and not is_number(history.steps[-1]["nll"]):
        return "diverged"
    if is_running(run):
        return "running"
    return "stopped" if history.steps or run.pointer("latest") else "started"


def is_running(run: RunFolder) -> bool:
    """Whether the run is being trained. The NumPy twin has no lock and no checkpoints, so the file times decide."""
    has_changed = time.time() - last_written(run) < JUST_NOW
    return run.is_being_trained or (has_changed and run.pointer("latest") is None)


def read_scores(run: RunFolder) -> dict[str, Any]:
    """The scores that `cutaway evaluate` or the demo wrote; empty if there are none."""
    with suppress(RunError):
        return dict(read_json(run.scores))
    return {}


def count_parameters(run: RunFolder) -> int | None:
    """The number of weights, from the header of the file; None if there is no file yet."""
    files = [file for file in (run.weights, run.path / "operated.safetensors") if file.is_file()]  # see course/trial.py
    if not files:
        return None
    with_base = read_metadata(files[0]).get("parameters")  # only adapters have this
    return int(with_base) if with_base else sum(math.prod(shape) for shape in read_shapes(files[0]).values())


def last_written(run: RunFolder) -> float:
    files = [file for file in (run.metrics, run.path / "latest", run.config) if file.is_file()]
    return max((file.stat().st_mtime for file in files), default=0.0)


def find_runs(folder: Path) -> list[RunFolder]:
    """The runs in a folder: the folder itself, or its subfolders."""
    if (folder / "config.json").is_file():
        return [RunFolder(folder)]
    found = sorted(folder.glob("*/config.json")) or sorted(folder.glob("runs/*/config.json"))
    return [RunFolder(path.parent) for path in found]
