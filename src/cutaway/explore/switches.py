"""What of a model can be switched off, by a name that fits into an address, and how much that matters.

decoder.layers.1.cross_attention.heads.2     one head: its output is zeros
decoder.layers.1.feed_forward                a sub-layer: it adds nothing to the residual stream
decoder.layers.1.block                       both sub-layers of a parallel layer, which share one residual connection
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from cutaway.errors import ConfigError, nearest
from cutaway.explore.question import Question
from cutaway.nn.recording import editing, probes, without_head

HEADS = re.compile(r"((\w+)\.layers\.(\d+)\.(self_attention|cross_attention))\.heads")
UPDATE = re.compile(r"((\w+)\.layers\.(\d+)\.)(?:(self_attention|cross_attention|feed_forward)_)?residual\.update")
TOLD = {"self_attention": "self-attention", "cross_attention": "cross-attention", "feed_forward": "feed-forward"}
TOLD["block"] = "attention and feed-forward"


class Switch(NamedTuple):
    """`probe` is where the value is changed."""

    id: str
    kind: str  # head or sublayer
    stack: str
    layer: int
    part: str
    head: int | None
    probe: str

    @property
    def title(self) -> str:
        of_head = "" if self.head is None else f", head {self.head}"
        return f"{self.stack} layer {self.layer}, {TOLD[self.part]}{of_head}"

    def as_json(self) -> dict[str, Any]:
        return {**self._asdict(), "title": self.title}


def switches(model: nn.Module) -> dict[str, Switch]:
    """All switches of a model by their id, layer by layer."""
    found: list[Switch] = []
    for name in probes(model):
        if match := HEADS.fullmatch(name):
            path, stack, layer, part = match.groups()
            n_heads: int = model.get_submodule(path).n_heads  # type: ignore[assignment]
            heads = range(n_heads)
            found += [Switch(f"{name}.{i}", "head", stack, int(layer), part, i, name) for i in heads]
        elif match := UPDATE.fullmatch(name):
            path, stack, layer, part = match.groups()
            part = part or "block"
            found.append(Switch(path + part, "sublayer", stack, int(layer), part, None, name))
    return {switch.id: switch for switch in found}


def switched_off(model: nn.Module, off: Iterable[str]) -> AbstractContextManager[None]:
    """While the block runs, these are off."""
    known = switches(model)
    heads: dict[str, list[int]] = {}
    edits: dict[str, Callable[[Tensor], Tensor]] = {}
    for id in off:
        if id not in known:
            sublayers = [name for name, switch in known.items() if switch.head is None]
            head = next(name for name in known if name not in sublayers)
            raise ConfigError(
                f"this model has nothing called {id!r} to switch off. {nearest(id, known)}"
                f"There are {', '.join(sublayers)}; and heads, such as {head}."
            )
        switch = known[id]
        if switch.head is None:
            edits[switch.probe] = torch.zeros_like
        else:
            heads.setdefault(switch.probe, []).append(switch.head)
    return editing(model, edits | {probe: without_head(*chosen) for probe, chosen in heads.items()})


@torch.no_grad()
def ablations(model: Any, question: Question) -> dict[str, float]:
    """For each switch, with it alone off (beside what is off already): how likely the same answer is then, in nats."""
    found = {}
    for id in switches(model):
        with switched_off(model, [id]):
            found[id] = question.total_log_p(question.logits(model))
    return found
