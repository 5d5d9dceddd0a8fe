"""cutaway doctor RUN"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from cutaway.cli.console import clock, command, err, out, print_json, say
from cutaway.errors import RunError
from cutaway.runs import RunFolder

if TYPE_CHECKING:
    from cutaway.diagnose.doctor import Diagnosis
    from cutaway.runs.summary import RunSummary

PROBLEM = 3  # the exit code if there is a problem, so that a script can ask
STYLES = {"problem": "bold red", "warning": "yellow", "note": "cyan"}


def doctor(
    run: Annotated[Path, typer.Argument(help="A run folder, such as runs/demo; it may still be training.")],
    no_data: Annotated[bool, typer.Option("--no-data", help="Look at the run alone, without reading data.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Findings and figures, for programs.")] = False,
) -> None:
    """Say what is wrong with a run: overfitting, learning rate, leaking data, scores that cannot be compared ...

    Examples:  cutaway doctor runs/demo

               cutaway doctor runs/demo --no-data

               cutaway doctor runs/demo --json | jq .findings

    Exit code: 3 if there is a problem; 0 if there are only warnings and notes, or nothing.
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
            f"{folder} was not trained here: it holds imported weights, and a doctor looks at a training. "
            f"What can be measured without one:  {use}"
        )
    if not folder.read_metrics():
        raise RunError(
            f"{folder.metrics} has nothing in it: there is nothing to look at yet. Wait for the first lines, which "
            "come after train.log_every steps, or train first."
        )
    with err.status("looking at the run and its data ..."):
        observed = observe(folder, with_data=not no_data)
        diagnosis = diagnose(observed)
    if json:
        print_json(
            {"run": str(run), **key_figures(summary), **diagnosis.as_json(), "data_error": observed.data_error or None}
        )
    else:
        print_diagnosis(summary, diagnosis)
        if no_data:
            say("\nWith its data: " + command("doctor", run))
    if diagnosis.has_problem:
        raise typer.Exit(PROBLEM)


def key_figures(summary: RunSummary) -> dict[str, object]:
    names = (
        "state",
        "steps",
        "best_step",
        "valid_loss",
        "valid_accuracy",
        "valid_bleu",
        "tokens_per_second",
        "seconds",
    )
    return {name: getattr(summary, name) for name in names}


def print_diagnosis(summary: RunSummary, diagnosis: Diagnosis) -> None:
    """Findings with their evidence and what to do; then what is in order."""
    out.print(headline(summary), style="bold", markup=False)
    for finding in diagnosis.findings:
        style = STYLES[finding.severity]
        out.print(f"\n[{style}]{finding.severity}[/]  {escape(finding.title)}.")
        out.print(f"    {finding.evidence}", markup=False)
        out.print(f"    → {finding.remedy}", markup=False)
    if not diagnosis.findings:
        out.print("\nNothing wrong was found.")
    if diagnosis.in_order:
        out.print("\nIn order: " + "; ".join(diagnosis.in_order) + ".", markup=False)
    for sentence in diagnosis.not_known:
        out.print(sentence, markup=False)


def headline(summary: RunSummary) -> str:
    parts = [f"{summary.path}: {summary.task.replace('_', ' ')}, {summary.told_state}", f"{summary.steps:,} steps"]
    if summary.valid_loss is not None:
        parts.append(f"validation loss {summary.valid_loss:.4f} at step {summary.best_step:,}")
    if summary.valid_accuracy is not None:
        parts.append(f"accuracy {summary.valid_accuracy:.1%}")
    if summary.valid_bleu is not None:
        parts.append(f"BLEU {summary.valid_bleu:.1f}")
    if summary.tokens_per_second:
        parts.append(f"{summary.tokens_per_second:,.0f} answers/s")
    return ", ".join([*parts, clock(summary.seconds)])
