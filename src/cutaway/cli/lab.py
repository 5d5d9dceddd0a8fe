"""cutaway lab [THING]"""

from __future__ import annotations

import os
import time
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Table

from cutaway.cli.console import clock, command, out, print_json, say
from cutaway.errors import ConfigError, MissingExtra

if TYPE_CHECKING:
    from cutaway.course.experiment import Experiment
    from cutaway.course.lab import Results


def lab(
    experiment: Annotated[
        str | None, typer.Argument(help="A built-in experiment, or a .toml file. None: list them.", metavar="[THING]")
    ] = None,
    seeds: Annotated[str | None, typer.Option(help="Other seeds than the experiment's, as in 1,2,3,4,5.")] = None,
    set: Annotated[
        list[str] | None,
        typer.Option("--set", help="Change a setting of all arms, as in --set train.steps=50.", metavar="T.F=V"),
    ] = None,
    folder: Annotated[
        Path | None, typer.Option("--out", help="Where the page and the runs go. Default: lab/ and its name.")
    ] = None,
    again: Annotated[bool, typer.Option("--again", help="Train anew what is finished, too.")] = False,
    jobs: Annotated[int | None, typer.Option(help="Trainings at a time, each on one core. Default: the cores.")] = None,
    json: Annotated[bool, typer.Option("--json", help="All numbers, for programs.")] = False,
) -> None:
    """Take one thing out of a Transformer, train it beside an intact one, and see what it was good for.

    Examples:  cutaway lab

               cutaway lab no-residual

               cutaway lab no-mask --seeds 1,2,3,4,5

               cutaway lab mine.toml --set train.steps=100

    What is trained stays: after Ctrl-C, the same command trains the rest.
    """
    if experiment is None:
        list_experiments(json)
        return
    if jobs is not None and jobs < 1:
        raise ConfigError(f"--jobs {jobs} would train nothing. Give at least 1.")
    from cutaway.course.experiment import find_experiment, read_experiment

    chosen = read_experiment(find_experiment(experiment), set or (), seeds_of(seeds))
    folder = folder or Path("lab") / chosen.name
    for package, extra in (("torch", "torch"), ("matplotlib", "show")):
        if not find_spec(package):  # said now, rather than when all is trained
            raise MissingExtra(package, extra, what="the lab")

    from cutaway.cli.lab_progress import LabProgress
    from cutaway.course.lab import run_experiment
    from cutaway.course.lab_page import write_page

    introduce(chosen)
    started = time.monotonic()
    with LabProgress() as progress:
        results = run_experiment(chosen, folder, jobs or os.cpu_count() or 1, again, progress)
    page = write_page(results, folder)
    if json:
        print_json(results.as_json())
    else:
        print_results(results)
    say(f"In {clock(time.monotonic() - started)}. The page: {page}")


def seeds_of(text: str | None) -> tuple[int, ...]:
    try:
        return tuple(int(seed) for seed in text.split(",")) if text else ()
    except ValueError:
        raise ConfigError(f"--seeds {text} is no list of whole numbers. Write it as --seeds 1,2,3.") from None


def introduce(experiment: Experiment) -> None:
    """What will be trained, and what is expected of it: time to make a guess of one's own."""
    say(experiment.title, style="bold")
    for label, text in (("Question", experiment.question), ("Theory", experiment.theory)):
        say(f"{label}: {text}")
    variants = ", ".join(variant.name for variant in experiment.variants)
    time_needed = f", about {experiment.minutes:g} minutes on two cores" if experiment.minutes else ""
    say(f"Arms: {variants}; {len(experiment.seeds)} seeds each{time_needed}. What do you expect?")


def list_experiments(as_json: bool) -> None:
    from cutaway.course.experiment import built_in_experiments, find_experiment, read_experiment

    experiments = [read_experiment(find_experiment(name)) for name in built_in_experiments()]
    if as_json:
        print_json(
            [{"name": e.name, "title": e.title, "trainings": e.trainings, "minutes": e.minutes} for e in experiments]
        )
        return
    table = Table(box=None, pad_edge=False)
    for column in ("experiment", "", "trainings", "on two cores", ""):
        table.add_column(column, justify="right" if column == "trainings" else "left")
    for one in experiments:
        done = "done" if is_done(one) else ""
        minutes = f"about {one.minutes:g} min" if one.minutes else ""
        table.add_row(one.name, one.title, str(one.trainings), minutes, done)
    out.print(table)
    first = next((one for one in experiments if not is_done(one)), experiments[0])
    say(f"Next:  {command('lab', first.name)}")


def is_done(experiment: Experiment) -> bool:
    """Whether its page is where it goes if nobody says otherwise."""
    return (Path("lab") / experiment.name / "index.html").is_file()


def print_results(results: Results) -> None:
    experiment = results.experiment
    for i, sentence in enumerate(results.verdict):
        out.print(f"{'Verdict:' if i == 0 else '':<10}{sentence}", markup=False)
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
