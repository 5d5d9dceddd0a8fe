"""Run many changed versions of one forward pass as one batch.

A variant is a dictionary: probe name -> a function of that probe's value for one text (without the batch axis). So
switching off 24 heads one by one is one forward pass with a batch of 24.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from cutaway.explore.traced_example import TracedExample
from cutaway.nn.recording import edit_activations

Edit = Callable[[Tensor], Tensor]
Variant = Mapping[str, Edit]

BATCH_TOKENS = 4096  # bounds the memory of a batch


@torch.no_grad()
def run_variants(
    model: Any,
    example: TracedExample,
    variants: Sequence[Variant],
    measure: Callable[[Tensor], Tensor] = lambda logits_BNV: logits_BNV,
) -> Tensor:
    """Measure the logits [B,N,V] of the predictions for each variant, such as `margin.of`. Each batch is freed then."""
    size = batch_size(example)
    chunks = [variants[start : start + size] for start in range(0, len(variants), size)]
    return torch.cat([measure(run_batch(model, example, chunk)) for chunk in chunks])


def batch_size(example: TracedExample) -> int:
    """How many copies of the example fit into a batch."""
    return max(1, BATCH_TOKENS // max(input[0].numel() for input in example.inputs))


def run_batch(model: Any, example: TracedExample, variants: Sequence[Variant]) -> Tensor:
    inputs = (input.expand(len(variants), *input.shape[1:]) for input in example.inputs)
    names = {name: None for variant in variants for name in variant}
    with edit_activations(model, {name: edit_rows([variant.get(name) for variant in variants]) for name in names}):
        return predictions(example, model(*inputs))


def edit_rows(edits: Sequence[Edit | None]) -> Edit:
    """An edit for a batch: row b is changed by edits[b]."""

    def edit(value: Tensor) -> Tensor:
        rows = [row if change is None else change(row) for row, change in zip(value, edits, strict=True)]
        return torch.stack(rows)

    return edit


def predictions(example: TracedExample, logits: Tensor) -> Tensor:
    """Select the predictions of a batch: [B,C] or [B,T,V] -> [B,N,C or V]."""
    if logits.dim() == 2:
        return logits[:, None]
    return logits if example.places is None else logits[:, example.places]


def replace_head(head: int | None, replacement: Tensor | float) -> Edit:
    """An edit that replaces the output of one head, or the whole value if `head` is None."""

    def edit(value: Tensor) -> Tensor:
        changed = value.clone()
        changed[slice(None) if head is None else head] = replacement
        return changed

    return edit


def replace_row(row: int, replacement: Tensor) -> Edit:
    """An edit that replaces the vector of one token in a value [T,D]."""

    def edit(value: Tensor) -> Tensor:
        changed = value.clone()
        changed[row] = replacement
        return changed

    return edit
