"""Progress of an experiment: live bars on a terminal, a plain line for each training when piped."""

from __future__ import annotations

from rich.progress import BarColumn, Progress, TaskID, TextColumn

from cutaway.cli.console import clock, err, say
from cutaway.course.lab import Trial
from cutaway.course.verdict import METRICS


class LabProgress:
    """On a terminal, a bar for each running training and one for all. When piped, a line for each finished one."""

    def __init__(self) -> None:
        columns = (TextColumn("{task.description}", markup=False), BarColumn(20), TextColumn("{task.fields[note]}"))
        self.bars = Progress(*columns, console=err, disable=not err.is_terminal)
        self.running: dict[str, TaskID] = {}
        self.finished, self.total = 0, 0

    def __enter__(self) -> LabProgress:
        self.bars.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.bars.stop()

    def on_start(self, trials: list[Trial], finished: int) -> None:
        self.total, self.finished = len(trials), finished
        kept = f" ({finished} of them are finished already)" if finished else ""
        say(f"{self.total} trainings{kept}")
        self.overall = self.bars.add_task("all trainings", total=self.total, completed=finished, note="")

    def on_step(self, trial: Trial, step: int, steps: int, loss: float) -> None:
        if trial.name not in self.running:
            self.running[trial.name] = self.bars.add_task(trial.name, total=steps, note="")
        note = f"step {step:,} of {steps:,}, loss {loss:.3f}"
        self.bars.update(self.running[trial.name], completed=step, note=note)

    def on_result(self, trial: Trial) -> None:
        self.finished += 1
        if trial.name in self.running:
            self.bars.remove_task(self.running.pop(trial.name))
        self.bars.update(self.overall, completed=self.finished)
        seconds = (trial.result or {}).get("seconds", 0.0)
        say(f"{self.finished} of {self.total}: {trial.name}: {describe_result(trial)}, in {clock(seconds)}")


def describe_result(trial: Trial) -> str:
    measures = (trial.result or {}).get("measures")
    if measures:
        return ", ".join(f"{name} {METRICS[name].format(value)}" for name, value in measures.items())
    return str(trial.value("cross-entropy"))
