"""The end of a training: the findings of the doctor, and report.html."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from cutaway.cli.console import command, say
from cutaway.runs import RunFolder

if TYPE_CHECKING:
    from cutaway.diagnose.doctor import Diagnosis

STYLES = {"problem": "bold red", "warning": "yellow"}


def summarize_training(run: RunFolder) -> None:
    """Print the findings and write the report. An error here becomes a note, because the run is already saved."""
    try:
        diagnosis = diagnose_run(run)
        for finding in diagnosis.of("problem", "warning"):
            say(f"{finding.severity}: {finding.title}. {finding.evidence}", STYLES[finding.severity])
        if diagnosis.findings:
            say("More:  " + command("doctor", run))
        say(f"The report: {write_report(run, diagnosis)}")
    except Exception as error:
        say(f"Note: the run is trained and saved, but its report could not be written: {error!r}")


def diagnose_run(run: RunFolder, read_large: bool = False) -> Diagnosis:
    """The diagnosis of `cutaway doctor`. A large corpus is read only if `read_large`."""
    from cutaway.data.store import is_large
    from cutaway.diagnose.doctor import diagnose, observe

    config = run.read_config()
    skips_data = not read_large and is_large(config.data, config.model.task)
    observed = observe(run, with_data=not skips_data)
    if skips_data:
        observed = replace(observed, data_error=f"the data is large. `{command('doctor', run)}` reads it")
    return diagnose(observed)


def write_report(run: RunFolder, diagnosis: Diagnosis) -> Path:
    from cutaway.explore.run_report import write_run_report

    return write_run_report(run, diagnosis.findings, diagnosis.in_order, diagnosis.not_known)
