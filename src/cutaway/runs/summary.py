"""What a run folder tells of itself: how far it came, how well it did, how fast it was. No torch here.

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
from cutaway.runs.weights import metadata_of, shapes_of

Row = Mapping[str, Any]  # a line of metrics.jsonl
Curve = list[tuple[int, float]]  # (step, value)

JUST_NOW = 120.0  # seconds since something was written: the training may still be going on
BETTER = {"loss": ("valid_loss", -1), "accuracy": ("valid_accuracy", 1), "bleu": ("valid_bleu", 1)}


@dataclass(frozen=True)
class History:
    """The rows of metrics.jsonl, told apart."""

    steps: tuple[Row, ...] = ()  # a mean over some steps each
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
        """Answers (target tokens, labels, tags) a second, between each row and the one before."""
        pairs = zip(self.steps, self.steps[1:], strict=False)
        timed = [(b["step"], b["tokens"] - a["tokens"], b["seconds"] - a["seconds"]) for a, b in pairs]
        return [(step, tokens / seconds) for step, tokens, seconds in timed if seconds > 0 and tokens > 0]

    def speed(self) -> float | None:
        """The median, which a validation in between does not change."""
        speeds = [value for _, value in self.speeds()]
        if speeds:
            return median(speeds)
        return self.steps[-1]["tokens"] / self.seconds if self.steps and self.seconds else None

    def best(self, best_by: str) -> Row | None:
        """The validation whose weights are kept."""
        name, sign = BETTER[best_by]
        rows = [row for row in self.validations if is_number(row.get(name))]
        return max(rows, key=lambda row: sign * row[name], default=None)

    def done(self, config: TrainConfig) -> float:
        """How much of the training is done, from 0 to 1."""
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
    """A run in a line. What is not known is None."""

    name: str
    path: str
    state: str  # finished, ended early, stopped, going on, diverged, started, damaged, weights only
    done: float = 0.0
    can_resume: bool = False
    why: str = ""  # of a damaged run
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
    when: float = 0.0  # seconds since 1970: when something was last written
    valid_losses: Curve = field(default_factory=list)

    @property
    def told_state(self) -> str:
        """With how far it came, and whether it can go on."""
        if self.state in ("stopped", "diverged", "going on"):
            at = {"stopped": "stopped at", "diverged": "diverged at", "going on": "going on, at"}[self.state]
            return f"{at} {self.done:.0%}" + (", resumable" if self.can_resume and self.state == "stopped" else "")
        return self.state


def summarize(run: RunFolder) -> RunSummary:
    """Never an error: what cannot be read is a damaged run, and says why."""
    name, path = run.path.name, str(run.path)
    try:
        config, history = run.read_config(), History.of(run.read_metrics())
        parameters = parameters_of(run)
    except (CutawayError, OSError, ValueError, AttributeError) as error:
        return RunSummary(name, path, "damaged", why=str(error), when=last_written(run))
    best = history.best(config.train.best_by) or {}
    return RunSummary(
        name=name,
        path=path,
        state=state_of(run, config, history),
        done=history.done(config.train),
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


def state_of(run: RunFolder, config: Config, history: History) -> str:
    if not history.steps and not run.data.is_file() and run.weights.is_file():
        return "weights only"  # imported: it was never trained here
    if history.done(config.train) >= 1:
        return "finished"
    if history.is_out_of_patience(config.train):
        return "ended early"
    if history.steps and not is_number(history.steps[-1]["nll"]):
        return "diverged"
    if is_going_on(run):
        return "going on"
    return "stopped" if history.steps or run.pointer("latest") else "started"


def is_going_on(run: RunFolder) -> bool:
    """The NumPy twin keeps neither lock nor checkpoints, so there it is a guess by the clock."""
    wrote_just_now = time.time() - last_written(run) < JUST_NOW
    return run.is_being_trained or (wrote_just_now and run.pointer("latest") is None)


def read_scores(run: RunFolder) -> dict[str, Any]:
    """What `cutaway evaluate` or the demo found; nothing, if there is nothing that can be read."""
    with suppress(RunError):
        return dict(read_json(run.scores))
    return {}


def parameters_of(run: RunFolder) -> int | None:
    """The number of weights, from the header of their file; None if there are none yet."""
    files = [file for file in (run.weights, run.path / "operated.safetensors") if file.is_file()]  # see course/trial.py
    if not files:
        return None
    of_all = metadata_of(files[0]).get("parameters")  # an adapter says so of itself and its base
    return int(of_all) if of_all else sum(math.prod(shape) for shape in shapes_of(files[0]).values())


def last_written(run: RunFolder) -> float:
    files = [file for file in (run.metrics, run.path / "latest", run.config) if file.is_file()]
    return max((file.stat().st_mtime for file in files), default=0.0)


def find_runs(folder: Path) -> list[RunFolder]:
    """The runs in a folder: itself, or those beside each other in it."""
    if (folder / "config.json").is_file():
        return [RunFolder(folder)]
    found = sorted(folder.glob("*/config.json")) or sorted(folder.glob("runs/*/config.json"))
    return [RunFolder(path.parent) for path in found]
