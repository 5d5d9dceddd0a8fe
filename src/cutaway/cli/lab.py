"""cutaway lab [EXPERIMENT]"""

from __future__ import annotations

import os
import time
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Table

from cutaway.cli.completion import complete_experiments
from cutaway.cli.console import clock, command, out, print_json, print_text, say
from cutaway.cli.options import Json, Set
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
    workers: Annotated[int | None, typer.Option(help="Trainings in parallel. Default: all cores.", metavar="N")] = None,
    json: Json = False,
) -> None:
    """Run an experiment: train a Transformer without one of its parts.

    Examples:  cutaway lab
               cutaway lab no-residual
               cutaway lab no-mask --seeds 1,2,3,4,5
               cutaway lab mine.toml --set train.steps=100

    Trains each variant with several seeds and compares them with a baseline. After Ctrl-C, the same command trains the
    rest.
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
    started = time.monotonic()
    with LabProgress() as progress:
        results = run_experiment(chosen, folder, workers or os.cpu_count() or 1, fresh, progress)
    page = write_page(results, folder)
    if json:
        print_json(results.as_json())
    else:
        print_results(results)
    say(f"Took {clock(time.monotonic() - started)}. The report: {page}")


def parse_seeds(text: str | None) -> tuple[int, ...]:
    try:
        return tuple(int(seed) for seed in text.split(",")) if text else ()
    except ValueError:
        raise ConfigError(f"--seeds {text} is not a list of integers. Write it as --seeds 1,2,3.") from None


def introduce(experiment: Experiment) -> None:
    """Print the question, the theory and the variants before the training, so that readers can guess the result."""
    say(experiment.title, style="bold")
    for label, text in (("Question", experiment.question), ("Theory", experiment.theory)):
        say(f"{label}: {text}")
    variants = ", ".join(variant.name for variant in experiment.variants)
    time_needed = f", about {experiment.minutes:g} minutes on two cores" if experiment.minutes else ""
    say(f"Variants: {variants}; {len(experiment.seeds)} seeds each{time_needed}. What do you expect?")


def list_experiments(as_json: bool) -> None:
    from cutaway.course.experiment import built_in_experiments, find_experiment, read_experiment

    experiments = [read_experiment(find_experiment(name)) for name in built_in_experiments()]
    if as_json:
        print_json(
            [{"name": e.name, "title": e.title, "trainings": e.trainings, "minutes": e.minutes} for e in experiments]
        )
        return
    table = Table(box=None, pad_edge=False)
    for column in ("experiment", "", "runs", "time", ""):
        table.add_column(column, justify="right" if column in ("runs", "time") else "left")
    for one in experiments:
        done = "done" if is_done(one) else ""
        minutes = f"{one.minutes:g} min" if one.minutes else ""
        table.add_row(one.name, one.title, str(one.trainings), minutes, done)
    out.print(table)
    first = next((one for one in experiments if not is_done(one)), experiments[0])
    say(f"Next:  {command('lab', first.name)}")


def is_done(experiment: Experiment) -> bool:
    """Whether its report is in the default folder."""
    return (Path("lab") / experiment.name / "index.html").is_file()


def print_results(results: Results) -> None:
    experiment = results.experiment
    out.print("Verdict:")
    for sentence in results.verdict:
        print_text(sentence, indent=2)
    if len(experiment.variants) > 2 and not results.scaling:
        out.print(verdict_table(results))


def verdict_table(results: Results) -> Table:
    from cutaway.course.lab_page import VERDICT_HEAD, verdict_rows

    table = Table(box=None, pad_edge=False)
    for column in VERDICT_HEAD:
        table.add_column(column)
    for row in verdict_rows(results):
        table.add_row(*map(escape, row))
    return table
