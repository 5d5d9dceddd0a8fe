"""Every step of a forward pass, in order: its name, its equation, and a summary of its output.

    with record_steps(model) as steps:
        model(source, target_in)
    for step in steps:
        print(step.name, step.equation, step.summary.shape, step.summary.mean)

The steps are the model's probes and norms.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from html import escape
from typing import Any

import torch
from torch import Tensor, nn

from cutaway.explore.equations import formula_of, kind_of
from cutaway.explore.values import Summary, summarize_value
from cutaway.finetune.text_probe import TextProbe
from cutaway.nn.probe import Probe
from cutaway.nn.recording import probes, watch_probes

NORMS = ("LayerNorm", "RMSNorm")


@dataclass(frozen=True)
class StepRecord:
    """One step: module name, equation, statistics of the output."""

    name: str
    equation: str
    summary: Summary

    def as_json(self) -> dict[str, Any]:
        return {"name": self.name, "equation": self.equation, **self.summary.as_json()}


class StepTable(list[StepRecord]):
    """The steps in execution order; a notebook shows a table."""

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{escape(s.name)}</td><td>{escape(s.equation)}</td><td>{escape(s.summary.shape)}</td>"
            f"<td>{s.summary.mean:.3g} ± {s.summary.std:.3g}</td><td>{s.summary.min:.3g} … {s.summary.max:.3g}</td>"
            f"<td>{escape('; '.join(s.summary.flags))}</td></tr>"
            for s in self
        )
        head = "".join(f"<th>{name}</th>" for name in ("step", "equation", "axes", "mean ± spread", "range", ""))
        return f"<table><tr>{head}</tr>{rows}</table>"


def ignore_value(value: Tensor) -> None:
    """A hook that stores nothing. Its presence makes the model compute the probed values."""


@contextmanager
def record_steps(model: nn.Module) -> Iterator[StepTable]:
    """Record every step of the forward passes inside the `with` statement. Attention runs the exact kernel."""
    steps = StepTable()

    def hook_for(name: str) -> Any:
        formula = formula_of(model, name)

        def hook(module: nn.Module, inputs: Any, output: Tensor) -> None:
            is_softmax = name.endswith("_attention.weights")
            output = module.text(output) if isinstance(module, TextProbe) else output
            steps.append(StepRecord(name, formula.equation, summarize_value(output, formula.axes, is_softmax)))

        return hook

    watched = {name: (probe, ignore_value) for name, probe in probes(model).items()}
    with ExitStack() as hooks, watch_probes(watched), torch.no_grad():
        for name, module in model.named_modules():
            if isinstance(module, Probe) or kind_of(module) in NORMS:
                hooks.callback(module.register_forward_hook(hook_for(name)).remove)
        yield steps
