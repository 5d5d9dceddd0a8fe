"""cutaway doctor RUN"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from cutaway.cli.console import clock, command, err, out, print_json, print_text, say
from cutaway.cli.options import Json, Run
from cutaway.errors import RunError
from cutaway.runs import RunFolder

if TYPE_CHECKING:
    from cutaway.diagnose.doctor import Diagnosis
    from cutaway.runs.summary import RunSummary

EXIT_PROBLEM = 3  # exit code if a problem was found, for scripts
STYLES = {"problem": "bold red", "warning": "yellow", "note": "cyan"}
FIGURES = ("state", "steps", "best_step", "valid_loss", "valid_accuracy", "valid_bleu", "tokens_per_second", "seconds")


def doctor(
    run: Run,
    no_data: Annotated[bool, typer.Option("--no-data", help="Do not read the data; check the metrics only.")] = False,
    json: Json = False,
) -> None:
    """Diagnose a run: overfitting, learning rate, leaking data, ...

    Examples:  cutaway doctor runs/demo
               cutaway doctor runs/demo --no-data
               cutaway doctor runs/demo --json | jq .findings

    The run may still be training. Exit code: 3 if there is a problem, else 0 (also with warnings and notes).
    """
    from cutaway.diagnose.doctor import diagnose, observe
    from cutaway.runs.summary import summarize

    folder = RunFolder(run)
    if not folder.config.is_file():
        folder.require()
    summary = summarize(folder)
    if summary.state == "weights only":
        use = command("evaluate", folder, "--data", "FILE") if summary.task != "embedding" else command("mask", folder)
        raise RunError(
            f"{folder} was not trained here: it has imported weights and no metrics to diagnose. Instead:  {use}"
        )
    if not folder.read_metrics():
        raise RunError(
            f"{folder.metrics} is empty. Wait for the first metrics, which come after train.log_every steps, or train "
            "the run first."
        )
    with err.status("reading the run and its data ..."):
        observed = observe(folder, with_data=not no_data)
        diagnosis = diagnose(observed)
    if json:
        figures = {name: getattr(summary, name) for name in FIGURES}
        print_json({"run": str(run), **figures, **diagnosis.as_json(), "data_error": observed.data_error or None})
    else:
        print_diagnosis(summary, diagnosis)
        if no_data:
            say("\nWith the data: " + command("doctor", run))
    if diagnosis.has_problem:
        raise typer.Exit(EXIT_PROBLEM)


def print_diagnosis(summary: RunSummary, diagnosis: Diagnosis) -> None:
    """Findings with evidence and remedy, then the checks that passed and those that could not run."""
    print_text(headline(summary), style="bold")
    for finding in diagnosis.findings:
        out.print()
        title = Text.assemble((finding.severity, STYLES[finding.severity]), f"  {finding.title}.")
        out.print(title, soft_wrap=not out.is_terminal)
        print_text(finding.evidence, indent=4)
        print_text(f"→ {finding.remedy}", indent=4)
    if not diagnosis.findings:
        out.print("\nNo problem was found.")
    if diagnosis.in_order:
        out.print()
        print_text("Passed: " + "; ".join(diagnosis.in_order) + ".")
    for sentence in diagnosis.not_known:
        print_text(sentence)


def headline(summary: RunSummary) -> str:
    parts = [f"{summary.path}: {summary.task.replace('_', ' ')}, {summary.state_text}", f"{summary.steps:,} steps"]
    if summary.valid_loss is not None:
        parts.append(f"validation loss {summary.valid_loss:.4f} at step {summary.best_step:,}")
    if summary.valid_accuracy is not None:
        parts.append(f"accuracy {summary.valid_accuracy:.1%}")
    if summary.valid_bleu is not None:
        parts.append(f"BLEU {summary.valid_bleu:.1f}")
    if summary.tokens_per_second:
        parts.append(f"{summary.tokens_per_second:,.0f} targets/s")
    return ", ".join([*parts, clock(summary.seconds)])
