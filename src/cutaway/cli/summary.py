"""What a training leaves to be looked at: report.html, and a line for each thing that seems wrong."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from cutaway.cli.console import command, say
from cutaway.runs import RunFolder

if TYPE_CHECKING:
    from cutaway.diagnose.doctor import Diagnosis

STYLES = {"problem": "bold red", "warning": "yellow"}


def look_back(run: RunFolder) -> None:
    """At the end of a training. Whatever goes wrong here is told in a line: the training is done, and saved."""
    try:
        diagnosis = examine(run)
        for finding in diagnosis.of("problem", "warning"):
            say(f"{finding.severity}: {finding.title}. {finding.evidence}", STYLES[finding.severity])
        if diagnosis.findings:
            say("More:  " + command("doctor", run))
        say(f"The report: {write_report(run, diagnosis)}")
    except Exception as error:
        say(f"Note: the run is trained and saved, but its report could not be written: {error!r}")


def examine(run: RunFolder, read_large: bool = False) -> Diagnosis:
    """What `cutaway doctor` finds. A large corpus is read again on request alone."""
    from cutaway.data.store import is_large
    from cutaway.diagnose.doctor import diagnose, observe

    config = run.read_config()
    large = not read_large and is_large(config.data, config.model.task)
    observed = observe(run, with_data=not large)
    if large:
        observed = replace(observed, data_error=f"the data is large. `{command('doctor', run)}` reads it again")
    return diagnose(observed)


def write_report(run: RunFolder, diagnosis: Diagnosis) -> Path:
    from cutaway.explore.run_report import write_run_report

    return write_run_report(run, diagnosis.findings, diagnosis.in_order, diagnosis.not_known)
