"""cutaway lab [EXPERIMENT]"""

from __future__ import annotations

import os
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Table

from cutaway.cli.completion import complete_experiments
from cutaway.cli.console import clock, command, err, out, print_json, print_text, say
from cutaway.cli.options import Json, Set
from cutaway.course.predictions import (
    ANSWERS,
    Predictions,
    add_results,
    count_correct,
    parse_prediction,
    questions,
    read_predictions,
    save_predictions,
)
from cutaway.errors import ConfigError, MissingExtra

if TYPE_CHECKING:
    from cutaway.course.experiment import Experiment
    from cutaway.course.lab import Results


def lab(
    experiment: Annotated[
        str | None,
        typer.Argument(
            help="A built-in experiment or a .toml file. Default: list them.",
            metavar="EXPERIMENT",
            autocompletion=complete_experiments,
        ),
    ] = None,
    seeds: Annotated[str | None, typer.Option(help="Other seeds, as in --seeds 1,2,3,4,5.", metavar="N,N,...")] = None,
    set: Set = None,
    folder: Annotated[
        Path | None, typer.Option("--out", help="Write to this folder. Default: lab/EXPERIMENT.", metavar="FOLDER")
    ] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Start over: train finished variants again.")] = False,
    predict: Annotated[
        list[str] | None,
        typer.Option(
            help="Your prediction: better, worse or same. Default: asks on a terminal.", metavar="[VARIANT=]X"
        ),
    ] = None,
    workers: Annotated[int | None, typer.Option(help="Trainings in parallel. Default: all cores.", metavar="N")] = None,
    json: Json = False,
) -> None:
    """Run an experiment: train a Transformer without one of its parts.

    Examples:  cutaway lab
               cutaway lab no-residual
               cutaway lab no-mask --predict worse
               cutaway lab no-mask --seeds 1,2,3,4,5
               cutaway lab mine.toml --set train.steps=100

    Asks what you expect, trains each variant with several seeds, and compares them with a baseline. After Ctrl-C, the
    same command trains the rest.
    """
    if experiment is None:
        list_experiments(json)
        return
    if workers is not None and workers < 1:
        raise ConfigError(f"--workers {workers} would train nothing. Give at least 1.")
    from cutaway.course.experiment import find_experiment, read_experiment

    chosen = read_experiment(find_experiment(experiment), set or (), parse_seeds(seeds))
    folder = folder or Path("lab") / chosen.name
    for package, extra in (("torch", "torch"), ("matplotlib", "show")):
        if not find_spec(package):  # before the training, not after it
            raise MissingExtra(package, extra, what="the lab")

    from cutaway.cli.lab_progress import LabProgress
    from cutaway.course.lab import run_experiment
    from cutaway.course.lab_page import write_page

    introduce(chosen)
    predictions = collect_predictions(chosen, predict or [])
    started = time.monotonic()
    with LabProgress() as progress:
        results = run_experiment(chosen, folder, workers or os.cpu_count() or 1, fresh, progress)
    page = write_page(results, folder)
    predictions = add_results(predictions, results.comparisons)
    if predictions:
        save_predictions(chosen.name, predictions)
    if json:
        print_json({**results.as_json(), **({"predictions": predictions} if predictions else {})})
    else:
        print_results(results, predictions)
    say(f"Took {clock(time.monotonic() - started)}. The report: {page}")


def parse_seeds(text: str | None) -> tuple[int, ...]:
    try:
        return tuple(int(seed) for seed in text.split(",")) if text else ()
    except ValueError:
        raise ConfigError(f"--seeds {text} is not a list of integers. Write it as --seeds 1,2,3.") from None


def introduce(experiment: Experiment) -> None:
    """Print the question and the variants before the training. The theory comes with the results."""
    say(experiment.title, style="bold")
    say(f"Question: {experiment.question}")
    variants = ", ".join(variant.name for variant in experiment.variants)
    time_needed = f", about {experiment.minutes:g} minutes on two cores" if experiment.minutes else ""
    say(f"Variants: {variants}; {len(experiment.seeds)} seeds each{time_needed}.")


