"""Copy the results of finished lab experiments into book/results/lab/, with their date and the machine.

    cutaway lab one-head                    # writes lab/one-head/results.json
    python book/results/collect.py          # copies the results of all experiments in lab/
    make book                               # runs the cells of the book again

Run it on the machine that ran the experiments: it writes the name of this machine's processor.
"""

from __future__ import annotations

import json
import platform
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from cutaway.system.machine import cores

ROOT = Path(__file__).parents[2]
TARGET = Path(__file__).parent / "lab"


def main(lab: Path) -> None:
    files = sorted(lab.glob("*/results.json"))
    if not files:
        sys.exit(f"{lab} has no results. Run an experiment first:  cutaway lab one-head")
    TARGET.mkdir(exist_ok=True)
    for file in files:
        results = json.loads(file.read_text(encoding="utf-8"))
        if missing := count_missing(results):
            print(f"{file.parent.name}: skipped, {missing} trainings are missing or failed")
            continue
        for run in (run for variant in results["variants"] for run in variant["runs"]):
            run.pop("curve", None), run.pop("written", None)  # long, and not in the book
        date = datetime.fromtimestamp(file.stat().st_mtime, UTC).date().isoformat()
        text = json.dumps({"date": date, "machine": describe_machine(), **results}, indent=1, ensure_ascii=False)
        target = TARGET / f"{results['experiment']}.json"
        target.write_text(text + "\n", encoding="utf-8")
        print(f"{file.parent.name}: {target.relative_to(ROOT)}")


def count_missing(results: dict[str, Any]) -> int:
    """Count the trainings without a result. A diverged training has one."""
    runs = [run for variant in results["variants"] for run in variant["runs"]]
    return sum("measures" not in run for run in runs)


def describe_machine() -> dict[str, Any]:
    return {"cpu": cpu_name(), "cores": cores(), "torch": torch.__version__, "python": platform.python_version()}


def cpu_name() -> str:
    """The name of the processor: from Linux, or from Python on other systems."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "lab")
