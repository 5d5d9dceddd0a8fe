"""Ablation: heads and sub-layers that can be switched off, by name, and the effect on the output.

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
from cutaway.explore.traced_example import TracedExample
from cutaway.nn.recording import edit_activations, probes, without_head

HEADS = re.compile(r"((\w+)\.layers\.(\d+)\.(self_attention|cross_attention))\.heads")
UPDATE = re.compile(r"((\w+)\.layers\.(\d+)\.)(?:(self_attention|cross_attention|feed_forward)_)?residual\.update")
PART_NAMES = {"self_attention": "self-attention", "cross_attention": "cross-attention", "feed_forward": "feed-forward"}
PART_NAMES["block"] = "attention and feed-forward"


class AblationTarget(NamedTuple):
    """A head or sub-layer; `probe` is the activation that is set to zero."""

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
        return f"{self.stack} layer {self.layer}, {PART_NAMES[self.part]}{of_head}"

    def as_json(self) -> dict[str, Any]:
        return {**self._asdict(), "title": self.title}


def ablation_targets(model: nn.Module) -> dict[str, AblationTarget]:
    """All heads and sub-layers of a model that can be switched off, by id, layer by layer."""
    found: list[AblationTarget] = []
    for name in probes(model):
        if match := HEADS.fullmatch(name):
            path, stack, layer, part = match.groups()
            n_heads: int = model.get_submodule(path).n_heads  # type: ignore[assignment]
            heads = range(n_heads)
            found += [AblationTarget(f"{name}.{i}", "head", stack, int(layer), part, i, name) for i in heads]
        elif match := UPDATE.fullmatch(name):
            path, stack, layer, part = match.groups()
            part = part or "block"
            found.append(AblationTarget(path + part, "sublayer", stack, int(layer), part, None, name))
    return {target.id: target for target in found}


def ablate(model: nn.Module, off: Iterable[str]) -> AbstractContextManager[None]:
    """Switch these heads and sub-layers off inside a `with` statement."""
    known = ablation_targets(model)
    heads: dict[str, list[int]] = {}
    edits: dict[str, Callable[[Tensor], Tensor]] = {}
    for id in off:
        if id not in known:
            sublayers = [name for name, target in known.items() if target.head is None]
            head = next(name for name in known if name not in sublayers)
            raise ConfigError(
                f"this model has no head or sub-layer {id!r}. {nearest(id, known)}"
                f"Sub-layers: {', '.join(sublayers)}. Heads have names such as {head}."
            )
        target = known[id]
        if target.head is None:
            edits[target.probe] = torch.zeros_like
        else:
            heads.setdefault(target.probe, []).append(target.head)
    return edit_activations(model, edits | {probe: without_head(*chosen) for probe, chosen in heads.items()})


@torch.no_grad()
def measure_ablations(model: Any, example: TracedExample) -> dict[str, float]:
    """The log-probability of the same answer, in nats, with each target switched off (in addition to earlier edits)."""
    found = {}
    for id in ablation_targets(model):
        with ablate(model, [id]):
            found[id] = example.total_log_p(example.logits(model))
    return found
