"""The lab: train every variant of an experiment with every seed, and compare them.

    lab/no-residual/
      index.html  results.json        the verdict as a page and as data
      figures/                        the page's figures as files
      runs/intact-seed-1-3f9c02d1/    a run folder for each training: result.json, trace.json, weights, metrics

The name of a run folder ends with a digest of all settings that the run depends on. A finished training is reused only
for exactly the same settings.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from cutaway.config import with_given
from cutaway.course.ablations import apply_ablations
from cutaway.course.experiment import Experiment, Variant, slug
from cutaway.course.trial import TrialJob
from cutaway.course.verdict import METRICS, Comparison, ScalingFit, compare, fit_scaling, verdict
from cutaway.course.workers import run_jobs
from cutaway.data.tasks import has_split
from cutaway.errors import ConfigError, Interrupted, RunError
from cutaway.models.build import build_model
from cutaway.runs.files import write_json

WORKER = "cutaway.course.trial"
FORMAT = 1  # of result.json; increase it when older results become unusable


@dataclass(frozen=True)
class Trial:
    """One variant with one seed: the job and its result."""

    variant: Variant
    seed: int
    job: TrialJob
    result: dict[str, Any] | None = None

    @property
    def name(self) -> str:
        return f"{self.variant.name}, seed {self.seed}"

    @property
    def folder(self) -> Path:
        return Path(self.job.folder)

    def value(self, metric: str) -> float | str:
        """Return the number, or a text that says why there is none."""
        result = self.result or {"failed": "was not trained"}
        if "failed" in result:
            return str(result["failed"])
        if result["diverged_at"]:
            return f"diverged at step {result['diverged_at']:,}"
        return result["measures"].get(metric, "was not measured")


class Listener(Protocol):
    """Callbacks for the progress of an experiment."""

    def on_start(self, trials: list[Trial], finished: int) -> None: ...
    def on_step(self, trial: Trial, step: int, steps: int, loss: float) -> None: ...
    def on_result(self, trial: Trial) -> None: ...


class SilentListener:
    """Ignores all progress."""

    def on_start(self, trials: list[Trial], finished: int) -> None: ...
    def on_step(self, trial: Trial, step: int, steps: int, loss: float) -> None: ...
    def on_result(self, trial: Trial) -> None: ...


@dataclass(frozen=True)
class Results:
    """All results of an experiment."""

    experiment: Experiment
    trials: list[Trial]
    comparisons: list[Comparison]
    scaling: ScalingFit | None
    seconds: float  # sum over all trainings

    def trials_of(self, variant: Variant) -> list[Trial]:
        return [trial for trial in self.trials if trial.variant == variant]

    @property
    def first_seed_trials(self) -> list[Trial]:
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
            "set": experiment.settings,
            "variants": [self.variant_as_json(variant) for variant in experiment.variants],
            "seconds": self.seconds,
        }

    def variant_as_json(self, variant: Variant) -> dict[str, Any]:
        runs = [
            {"seed": trial.seed, "folder": f"runs/{trial.folder.name}", **(trial.result or {})}
            for trial in self.trials_of(variant)
        ]
        return {"name": variant.name, "ablations": variant.ablations, "set": variant.settings, "runs": runs}


def run_experiment(
    experiment: Experiment, out: Path, workers: int = 2, again: bool = False, listener: Listener | None = None
) -> Results:
    """Train missing trials, compare, write results.json. (lab_page.py writes the page.)"""
    listener = listener or SilentListener()
    check_buildable(experiment)
    trials = list(plan_trials(experiment, out / "runs"))
    if again:
        for trial in trials:
            (trial.folder / "result.json").unlink(missing_ok=True)
    trials = [replace(trial, result=read_result(trial.folder)) for trial in trials]
    trials = train_missing(trials, workers, out / "logs", listener)
    require_a_result(trials)
    results = compare_variants(experiment, trials)
    write_json(out / "results.json", results.as_json())
    return results


def check_buildable(experiment: Experiment) -> None:
    """Build every variant's model, so that mistakes are found before the first training."""
    for variant in experiment.variants:
        config = experiment.config(variant, experiment.seeds[0])
        if not has_split(config.data, "valid"):
            raise ConfigError(
                f"the recipe {str(experiment.recipe)!r} has no validation data, and the lab measures on it. "
                "Set data.valid or data.valid_share in the recipe."
            )
        sizes = {
            "vocab_size": None if config.model.family == "vision" else 8,
            "n_classes": None if config.model.head == "language" else 2,
        }
        try:
            apply_ablations(build_model(with_given(config.model, **sizes)), variant.ablations)
        except ConfigError as error:
            raise ConfigError(f"cannot build the variant {variant.name!r} of {experiment.name!r}: {error}") from None


