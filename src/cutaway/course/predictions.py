"""What a reader expects of an experiment, kept in the home folder and compared with the results.

predictions.json: experiment -> variant -> {"metric": ..., "predicted": ..., "found": ...}
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cutaway.course.progress import home
from cutaway.errors import ConfigError, did_you_mean
from cutaway.runs.files import write_json

if TYPE_CHECKING:
    from cutaway.course.experiment import Experiment
    from cutaway.course.verdict import Comparison

PREDICTIONS = ("better", "worse", "no difference shown")
ANSWERS = {"b": "better", "w": "worse", "n": "no difference shown"}
MAX_QUESTIONS = 5  # an experiment with many variants would ask too much

Predictions = dict[str, dict[str, str]]


def predictions_file() -> Path:
    return home() / "predictions.json"


def read_predictions() -> dict[str, Predictions]:
    """Return all predictions. An unreadable file counts as none."""
    try:
        found = json.loads(predictions_file().read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def save_predictions(experiment: str, predictions: Predictions) -> None:
    write_json(predictions_file(), {**read_predictions(), experiment: predictions})


def questions(experiment: Experiment) -> list[str]:
    """Return the variants to ask about; none if the experiment fits a curve."""
    return [] if experiment.fit else [variant.name for variant in experiment.variants[1:]][:MAX_QUESTIONS]


def parse_prediction(text: str, experiment: Experiment) -> tuple[str, str]:
    """Read "VARIANT=better", or "better" if there is only one variant to compare. Return (variant, prediction)."""
    variants = [variant.name for variant in experiment.variants[1:]]
    name, equals, value = text.rpartition("=")
    if not equals and len(variants) > 1:
        raise ConfigError(f"--predict {text} names no variant. Write it as --predict {variants[0]!r}={text}.")
    name, value = (name or variants[0]).strip(), value.strip()
    if name not in variants:
        raise ConfigError(f"--predict {text}: there is no variant {name!r}. {did_you_mean(name, variants)}")
    value = ANSWERS.get(value, "no difference shown" if value in ("same", "no difference") else value)
    if value not in PREDICTIONS:
        raise ConfigError(f"--predict {text}: expected better, worse or same.")
    return name, value


def add_results(predictions: Predictions, comparisons: Sequence[Comparison]) -> Predictions:
    """Return the predictions with what was found."""
    found = {(each.variant, each.metric.name): each.finding for each in comparisons}
    return {
        variant: {**one, "found": found.get((variant, one["metric"]), "no result")}
        for variant, one in predictions.items()
    }


def count_correct(predictions: Mapping[str, Mapping[str, str]]) -> tuple[int, int]:
    """Return the number of predictions that came true, and of all that have a result."""
    compared = [one for one in predictions.values() if one.get("found", "no result") != "no result"]
    return sum(one["predicted"] == one["found"] for one in compared), len(compared)
