"""The lab: train every arm of an experiment with every seed, and say what the differences show.

    lab/no-residual/
      index.html  results.json        the verdict, for people and for programs
      figures/                        the page's figures, by themselves
      runs/intact-seed-1-3f9c02d1/    a run folder for each training: result.json, trace.json, weights, metrics

The end of a run folder's name is a digest of all settings that the run depends on. So a finished training is found
again whenever the same is asked for, and never mistaken for another.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from cutaway.config import with_given
from cutaway.course.ablations import operate
from cutaway.course.experiment import Arm, Experiment, slug
from cutaway.course.trial import Job
from cutaway.course.verdict import MEASURES, Comparison, ScalingFit, compare, fit_scaling, verdict
from cutaway.course.workers import run_jobs
from cutaway.data.tasks import has_split
from cutaway.errors import ConfigError, Interrupted, RunError
from cutaway.models.build import build_model
from cutaway.runs.files import write_json

WORKER = "cutaway.course.trial"
FORMAT = 1  # of result.json; raise it when results of before can no longer be used


@dataclass(frozen=True)
class Trial:
    """One arm with one seed: what to train, and what came of it."""

    arm: Arm
    seed: int
    job: Job
    result: dict[str, Any] | None = None

    @property
    def name(self) -> str:
        return f"{self.arm.name}, seed {self.seed}"

    @property
    def folder(self) -> Path:
        return Path(self.job.folder)

    def value(self, measure: str) -> float | str:
        """A number, or why there is none."""
        result = self.result or {"failed": "was not trained"}
        if "failed" in result:
            return str(result["failed"])
        if result["diverged_at"]:
            return f"diverged at step {result['diverged_at']:,}"
        return result["measures"].get(measure, "was not measured so")


class Listener(Protocol):
    """Told what happens in the lab."""

    def on_start(self, trials: list[Trial], finished: int) -> None: ...
    def on_step(self, trial: Trial, step: int, steps: int, loss: float) -> None: ...
    def on_result(self, trial: Trial) -> None: ...


class Nobody:
    """Who listens when nobody does."""

    def on_start(self, trials: list[Trial], finished: int) -> None: ...
    def on_step(self, trial: Trial, step: int, steps: int, loss: float) -> None: ...
    def on_result(self, trial: Trial) -> None: ...


@dataclass(frozen=True)
class Results:
    """All that an experiment found."""

    experiment: Experiment
    trials: list[Trial]
    comparisons: list[Comparison]
    scaling: ScalingFit | None
    seconds: float  # that all trainings took together, one after the other

    def of(self, arm: Arm) -> list[Trial]:
        return [trial for trial in self.trials if trial.arm == arm]

    @property
    def of_first_seed(self) -> list[Trial]:
        return [trial for trial in self.trials if trial.seed == self.experiment.seeds[0]]

    @property
    def verdict(self) -> list[str]:
        return self.scaling.sentences() if self.scaling else verdict(self.comparisons)

    def as_json(self) -> dict[str, Any]:
        experiment = self.experiment
        return {
            "experiment": experiment.name,
            **{key: getattr(experiment, key) for key in ("title", "question", "theory", "seeds", "judge_by")},
            "verdict": self.verdict,
            "comparisons": [comparison.as_json() for comparison in self.comparisons],
            "scaling": self.scaling and self.scaling.as_json(),
            "arms": [self.arm_as_json(arm) for arm in experiment.arms],
            "seconds": self.seconds,
        }

    def arm_as_json(self, arm: Arm) -> dict[str, Any]:
        runs = [
            {"seed": trial.seed, "folder": f"runs/{trial.folder.name}", **(trial.result or {})}
            for trial in self.of(arm)
        ]
        return {"name": arm.name, "surgery": arm.surgery, "set": arm.settings, "runs": runs}


def run_experiment(
    experiment: Experiment, out: Path, workers: int = 2, again: bool = False, listener: Listener | None = None
) -> Results:
    """Train what is not trained yet, compare, write results.json. (The page is written by lab_page.py.)"""
    listener = listener or Nobody()
    rehearse(experiment)
    trials = list(plan(experiment, out / "runs"))
    if again:
        for trial in trials:
            (trial.folder / "result.json").unlink(missing_ok=True)
    trials = [replace(trial, result=finished_result(trial.folder)) for trial in trials]
    trials = train_missing(trials, workers, out / "logs", listener)
    refuse_if_nothing_worked(trials)
    results = compared(experiment, trials)
    write_json(out / "results.json", results.as_json())
    return results


def rehearse(experiment: Experiment) -> None:
    """Build and operate on every arm's model before anything is trained, so that no mistake is found halfway."""
    for arm in experiment.arms:
        config = experiment.config(arm, experiment.seeds[0])
        if not has_split(config.data, "valid"):
            raise ConfigError(f"the recipe {str(experiment.recipe)!r} has no validation data to measure on. Add some.")
        sizes = {
            "vocab_size": None if config.model.family == "vision" else 8,
            "n_classes": None if config.model.head == "language" else 2,
        }
        try:
            operate(build_model(with_given(config.model, **sizes)), arm.surgery)
        except ConfigError as error:
            raise ConfigError(f"the arm {arm.name!r} of {experiment.name!r} cannot be built: {error}") from None