def collect_predictions(experiment: Experiment, given: list[str]) -> Predictions:
    """Return the predictions of --predict; else earlier ones; else ask, on a terminal."""
    metric = experiment.judge_by[0]
    chosen = dict(parse_prediction(text, experiment) for text in given)
    if not chosen and (kept := read_predictions().get(experiment.name)):
        names = {variant.name for variant in experiment.variants}
        return {variant: one for variant, one in kept.items() if variant in names}
    if not chosen and sys.stdin.isatty() and err.is_terminal:
        chosen = ask(experiment, metric)
    found = {variant: {"metric": metric, "predicted": value} for variant, value in chosen.items()}
    if found:
        save_predictions(experiment.name, found)
    return found


def ask(experiment: Experiment, metric: str) -> dict[str, str]:
    """Ask about each variant: better, worse, or no difference. Enter skips."""
    baseline, chosen = experiment.variants[0].name, {}
    for variant in questions(experiment):
        say(f"What do you expect of “{variant}”, compared with “{baseline}” in {metric}?")
        answer = input("  b = better, w = worse, n = no difference, Enter = no idea: ").strip().lower()[:1]
        if answer in ANSWERS:
            chosen[variant] = ANSWERS[answer]
    return chosen


def list_experiments(as_json: bool) -> None:
    from cutaway.course.experiment import built_in_experiments, find_experiment, read_experiment

    experiments = [read_experiment(find_experiment(name)) for name in built_in_experiments()]
    if as_json:
        print_json(
            [{"name": e.name, "title": e.title, "trainings": e.trainings, "minutes": e.minutes} for e in experiments]
        )
        return
    table = Table(box=None, pad_edge=False)
    predictions = read_predictions()
    for column in ("experiment", "", "runs", "time", "", "your predictions"):
        table.add_column(column, justify="right" if column in ("runs", "time") else "left")
    for one in experiments:
        done = "done" if is_done(one) else ""
        minutes = f"{one.minutes:g} min" if one.minutes else ""
        right, compared = count_correct(predictions.get(one.name, {}))
        mine = f"{right} of {compared} right" if compared else ""
        table.add_row(one.name, one.title, str(one.trainings), minutes, done, mine)
    out.print(table)
    first = next((one for one in experiments if not is_done(one)), experiments[0])
    say(f"Next:  {command('lab', first.name)}")


def is_done(experiment: Experiment) -> bool:
    """Whether its report is in the default folder."""
    return (Path("lab") / experiment.name / "index.html").is_file()


def print_results(results: Results, predictions: Predictions) -> None:
    """Print your predictions, the theory and the verdict, in this order."""
    experiment = results.experiment
    if predictions:
        out.print(prediction_table(predictions))
        out.print()
    print_text(f"Theory: {experiment.theory}\n")
    out.print("Verdict:")
    for sentence in results.verdict:
        print_text(sentence, indent=2)
    if len(experiment.variants) > 2 and not results.scaling:
        out.print(verdict_table(results))


def prediction_table(predictions: Predictions) -> Table:
    table = Table(box=None, pad_edge=False)
    for column in ("variant", "in", "you predicted", "result"):
        table.add_column(column)
    for variant, one in predictions.items():
        sign = "" if one["found"] == "no result" else " ✓" if one["predicted"] == one["found"] else " ✗"
        table.add_row(escape(variant), one["metric"], one["predicted"], one["found"] + sign)
    return table


def verdict_table(results: Results) -> Table:
    from cutaway.course.lab_page import VERDICT_HEAD, verdict_rows

    table = Table(box=None, pad_edge=False)
    for column in VERDICT_HEAD:
        table.add_column(column)
    for row in verdict_rows(results):
        table.add_row(*map(escape, row))
    return table
