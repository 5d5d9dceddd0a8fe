"""The logit lens: what a model would say if it stopped after this layer (nostalgebraist 2020).

    x after layer i ──▶ the norm that ends the stack ──▶ head ──▶ a distribution, long before the last layer

A residual stream is written in one language all the way up, so the head can read it at any height.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from cutaway.explore.question import Question
from cutaway.nn.recording import probes


def stack_of(model: nn.Module) -> str:
    """The stack whose end the head reads."""
    return "decoder" if hasattr(model, "decoder") else "encoder"


def heights(model: nn.Module) -> dict[str, str]:
    """The probe that shows the residual stream at each height: "embedding", "layer 0", ... -> its name."""
    stack, names = stack_of(model), list(probes(model))
    last = next(name for name in reversed(names) if name.endswith("embedding.embedded"))
    streams = {"embedding": last}
    for i in range(len(getattr(model, stack).layers)):
        of_layer = [n for n in names if n.startswith(f"{stack}.layers.{i}.") and n.endswith(".stream")]
        streams[f"layer {i}"] = of_layer[-1]  # what the next layer reads
    return streams


@torch.no_grad()
def lens(model: Any, question: Question, seen: Mapping[str, Tensor], axis: list[str]) -> dict[str, Any]:
    """At each height, for each thing that was asked: the favourite, its probability, and that of the final answer."""
    norm, answers_N = getattr(model, stack_of(model)).norm, torch.tensor(question.answers)
    told: dict[str, Any] = {"rows": [], "axis": axis, "tokens": [], "p": [], "final": []}
    for height, name in heights(model).items():
        p_NV = question.asked(model.head(norm(seen[name]))).softmax(-1).cpu()
        best = p_NV.max(-1)
        told["rows"].append(height)
        told["tokens"].append(question.names(best.indices.tolist()))
        told["p"].append(best.values.round(decimals=4).tolist())
        told["final"].append(p_NV.gather(1, answers_N[:, None])[:, 0].round(decimals=6).tolist())
    return told