def plan(experiment: Experiment, runs: Path) -> Iterator[Trial]:
    """Seed after seed, all arms of each: if somebody stops halfway, there is something to compare."""
    for seed in experiment.seeds:
        for arm in experiment.arms:
            look = experiment.look if seed == experiment.seeds[0] else "none"
            first = experiment.config(experiment.arms[0], seed)
            job = Job("", experiment.config(arm, seed), first, arm.surgery, look)
            digest = hashlib.sha256(f"{FORMAT} {job.to_json()}".encode()).hexdigest()[:8]
            folder = runs / f"{slug(arm.name)}-seed-{seed}-{digest}"
            yield Trial(arm, seed, replace(job, folder=str(folder)))


def finished_result(folder: Path) -> dict[str, Any] | None:
    try:
        return dict(json.loads((folder / "result.json").read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return None


def train_missing(trials: list[Trial], workers: int, logs: Path, listener: Listener) -> list[Trial]:
    results = {trial.name: trial.result for trial in trials}
    missing = [trial for trial in trials if trial.result is None]
    listener.on_start(trials, len(trials) - len(missing))

    def tell(number: int, news: dict[str, Any]) -> None:
        trial = missing[number]
        if news["event"] == "step":
            listener.on_step(trial, news["step"], news["steps"], news["loss"])
        else:
            results[trial.name] = news["result"]
            listener.on_result(replace(trial, result=news["result"]))

    try:
        run_jobs(WORKER, [trial.job.to_json() for trial in missing], workers, logs, tell)
    except KeyboardInterrupt:
        finished = sum(result is not None for result in results.values())
        raise Interrupted(
            f"stopped; {finished} of {len(trials)} trainings are finished and kept. The same command trains the rest."
        ) from None
    return [replace(trial, result=results[trial.name]) for trial in trials]


def refuse_if_nothing_worked(trials: list[Trial]) -> None:
    failures = [str(trial.result["failed"]) for trial in trials if trial.result and "failed" in trial.result]
    if len(failures) == len(trials):
        raise RunError(f"not one of {len(trials)} trainings came to an end. The first: {failures[0]}")


def compared(experiment: Experiment, trials: list[Trial]) -> Results:
    first, *others = experiment.arms

    def values(arm: Arm, measure: str) -> dict[int, float | str]:
        return {trial.seed: trial.value(measure) for trial in trials if trial.arm == arm}

    comparisons = [
        compare(arm.name, first.name, MEASURES[measure], values(first, measure), values(arm, measure))
        for arm in others
        for measure in experiment.judge_by
    ]
    seconds = sum((trial.result or {}).get("seconds", 0.0) for trial in trials)
    return Results(experiment, trials, comparisons, scaling_of(experiment, trials), seconds)


def scaling_of(experiment: Experiment, trials: list[Trial]) -> ScalingFit | None:
    """The law through the arms, if one is wanted and there are seeds with enough sizes."""
    enough = {seed: points for seed, points in losses_by_size(trials).items() if len(points) >= 3}
    return fit_scaling(enough) if experiment.fit == "scaling-law" and enough else None


def losses_by_size(trials: list[Trial]) -> dict[int, dict[float, float]]:
    """seed -> (number of parameters, embeddings left out -> loss)"""
    points: dict[int, dict[float, float]] = {trial.seed: {} for trial in trials}
    for trial in trials:
        loss = trial.value("cross-entropy")
        if isinstance(loss, float) and trial.result:
            points[trial.seed][trial.result["parameters_without_embeddings"]] = loss
    return points
