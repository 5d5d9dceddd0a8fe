"""The logit lens: the prediction read from the residual stream after each layer (nostalgebraist 2020).

    x after layer i ──▶ final norm of the stack ──▶ head ──▶ a distribution

All layers add to one residual stream, so the head can be applied after any of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from cutaway.explore.traced_example import TracedExample
from cutaway.nn.recording import probes


def stack_of(model: nn.Module) -> str:
    """The stack whose output the head reads."""
    return "decoder" if hasattr(model, "decoder") else "encoder"


def stream_probes(model: nn.Module, stack: str | None = None, with_sublayers: bool = False) -> dict[str, str]:
    """The probe of the residual stream at each depth: "embedding", "layer 0", ... -> probe name.

    `stack`: the one that the head reads, if not given. `with_sublayers`: also after the attention of each layer.
    """
    stack, names = stack or stack_of(model), list(probes(model))
    embedded = [name for name in names if name.endswith("embedding.embedded")]
    streams = {"embedding": embedded[0 if stack == "encoder" else -1]}
    for i in range(len(getattr(model, stack).layers)):
        of_layer = [n for n in names if n.startswith(f"{stack}.layers.{i}.") and n.endswith(".stream")]
        if with_sublayers:
            streams |= {f"layer {i}, {sublayer_of(name)}": name for name in of_layer[:-1]}
        if of_layer:  # layers that share their weights have one name, and record their last call
            streams[f"layer {i}"] = of_layer[-1]  # the input of the next layer
    return streams


def sublayer_of(probe: str) -> str:
    """decoder.layers.0.cross_attention_residual.stream -> cross-attention"""
    return probe.split(".")[-2].removesuffix("_residual").replace("_", "-")


@torch.no_grad()
def lens(model: Any, example: TracedExample, seen: Mapping[str, Tensor], axis: list[str]) -> dict[str, Any]:
    """At each depth, for each prediction: the most probable token, its probability, and that of the final answer."""
    norm, answers_N = getattr(model, stack_of(model)).norm, torch.tensor(example.answers)
    prediction: dict[str, Any] = {"rows": [], "axis": axis, "tokens": [], "p": [], "final": []}
    for depth, name in stream_probes(model).items():
        p_NV = example.select_logits(model.head(norm(seen[name]))).softmax(-1).cpu()
        best = p_NV.max(-1)
        prediction["rows"].append(depth)
        prediction["tokens"].append(example.names(best.indices.tolist()))
        prediction["p"].append(best.values.round(decimals=4).tolist())
        prediction["final"].append(p_NV.gather(1, answers_N[:, None])[:, 0].round(decimals=6).tolist())
    return prediction
