"""Where a model's parameters are, and where the time of a forward pass goes: part by part."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from html import escape
from typing import Any

import torch
from torch import Tensor, nn

REST = "the rest"  # residual sums, dropout, what holds the parts together
# part -> what the names of its modules look like; the first row that fits decides
PARTS = {
    "head": ("head.*",),
    "positions": ("*.position.*",),
    "norms": ("*norm.*", "*norm_after.*"),
    "encoder self-attention": ("encoder.*.self_attention.*",),
    "decoder self-attention": ("decoder.*.self_attention.*",),
    "cross-attention": ("*.cross_attention.*",),
    "feed-forward": ("*.feed_forward.*",),
    "embeddings": ("*embedding.*",),
}
ORDER = ("embeddings", "positions", *list(PARTS)[3:7], "norms", "head", REST)  # as a token meets them


@dataclass(frozen=True)
class PartCost:
    """One part of a model."""

    part: str
    parameters: int
    seconds: float


@dataclass(frozen=True)
class Budget:
    """The parts of a model; their parameters and seconds add up to those of the whole.

    A matrix that several parts share counts once, for the part that comes first in the model. The seconds are those
    of one forward pass, each part without what other parts did inside it.
    """

    shares: tuple[PartCost, ...]
    tokens: int  # that the measured forward pass read, padding included; of images, their patches are not counted

    @property
    def parameters(self) -> int:
        return sum(share.parameters for share in self.shares)

    @property
    def seconds(self) -> float:
        return sum(share.seconds for share in self.shares)

    def as_json(self) -> dict[str, Any]:
        parts = [{"part": s.part, "parameters": s.parameters, "seconds": s.seconds} for s in self.shares]
        return {"parameters": self.parameters, "seconds": self.seconds, "tokens": self.tokens, "parts": parts}

    def rows(self) -> list[tuple[str, ...]]:
        """(part, parameters, per cent of all, milliseconds, per cent of all), the whole last."""
        whole = PartCost("all", self.parameters, self.seconds)
        return [
            (
                share.part,
                f"{share.parameters:,}",
                f"{share.parameters / max(1, self.parameters):.1%}",
                f"{1000 * share.seconds:.2f}",
                f"{share.seconds / self.seconds:.1%}",
            )
            for share in (*self.shares, whole)
        ]

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{name}</th>" for name in ("part", "parameters", "", "milliseconds", ""))
        body = "".join(f"<tr>{''.join(f'<td>{escape(c)}</td>' for c in row)}</tr>" for row in self.rows())
        return f"<table><tr>{head}</tr>{body}</table>"


def budget(model: nn.Module, *inputs: Tensor | None, runs: int = 5) -> Budget:
    """Count the parameters, and time `model(*inputs)`: of several runs, the one that took the median time."""
    parameters, seconds = parameters_by_part(model), seconds_by_part(model, inputs, runs)
    parts = [part for part in ORDER if part in parameters or part in seconds]
    ids = [tensor for tensor in inputs if tensor is not None and not tensor.is_floating_point()]
    return Budget(
        tuple(PartCost(part, parameters.get(part, 0), seconds.get(part, 0.0)) for part in parts),
        tokens=sum(tensor.numel() for tensor in ids if tensor.dtype != torch.bool),
    )


def part_of(name: str) -> str:
    """The part that a module or parameter of this name belongs to."""
    for part, patterns in PARTS.items():
        if any(fnmatchcase(f"{name}.", pattern) for pattern in patterns):
            return part
    return REST


def parameters_by_part(model: nn.Module) -> dict[str, int]:
    counts: dict[str, int] = {}
    for name, parameter in model.named_parameters():  # which gives a shared one once
        part = part_of(name.rpartition(".")[0])
        counts[part] = counts.get(part, 0) + parameter.numel()
    return counts


def seconds_by_part(model: nn.Module, inputs: tuple[Tensor | None, ...], runs: int) -> dict[str, float]:
    watches = []
    was_training = model.training
    model.eval()
    with torch.no_grad():
        model(*inputs)  # the first run pays for what is done only once
        for _ in range(runs):
            with time_parts(model) as watch:
                model(*inputs)
            watches.append(watch)
    model.train(was_training)
    return sorted(watches, key=lambda watch: sum(watch.seconds.values()))[runs // 2].seconds


@dataclass
class Stopwatch:
    """One part runs at a time: when another begins, or ends, the time since the last change is booked to the one."""

    device: torch.device
    seconds: dict[str, float] = field(default_factory=dict)
    running: list[str] = field(default_factory=list)
    since: float = 0.0

    def book(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        now = time.perf_counter()
        if self.running:
            self.seconds[self.running[-1]] = self.seconds.get(self.running[-1], 0.0) + now - self.since
        self.since = now

    def begin(self, part: str) -> None:
        self.book()
        self.running.append(part)

    def end(self) -> None:
        self.book()
        self.running.pop()


@contextmanager
def time_parts(model: nn.Module) -> Iterator[Stopwatch]:
    """A stopwatch that runs while the block does, switched by hooks wherever one part enters another."""
    watch, hooks = Stopwatch(next(model.parameters()).device), []

    def beginning(part: str) -> Any:
        return lambda module, given: watch.begin(part)

    def ending(module: nn.Module, given: Any, output: Any) -> None:
        watch.end()

    for name, module in model.named_modules():
        part = part_of(name) if name else REST
        is_entry = not name or part != part_of(name.rpartition(".")[0])
        if is_entry and not isinstance(module, nn.Identity):
            hooks += [module.register_forward_pre_hook(beginning(part)), module.register_forward_hook(ending)]
    try:
        yield watch
    finally:
        for hook in hooks:
            hook.remove()
