"""What a training leaves to be looked at: report.html, and a line for each thing that seems wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cutaway.cli.console import command, say
from cutaway.runs import RunFolder

STYLES = {"problem": "bold red", "warning": "yellow"}


def look_back(run: RunFolder, with_data: bool = False) -> None:
    """At the end of a training. Whatever goes wrong here is told in a line: the training is done, and saved."""
    try:
        report, diagnosis = write_report(run, with_data)
        for finding in diagnosis.of("problem", "warning"):
            say(f"{finding.severity}: {finding.title}. {finding.evidence}", STYLES[finding.severity])
        if diagnosis.findings:
            say("More:  " + command("doctor", run))
        say(f"The report: {report}")
    except Exception as error:
        say(f"Note: the run is trained and saved, but its report could not be written: {error!r}")


def write_report(run: RunFolder, with_data: bool) -> tuple[Path, Any]:
    from cutaway.show.run_report import write_run_report
    from cutaway.train.doctor import diagnose, observe

    diagnosis = diagnose(observe(run, with_data)[0])
    return write_run_report(run, diagnosis.findings, diagnosis.in_order), diagnosis
