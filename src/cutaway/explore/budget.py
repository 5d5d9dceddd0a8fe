"""How the parameters of a model and the time of a forward pass divide among its parts."""

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

REST = "the rest"  # residual sums, dropout and all other modules
# part -> patterns of module names; the first matching row decides
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
ORDER = ("embeddings", "positions", *list(PARTS)[3:7], "norms", "head", REST)  # order of the forward pass


@dataclass(frozen=True)
class PartCost:
    part: str
    parameters: int
    seconds: float


@dataclass(frozen=True)
class Budget:
    """The cost of each part of a model. Parameters and seconds add up to the totals.

    A matrix that several parts share counts once, for the part that comes first in the model. The seconds are of one
    forward pass; time inside a nested part counts for the nested part only.
    """

    shares: tuple[PartCost, ...]
    tokens: int  # tokens in the measured forward pass, with padding; 0 for images

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
        """(part, parameters, % of parameters, milliseconds, % of time); the last row is the total."""
        total = PartCost("all", self.parameters, self.seconds)
        return [
            (
                share.part,
                f"{share.parameters:,}",
                f"{share.parameters / max(1, self.parameters):.1%}",
                f"{1000 * share.seconds:.2f}",
                f"{share.seconds / self.seconds:.1%}",
            )
            for share in (*self.shares, total)
        ]

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{name}</th>" for name in ("part", "parameters", "", "milliseconds", ""))
        body = "".join(f"<tr>{''.join(f'<td>{escape(c)}</td>' for c in row)}</tr>" for row in self.rows())
        return f"<table><tr>{head}</tr>{body}</table>"


def budget(model: nn.Module, *inputs: Tensor | None, runs: int = 5) -> Budget:
    """Count the parameters and time `model(*inputs)`. The times are those of the run with the median total."""
    parameters, seconds = parameters_by_part(model), seconds_by_part(model, inputs, runs)
    parts = [part for part in ORDER if part in parameters or part in seconds]
    ids = [tensor for tensor in inputs if tensor is not None and not tensor.is_floating_point()]
    return Budget(
        tuple(PartCost(part, parameters.get(part, 0), seconds.get(part, 0.0)) for part in parts),
        tokens=sum(tensor.numel() for tensor in ids if tensor.dtype != torch.bool),
    )


def part_of(name: str) -> str:
    """The part that a module or parameter belongs to, by its name."""
    for part, patterns in PARTS.items():
        if any(fnmatchcase(f"{name}.", pattern) for pattern in patterns):
            return part
    return REST


def parameters_by_part(model: nn.Module) -> dict[str, int]:
    counts: dict[str, int] = {}
    for name, parameter in model.named_parameters():  # yields a shared parameter once
        part = part_of(name.rpartition(".")[0])
        counts[part] = counts.get(part, 0) + parameter.numel()
    return counts


def seconds_by_part(model: nn.Module, inputs: tuple[Tensor | None, ...], runs: int) -> dict[str, float]:
    watches = []
    was_training = model.training
    model.eval()
    with torch.no_grad():
        model(*inputs)  # warm-up
        for _ in range(runs):
            with time_parts(model) as watch:
                model(*inputs)
            watches.append(watch)
    model.train(was_training)
    return sorted(watches, key=lambda watch: sum(watch.seconds.values()))[runs // 2].seconds


@dataclass
class Stopwatch:
    """Measures nested parts. At each change, the time since the last change is added to the innermost part."""

    device: torch.device
    seconds: dict[str, float] = field(default_factory=dict)
    running: list[str] = field(default_factory=list)
    since: float = 0.0

    def add_elapsed(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        elif self.device.type == "mps":
            torch.mps.synchronize()
        now = time.perf_counter()
        if self.running:
            self.seconds[self.running[-1]] = self.seconds.get(self.running[-1], 0.0) + now - self.since
        self.since = now

    def start(self, part: str) -> None:
        self.add_elapsed()
        self.running.append(part)

    def stop(self) -> None:
        self.add_elapsed()
        self.running.pop()


@contextmanager
def time_parts(model: nn.Module) -> Iterator[Stopwatch]:
    """Measure the forward passes inside the `with` statement. Hooks switch the stopwatch where a part calls another."""
    watch, hooks = Stopwatch(next(model.parameters()).device), []

    def start_hook(part: str) -> Any:
        return lambda module, inputs: watch.start(part)

    def stop_hook(module: nn.Module, inputs: Any, output: Any) -> None:
        watch.stop()

    for name, module in model.named_modules():
        part = part_of(name) if name else REST
        is_entry = not name or part != part_of(name.rpartition(".")[0])
        if is_entry and not isinstance(module, nn.Identity):
            hooks += [module.register_forward_pre_hook(start_hook(part)), module.register_forward_hook(stop_hook)]
    try:
        yield watch
    finally:
        for hook in hooks:
            hook.remove()
