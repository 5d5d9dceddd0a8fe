"""A figure of the causes of one prediction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cutaway.explore.causes.attribution import SHORT_NAMES
from cutaway.explore.causes.patching import PatchedPart, Patching
from cutaway.explore.causes.why import Part, Why
from cutaway.explore.figures import SIGNED, label_cells, new_figure

COLUMN_NAMES = {"self_attention": "self", "cross_attention": "cross", "feed_forward": "feed-forward", "block": "all"}


def why_figure(found: Why) -> Any:
    """Above: each method's number for each input token. Below: what each head and sub-layer adds to the margin."""
    tokens = [*found.source, *found.target]
    rows = [row_title(part) for part in found.parts]
    height = 2.2 + 0.32 * len(found.attributions) + 0.32 * len(dict.fromkeys(rows))
    figure = new_figure(max(7.0, 2.6 + 0.5 * len(tokens)), height)
    ratios = [len(found.attributions), len(dict.fromkeys(rows))]
    above, below = figure.subplots(2, 1, height_ratios=ratios)
    values = np.array([[*each.source, *each.target] for each in found.attributions])
    draw_signed(above, values / np.abs(values).max(axis=1, keepdims=True).clip(1e-9), limit=1)
    label_cells(above, [SHORT_NAMES[each.method] for each in found.attributions], tokens)
    if found.source and found.target:
        above.axvline(len(found.source) - 0.5, color="black", linewidth=1)
    above.set_title(
        f"Tokens for “{found.token}” and against “{found.rival}”; each row relative to its largest", loc="left"
    )
    added = [-part.effect for part in found.parts]
    image = draw_parts(below, found.parts, added, limit=max(map(abs, added)) or 1.0)
    below.set_title(f"What each part adds to the margin ({found.margin:+.2f}), with all later parts", loc="left")
    figure.colorbar(image, ax=below, label="nats", fraction=0.03, pad=0.02)
    return figure


def draw_parts(axes: Any, parts: Sequence[Part | PatchedPart], values: Sequence[float], limit: float) -> Any:
    """A grid of one value for each part: rows are layers, columns are heads and sub-layers."""
    rows = list(dict.fromkeys(row_title(part) for part in parts))
    columns = list(dict.fromkeys(column_title(part) for part in sorted(parts, key=column_order)))
    grid = np.full((len(rows), len(columns)), np.nan)
    for part, value in zip(parts, values, strict=True):
        grid[rows.index(row_title(part)), columns.index(column_title(part))] = value
    image = draw_signed(axes, grid, limit)
    label_cells(axes, rows, columns, size=8)
    return image


def row_title(part: Part | PatchedPart) -> str:
    return f"{part.stack} {part.layer}"


def column_title(part: Part | PatchedPart) -> str:
    return COLUMN_NAMES[part.part] + ("" if part.head is None else f" {part.head}")


def column_order(part: Part | PatchedPart) -> tuple[int, int]:
    return list(COLUMN_NAMES).index(part.part), -1 if part.head is None else part.head


def patching_figure(found: Patching) -> Any:
    """The share of the margin's difference that each patch restores: by position of the stream, and by part."""
    grids = found.grids
    heights = [*(len(grid.rows) for grid in grids), len({row_title(part) for part in found.parts})]
    width = max(7.0, 2.0 + 0.55 * max(len(grid.tokens) for grid in grids))
    figure = new_figure(width, 1.2 + sum(1.3 + 0.3 * height for height in heights))
    *above, below = figure.subplots(len(heights), 1, height_ratios=heights)
    for axes, grid in zip(above, grids, strict=True):
        draw_signed(axes, np.array(grid.shares), limit=1)
        label_cells(axes, grid.rows, grid.columns)
        axes.set_title(f"{grid.stack}: share that the vector of one token restores", loc="left")
    image = draw_parts(below, found.parts, [part.share for part in found.parts], limit=1)
    below.set_title("Share that a head or sub-layer restores", loc="left")
    figure.colorbar(image, ax=figure.axes, label="share", fraction=0.03, pad=0.02)
    return figure


def draw_signed(axes: Any, values: NDArray[np.floating], limit: float) -> Any:
    """A heat map with 0 in the middle of its colours; an empty cell is grey."""
    axes.set_facecolor("#dddddd")
    return axes.imshow(values, cmap=SIGNED, vmin=-limit, vmax=limit, aspect="auto", interpolation="nearest")
