"""Summary of a tensor: named axes, mean, standard deviation, range, and warnings."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

SATURATED = 0.999  # a softmax row with a larger maximum has almost no gradient
TOO_MANY = 0.5  # share of saturated rows that raises a flag
HUGE = 1e4
ROWS, COLUMNS = 64, 64  # size of the matrix that is drawn


@dataclass(frozen=True)
class Summary:
    """Statistics of the finite values; `flags` are warnings."""

    axes: list[tuple[str, int]]
    mean: float
    std: float
    min: float
    max: float
    flags: list[str]

    @property
    def shape(self) -> str:
        return " × ".join(f"{name} {size}" for name, size in self.axes) or "a number"

    def as_json(self) -> dict[str, Any]:
        numbers = {name: finite(getattr(self, name)) for name in ("mean", "std", "min", "max")}
        return {"axes": [list(axis) for axis in self.axes], **numbers, "flags": self.flags}


def finite(value: float) -> float | None:
    """None for NaN and infinity, which JSON does not have."""
    return value if math.isfinite(value) else None


def dumps(value: Any) -> str:
    """Standard JSON: null for NaN and infinity."""
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    except ValueError:
        return json.dumps(without_nan(value), ensure_ascii=False)


def without_nan(value: Any) -> Any:
    if isinstance(value, float):
        return finite(value)
    if isinstance(value, dict):
        return {key: without_nan(inner) for key, inner in value.items()}
    return [without_nan(inner) for inner in value] if isinstance(value, list | tuple) else value


def summarize_value(value: Tensor, axes: str, is_softmax: bool = False) -> Summary:
    """Summarize a tensor. `axes` are the names of its axes, separated by spaces; an unnamed axis gets a dot."""
    names = axes.split()
    names = names if len(names) == value.dim() else ["·"] * value.dim()
    flat = value.detach().cpu().double().flatten()
    usable = flat[flat.isfinite()]
    if not len(usable):
        usable = flat.new_full((1,), math.nan)
    return Summary(
        axes=list(zip(names, value.shape, strict=True)),
        mean=usable.mean().item(),
        std=usable.std(correction=0).item(),
        min=usable.min().item(),
        max=usable.max().item(),
        flags=flags_of(value, flat, is_softmax),
    )


def flags_of(value: Tensor, flat: Tensor, is_softmax: bool) -> list[str]:
    flags = []
    for what, matches in (("NaN", flat.isnan()), ("infinite", flat.isinf())):
        if count := int(matches.sum()):
            flags.append(f"{what} in {count:,} of {flat.numel():,} values")
    if not flags and flat.numel() and float(flat.abs().max()) > HUGE:
        flags.append(f"values beyond {HUGE:,.0f}")
    if is_softmax and not flags:
        flags += saturation(value)
    return flags


def saturation(weights: Tensor) -> list[str]:
    """Flag a saturated softmax. Rows with a single allowed key do not count."""
    best = weights.amax(dim=-1)
    has_choice = (weights > 0).sum(dim=-1) > 1
    rows = int(has_choice.sum())
    full = int((has_choice & (best > SATURATED)).sum())
    return [f"softmax saturated in {full:,} of {rows:,} rows"] if rows and full / rows > TOO_MANY else []


def slices(value: Tensor) -> dict[str, list[list[float | None]]]:
    """The first example of the batch as matrices, one per head, at most 64 × 64."""
    value = value.detach().cpu().double()
    if value.dim() == 4:
        return {f"head {i}": clip_matrix(head) for i, head in enumerate(value[0])}
    matrix = value[0] if value.dim() == 3 else value
    matrix = matrix if matrix.dim() == 2 else matrix.reshape(1, -1)
    return {"": clip_matrix(matrix)}


def clip_matrix(matrix: Tensor) -> list[list[float | None]]:
    """The upper left corner as lists; None for values that are not finite."""
    cut = matrix[:ROWS, :COLUMNS]
    rows: list[list[float]] = torch.round(cut, decimals=4).tolist()
    return [[finite(value) for value in row] for row in rows]


def truncation_note(value: Tensor) -> str | None:
    """Which part of the value is drawn; None if all of it is."""
    rows, columns = (value.shape[-2], value.shape[-1]) if value.dim() > 1 else (1, value.numel())
    parts: Sequence[str] = [
        f"the first {most} of {count:,} {what}"
        for what, count, most in (("rows", rows, ROWS), ("columns", columns, COLUMNS))
        if count > most
    ]
    return " and ".join(parts) or None
