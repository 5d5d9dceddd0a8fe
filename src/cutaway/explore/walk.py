"""Every step of a forward pass in reading order: its name, its equation, and what came out.

    with walking(model) as steps:
        model(source, target_in)
    for step in steps:
        print(step.name, step.equation, step.summary.shape, step.summary.mean)

The steps are the probes of the model and its norms. Of these a reader can work out all that lies between.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from html import escape
from typing import Any

import torch
from torch import Tensor, nn

from cutaway.explore.equations import kind_of, told_of
from cutaway.explore.values import Summary, summarize_value
from cutaway.finetune.text_probe import TextProbe
from cutaway.nn.probe import Probe
from cutaway.nn.recording import probes, watching

NORMS = ("LayerNorm", "RMSNorm")


@dataclass(frozen=True)
class Step:
    name: str
    equation: str
    summary: Summary

    def as_json(self) -> dict[str, Any]:
        return {"name": self.name, "equation": self.equation, **self.summary.as_json()}


class Walk(list[Step]):
    """Steps in the order in which the model took them."""

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{escape(s.name)}</td><td>{escape(s.equation)}</td><td>{escape(s.summary.shape)}</td>"
            f"<td>{s.summary.mean:.3g} ± {s.summary.std:.3g}</td><td>{s.summary.min:.3g} … {s.summary.max:.3g}</td>"
            f"<td>{escape('; '.join(s.summary.flags))}</td></tr>"
            for s in self
        )
        head = "".join(f"<th>{name}</th>" for name in ("step", "equation", "axes", "mean ± spread", "range", ""))
        return f"<table><tr>{head}</tr>{rows}</table>"


def unchanged(value: Tensor) -> None:
    """A watcher that keeps nothing: that it is there makes the model show itself."""


@contextmanager
def walking(model: nn.Module) -> Iterator[Walk]:
    """Note every step that the model takes while the block runs. Attention is spelled out meanwhile."""
    steps = Walk()

    def note(name: str) -> Any:
        told = told_of(model, name)

        def hook(module: nn.Module, inputs: Any, output: Tensor) -> None:
            is_softmax = name.endswith("_attention.weights")
            output = module.text(output) if isinstance(module, TextProbe) else output
            steps.append(Step(name, told.equation, summarize_value(output, told.axes, is_softmax)))

        return hook

    watched = {name: (probe, unchanged) for name, probe in probes(model).items()}
    with ExitStack() as hooks, watching(watched), torch.no_grad():
        for name, module in model.named_modules():
            if isinstance(module, Probe) or kind_of(module) in NORMS:
                hooks.callback(module.register_forward_hook(note(name)).remove)
        yield steps