def plan_trials(experiment: Experiment, runs: Path) -> Iterator[Trial]:
    """Yield all variants of the first seed, then of the next: after an interruption, whole seeds can be compared."""
    for seed in experiment.seeds:
        for variant in experiment.variants:
            attention = experiment.attention if seed == experiment.seeds[0] else "none"
            first = experiment.config(experiment.variants[0], seed)
            job = TrialJob("", experiment.config(variant, seed), first, variant.ablations, attention)
            digest = hashlib.sha256(f"{FORMAT} {job.to_json()}".encode()).hexdigest()[:8]
            folder = runs / f"{slug(variant.name)}-seed-{seed}-{digest}"
            yield Trial(variant, seed, replace(job, folder=str(folder)))


def read_result(folder: Path) -> dict[str, Any] | None:
    try:
        return dict(json.loads((folder / "result.json").read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return None


def train_missing(trials: list[Trial], workers: int, logs: Path, listener: Listener) -> list[Trial]:
    results = {trial.name: trial.result for trial in trials}
    missing = [trial for trial in trials if trial.result is None]
    listener.on_start(trials, len(trials) - len(missing))

    def on_message(number: int, message: dict[str, Any]) -> None:
        trial = missing[number]
        if message["event"] == "step":
            listener.on_step(trial, message["step"], message["steps"], message["loss"])
        else:
            results[trial.name] = message["result"]
            listener.on_result(replace(trial, result=message["result"]))

    try:
        run_jobs(WORKER, [trial.job.to_json() for trial in missing], workers, logs, on_message)
    except KeyboardInterrupt:
        finished = sum(result is not None for result in results.values())
        raise Interrupted(
            f"stopped; {finished} of {len(trials)} trainings are finished and saved. "
            "Run the same command again to train the rest."
        ) from None
    return [replace(trial, result=results[trial.name]) for trial in trials]


def require_a_result(trials: list[Trial]) -> None:
    failures = [str(trial.result["failed"]) for trial in trials if trial.result and "failed" in trial.result]
    if len(failures) == len(trials):
        raise RunError(f"all {len(trials)} trainings failed. The first error: {failures[0]}")


def compare_variants(experiment: Experiment, trials: list[Trial]) -> Results:
    first, *others = experiment.variants

    def values(variant: Variant, metric: str) -> dict[int, float | str]:
        return {trial.seed: trial.value(metric) for trial in trials if trial.variant == variant}

    comparisons = [
        compare(variant.name, first.name, METRICS[metric], values(first, metric), values(variant, metric))
        for variant in others
        for metric in experiment.judge_by
    ]
    seconds = sum((trial.result or {}).get("seconds", 0.0) for trial in trials)
    return Results(experiment, trials, comparisons, fit_scaling_law(experiment, trials), seconds)


def fit_scaling_law(experiment: Experiment, trials: list[Trial]) -> ScalingFit | None:
    """Fit a scaling law to the variants, if the experiment has one and some seeds have at least three sizes."""
    enough = {seed: points for seed, points in losses_by_size(trials).items() if len(points) >= 3}
    return fit_scaling(enough) if experiment.fit == "scaling-law" and enough else None


def losses_by_size(trials: list[Trial]) -> dict[int, dict[float, float]]:
    """Return seed -> (number of parameters without embeddings -> loss)."""
    points: dict[int, dict[float, float]] = {trial.seed: {} for trial in trials}
    for trial in trials:
        loss = trial.value("cross-entropy")
        if isinstance(loss, float) and trial.result:
            points[trial.seed][trial.result["parameters_without_embeddings"]] = loss
    return points
