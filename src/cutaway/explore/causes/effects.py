"""The margin without each head and sub-layer: what the model needs, including what later parts make of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from cutaway.explore.ablation import AblationTarget, ablation_targets
from cutaway.explore.causes.margin import Margin
from cutaway.explore.traced_example import TracedExample, prepare_example
from cutaway.explore.variants import Variant, replace_head, run_variants
from cutaway.inference.pipelines import Pipeline
from cutaway.nn.recording import record_activations


def margins_without(
    model: Any, example: TracedExample, margin: Margin, means: Mapping[str, Tensor] | None = None
) -> dict[str, float]:
    """Part -> the margin if its output is zero; with `means`, if its output is the mean over other texts."""
    targets = ablation_targets(model)
    margins = run_variants(model, example, [without(target, means) for target in targets.values()], margin.of)
    return dict(zip(targets, margins.tolist(), strict=True))


def without(target: AblationTarget, means: Mapping[str, Tensor] | None) -> Variant:
    if means is None:
        return {target.probe: replace_head(target.head, 0.0)}
    mean = means[target.probe]  # [H,E] or [D]
    return {target.probe: replace_head(target.head, mean if target.head is None else mean[target.head])}


@torch.no_grad()
def mean_outputs(pipeline: Pipeline, texts: Sequence[Any]) -> dict[str, Tensor]:
    """The mean output of each head [H,E] and sub-layer [D] over all tokens of these texts."""
    names = sorted({target.probe for target in ablation_targets(pipeline.model).values()})
    sums: dict[str, Tensor] = {}
    counts = dict.fromkeys(names, 0)
    for text in texts:
        example = prepare_example(pipeline, text)
        with record_activations(pipeline.model, *names) as seen:
            pipeline.model(*example.inputs)
        for name, value in seen.items():
            sums[name] = sums.get(name, 0.0) + value[0].sum(-2)
            counts[name] += value.size(-2)
    return {name: total / counts[name] for name, total in sums.items()}
