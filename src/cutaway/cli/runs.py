"""cutaway runs [RUNS]"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.markup import escape
from rich.table import Table

from cutaway.cli.completion import complete_runs
from cutaway.cli.console import clock, command, out, print_json, say
from cutaway.cli.options import Json, Plot
from cutaway.config import Config
from cutaway.errors import ConfigError, RunError, did_you_mean
from cutaway.runs import RunFolder
from cutaway.runs.summary import RunSummary, find_runs, summarize

BARS = "▁▂▃▄▅▆▇█"
HEADLINE = ("bleu", "span_f1", "accuracy", "perplexity")  # the table shows the first of these that exists
# the losses of runs that differ in one of these cannot be compared
LOSS_SETTINGS = ("data.corpus", "data.valid", "data.tokenizer", "data.tokenizer_file", "data.vocab_size")

SORTS: dict[str, Callable[[RunSummary], Any]] = {
    "when": lambda s: -s.when,
    "name": lambda s: s.path,
    "loss": lambda s: (s.task, s.valid_loss is None, s.valid_loss),
    "size": lambda s: -(s.parameters or 0),
    "speed": lambda s: -(s.tokens_per_second or 0),
}


def runs(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(
            help="One run, several to compare, or a folder of runs. Default: runs.",
            metavar="RUN",
            autocompletion=complete_runs,
        ),
    ] = None,
    sort: Annotated[str, typer.Option(help=f"Order of the table: {', '.join(SORTS)}.", metavar="COLUMN")] = "when",
    task: Annotated[str | None, typer.Option(help="Only runs for this task, as in --task tagging.")] = None,
    report: Annotated[bool, typer.Option("--report", help="Write report.html again.")] = False,
    plot: Plot = None,
    json: Json = False,
    verify: Annotated[bool, typer.Option("--verify", help="Compare every file with its checksum.")] = False,
    seal: Annotated[bool, typer.Option("--seal", help="Add checksums to an old run, or accept changed files.")] = False,
) -> None:
    """List runs, show one, or compare several.

    Examples:  cutaway runs
               cutaway runs --task translation --sort loss
               cutaway runs runs/demo --report
               cutaway runs runs/small runs/large --plot compare.png
               cutaway runs --verify
    """
    if sort not in SORTS:
        raise ConfigError(f"--sort {sort} is not a column. {did_you_mean(sort, SORTS)}")
    given = [resolve(path) for path in paths or [Path("runs")]]
    folders = [run for path in given for run in find_runs(path)]
    if (verify or seal) and folders:
        verify_runs(folders, seal, json)
        return
    are_runs = bool(paths) and all((path / "config.json").is_file() for path in given)
    found = [summarize(run) for run in folders]
    found = [summary for summary in found if task is None or task.replace("-", "_") in summary.task]
    if not are_runs or (len(found) > 1 and sort != "when"):
        found.sort(key=SORTS[sort])
    if not found:
        raise RunError(not_found_message(given, folders, task))
    if report:
        write_reports([RunFolder(summary.path) for summary in found if summary.state != "damaged"])
    if plot:
        plot_losses(found, plot)
    if json:
        print_json(as_json(found, compare=are_runs))
    elif not are_runs:
        print_runs(found)
    else:
        print_side_by_side(found)


def verify_runs(folders: Sequence[RunFolder], seal: bool, json: bool) -> None:
    """Compare the files of each run with their checksums. Raises an error at the end if one is damaged."""
    report = {}
    for run in folders:
        if seal:
            run.seal()
        report[str(run)] = problems = run.verify()
        if not json:
            wrong = [problem for problem in problems.values() if problem]
            out.print(f"{run}: {len(problems) - len(wrong)} of {len(problems)} files are intact", markup=False)
            for problem in wrong:
                out.print(f"  {problem}", markup=False)
            if not wrong and not run.is_sealed:
                say(f"{run}: config.json and tokenizer.json have no checksums. Add them with --seal.")
    if json:
        print_json({"runs": [{"path": path, "files": files} for path, files in report.items()]})
    damaged = [path for path, files in report.items() if any(files.values())]
    if damaged:
        raise RunError(f"{len(damaged)} of {len(report)} runs are damaged: {', '.join(damaged)}.")


def resolve(path: Path) -> Path:
    """The given path, or the run with that name in runs/."""
    if path.exists() or path == Path("runs"):
        return path
    in_runs = Path("runs") / path
    if in_runs.exists():
        return in_runs
    RunFolder(in_runs if len(path.parts) == 1 else path).require()  # raises an error that lists the runs
    return path


def not_found_message(given: Sequence[Path], folders: Sequence[RunFolder], task: str | None) -> str:
    where = ", ".join(map(repr, map(str, given)))
    if folders:
        tasks = sorted({summarize(run).task for run in folders} - {""})
        return f"none of the {len(folders)} runs in {where} is for the task {task!r}. Tasks: {', '.join(tasks)}."
    return f"there are no runs in {where}. Train one with `cutaway demo` or `cutaway train RECIPE.toml`."


@dataclasses.dataclass(frozen=True)
class Column:
    name: str
    cell: Callable[[RunSummary], str]  # empty: unknown
    drop_order: int = 0  # on a narrow terminal, the column with the highest number is dropped first; 0: never
    justify: Literal["left", "right"] = "right"


COLUMNS = (
    Column("run", lambda s: s.name, justify="left"),
    Column("task", lambda s: s.task.replace("_", " "), 5, "left"),
    Column("params", lambda s: format_millions(s.parameters), 6),
    Column("steps", lambda s: f"{s.steps:,}" if s.steps else "", 3),
    Column("valid loss", lambda s: f"{s.valid_loss:.4f}" if s.valid_loss is not None else ""),
    Column("valid", lambda s: validation_score(s), 1),
    Column("test", lambda s: headline_score(s.scores), 2),
    Column("targets/s", lambda s: f"{s.tokens_per_second:,.0f}" if s.tokens_per_second else "", 8),
    Column("time", lambda s: clock(s.seconds) if s.seconds else "", 4),
    Column("when", lambda s: format_time(s.when), 7, "left"),
    Column("state", lambda s: s.state_text, justify="left"),
)
CURVE = Column("losses", lambda s: sparkline([value for _, value in s.valid_losses], width=12), 9, "left")


def print_runs(found: Sequence[RunSummary]) -> None:
    columns = [column for column in visible_columns() if any(map(column.cell, found))]
    while out.is_terminal and table_width(columns, found) > out.width and any(column.drop_order for column in columns):
        columns.remove(max(columns, key=lambda column: column.drop_order))
    table = Table(box=None, pad_edge=False, header_style="bold" if out.is_terminal else "")
    for column in columns:
        table.add_column(column.name, justify=column.justify, no_wrap=True)
    for summary in found:
        table.add_row(*(escape(column.cell(summary)) for column in columns))
    out.print(table)
    report_damage(found)
    task = next((s.task for s in found if s.valid_losses), None)
    comparable = [s.path for s in found if s.valid_losses and s.task == task]
    if len(comparable) > 1:
        say("\nCompare:  " + command("runs", *comparable[:2]))


def visible_columns() -> list[Column]:
    """On a terminal, with a sparkline of the losses."""
    place = next(i for i, column in enumerate(COLUMNS) if column.name == "valid loss")
    return [*COLUMNS[:place], CURVE, *COLUMNS[place:]] if out.is_terminal else list(COLUMNS)


def table_width(columns: Sequence[Column], found: Sequence[RunSummary]) -> int:
    return sum(2 + max(len(column.name), *(len(column.cell(s)) for s in found)) for column in columns) - 2


def validation_score(s: RunSummary) -> str:
    if s.valid_bleu is not None:
        return f"{s.valid_bleu:.1f} BLEU"
    return f"{s.valid_accuracy:.1%}" if s.valid_accuracy is not None else ""


def report_damage(found: Sequence[RunSummary]) -> None:
    for summary in found:
        if summary.why:
            say(f"{summary.name} is damaged: {summary.why}")


def format_millions(count: int | None) -> str:
    if count is None:
        return ""
    return f"{count / 1e6:.2f} M" if count < 1e8 else f"{count / 1e6:,.0f} M"


def format_time(when: float) -> str:
    """With the time in this year, with the year before it."""
    if not when:
        return ""
    then = time.localtime(when)
    return time.strftime("%m-%d %H:%M" if then.tm_year == time.localtime().tm_year else "%Y-%m-%d", then)


def headline_score(scores: dict[str, Any]) -> str:
    name = next((name for name in HEADLINE if isinstance(scores.get(name), int | float)), None)
    if name is None:
        return ""
    value, percentages = scores[name], ("accuracy", "span_f1")
    unit = {"bleu": "BLEU", "span_f1": "F1", "accuracy": "acc", "perplexity": "ppl"}[name]
    return f"{value:.1%} {unit}" if name in percentages else f"{value:.1f} {unit}"


def sparkline(values: Sequence[float], width: int = 24, low: float | None = None, high: float | None = None) -> str:
    """▇▅▃▂▁ for falling numbers. `low` and `high` give several lines the same scale."""
    if len(values) > width:
        values = [values[round(i * (len(values) - 1) / (width - 1))] for i in range(width)]
    if not values:
        return ""
    low, high = min(values) if low is None else low, max(values) if high is None else high
    scale = (len(BARS) - 1) / (high - low) if high > low else 0.0
    return "".join(BARS[round(scale * (value - low))] for value in values)


def print_side_by_side(found: Sequence[RunSummary]) -> None:
    """Figures, then settings: those that differ from the defaults for one run, between the runs for several."""
    table = Table(box=None, pad_edge=False, header_style="bold" if out.is_terminal else "")
    table.add_column("", no_wrap=True)
    for summary in found:
        table.add_column(escape(summary.name), overflow="fold")
    for name, values in figures(found).items():
        table.add_row(name, *map(escape, values))
    table.add_row()
    settings = differing_settings(found) if len(found) > 1 else changed_settings(found[0])
    for name, values in settings.items():
        table.add_row(name, *map(escape, map(format_value, values)))
    out.print(table)
    if len(found) > 1 and not settings:
        say("All settings are the same.")
    if len(found) > 1 and (any(name in settings for name in LOSS_SETTINGS) or len({s.task for s in found}) > 1):
        say("Note: task, data or tokenizer differ, so the losses cannot be compared.")
    report_damage(found)


def figures(found: Sequence[RunSummary]) -> dict[str, list[str]]:
    """Name -> a cell for each run. Empty rows are dropped."""
    rows = {column.name: [column.cell(s) for s in found] for column in COLUMNS[1:]}
    rows["best step"] = [f"{s.best_step:,}" if s.best_step else "" for s in found]
    if out.is_terminal:
        values = [value for s in found for _, value in s.valid_losses]
        if values:
            low, high = min(values), max(values)
            rows["losses"] = [sparkline([v for _, v in s.valid_losses], 24, low, high) for s in found]
    for name in dict.fromkeys(name for s in found for name, score in s.scores.items() if not isinstance(score, dict)):
        rows[f"test {name.replace('_', ' ')}"] = [format_value(s.scores.get(name, "")) for s in found]
    return {name: row for name, row in rows.items() if any(row)}


def differing_settings(found: Sequence[RunSummary]) -> dict[str, list[Any]]:
    """Setting -> its value in each run, for settings that are not the same in all runs."""
    runs = [read_settings(summary) for summary in found]
    names = dict.fromkeys(name for settings in runs for name in settings)
    rows = {name: [settings.get(name, "") for settings in runs] for name in names}
    return {name: values for name, values in rows.items() if any(value != values[0] for value in values)}


def changed_settings(summary: RunSummary) -> dict[str, list[Any]]:
    defaults = flatten(Config())
    return {name: [value] for name, value in read_settings(summary).items() if value != defaults[name]}


def read_settings(summary: RunSummary) -> dict[str, Any]:
    return {} if summary.state == "damaged" else flatten(RunFolder(summary.path).read_config())


def flatten(config: Config) -> dict[str, Any]:
    return {f"{table}.{key}": v for table, values in dataclasses.asdict(config).items() for key, v in values.items()}


def format_value(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.5g}"
    return " ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def as_json(found: Sequence[RunSummary], compare: bool) -> Any:
    rows = [
        {**dataclasses.asdict(s), "when": time.strftime("%Y-%m-%dT%H:%M:%S%z", time.localtime(s.when))} for s in found
    ]
    return {"runs": rows, "differing": differing_settings(found)} if compare and len(found) > 1 else {"runs": rows}


def write_reports(folders: Sequence[RunFolder]) -> None:
    from cutaway.cli.summary import diagnose_run, write_report

    for folder in folders:
        say(f"The report: {write_report(folder, diagnose_run(folder, read_large=True))}")


def plot_losses(found: Sequence[RunSummary], file: Path) -> None:
    curves = {summary.name: summary.valid_losses for summary in found if summary.valid_losses}
    if not curves:
        raise RunError("none of these runs has a validation loss to draw. Leave --plot out.")
    if file.suffix.lower() not in (".png", ".svg", ".pdf"):
        raise ConfigError(f"--plot {file} has no known format. Use .png, .svg or .pdf.")
    from cutaway.explore import figures

    say(f"Wrote {figures.save(figures.validation_curves(curves), file)}")
