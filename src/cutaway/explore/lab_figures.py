"""Figures of lab experiments, which compare variants. Each function returns a matplotlib Figure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np

from cutaway.explore.figures import COLOURS, GREY, TITLES, draw_weights, log_ticks, new_figure, style
from cutaway.explore.trace import Trace

Curve = Sequence[tuple[float, float]]  # (step, value)
Range = tuple[float, float]


def learning_curves(variants: Mapping[str, Sequence[Curve]], ylabel: str, logarithmic: bool = True) -> Any:
    """One thin line per seed, and a bold line for the mean of each variant, up to the last common step of its seeds."""
    figure = new_figure(8, 4)
    axes = figure.add_subplot()
    for number, (name, curves) in enumerate(variants.items()):
        for curve in curves:
            axes.plot(*columns(curve), **style(number), linewidth=0.8, alpha=0.5)
        axes.plot(*columns(mean_curve(curves)), **style(number), linewidth=2.4, label=name)
    axes.set(xlabel="step", ylabel=ylabel)
    if logarithmic:
        log_ticks(axes)
    axes.grid(alpha=0.25)
    axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    axes.set_title("Thin lines: seeds. Bold lines: their mean", loc="left")
    return figure


def columns(curve: Curve) -> tuple[list[float], list[float]]:
    return [x for x, _ in curve], [y for _, y in curve]


def mean_curve(curves: Sequence[Curve]) -> Curve:
    """The mean at the steps that all curves have. It ends where the shortest curve ends."""
    tables = [dict(curve) for curve in curves]
    common = sorted(set.intersection(*(set(table) for table in tables))) if tables else []
    return [(step, float(np.mean([table[step] for table in tables]))) for step in common]


def final_values(
    variants: Mapping[str, Sequence[float]],
    differences: Mapping[str, Range],
    name: str,
    in_per_cent: bool = False,
) -> Any:
    """Left: the value of each seed and their mean. Right: the interval of the difference from the first variant."""
    figure = new_figure(9, 1.7 + 0.38 * len(variants))
    from matplotlib.ticker import MaxNLocator

    scale = 100 if in_per_cent else 1
    left, right = figure.subplots(1, 2, sharey=True)
    for number, variant in enumerate(variants):
        colour = style(number)["color"]
        values = [scale * value for value in variants[variant]]
        left.plot(values, [number] * len(values), "o", color=colour, alpha=0.6, markersize=5)
        if not values:
            left.annotate("no result", (0.02, number), xycoords=("axes fraction", "data"), va="center", color=colour)
        else:
            left.plot([float(np.mean(values))], [number], "|", color=colour, markersize=17, markeredgewidth=2.6)
        if variant in differences:
            reach = [scale * end for end in differences[variant]]
            right.plot(reach, [number, number], color=colour, linewidth=3, solid_capstyle="butt")
            right.plot([sum(reach) / 2], [number], "o", color=colour)
    right.axvline(0, color=GREY, linewidth=1)
    left.set_yticks(range(len(variants)), list(variants), parse_math=False)
    left.set_ylim(len(variants) - 0.5, -0.5)
    left.set_title(f"{name}: seeds and mean", loc="left")
    right.set_title(f"difference from {next(iter(variants))}, 95 % interval", loc="left", parse_math=False)
    for axes, unit in ((left, "percent"), (right, "percentage points")):
        axes.set(xlabel=unit if in_per_cent else "")
        axes.xaxis.set_major_formatter("{x:g}")
        axes.xaxis.set_major_locator(MaxNLocator(5))
        axes.grid(alpha=0.25, axis="x")
    return figure


def attention_side_by_side(traces: Mapping[str, Trace], kind: str, layer: int = -1) -> Any:
    """The attention to the same sentence in every variant: one row per variant, one column per head of one layer.

    With a single head, one column per variant.
    """
    chosen = {variant: layer % trace.n_layers(kind) for variant, trace in traces.items()}
    weights = {variant: trace.weights(kind, chosen[variant]) for variant, trace in traces.items()}
    heads = max(len(weights_HQK) for weights_HQK in weights.values())
    rows, columns = next(iter(traces.values())).axes(kind)
    down, across = (len(traces), heads) if heads > 1 else (1, len(traces))
    cell = max(2.2, 0.24 * len(columns)), max(1.9, 0.24 * len(rows))
    figure = new_figure(1.4 + cell[0] * across, 1.0 + cell[1] * down)
    grid = figure.subplots(down, across, squeeze=False, sharex=True, sharey=True)
    for axes, (variant, head) in zip(grid.flat, product(traces, range(heads)), strict=True):
        if head >= len(weights[variant]):
            axes.set_visible(False)
            continue
        image = draw_weights(axes, weights[variant][head], rows, columns, size=8)
        axes.set_title(f"{variant}: layer {chosen[variant]}, head {head}", loc="left", fontsize=8, parse_math=False)
    figure.suptitle(TITLES[kind].partition(":")[0], x=0.01, ha="left", fontsize=11)
    figure.colorbar(image, ax=grid, label="weight", fraction=0.015, pad=0.01)
    return figure


def scaling_law(
    points: Mapping[int, Mapping[float, float]], law: Callable[[float], float], floor: float, label: str
) -> Any:
    """Loss over model size on logarithmic axes: one dot per model, and the fitted law, named `label`.

    If the law has a constant term `floor`, a second panel shows the loss minus the floor, where the law is a line.
    """
    panels = [("Loss over size", 0.0)] + ([(f"Loss minus the constant {floor:.3g}", floor)] if floor else [])
    figure = new_figure(5.5 * len(panels) + 1, 4)
    sizes = sorted({size for losses in points.values() for size in losses})
    line = np.geomspace(sizes[0] / 1.3, sizes[-1] * 1.3, 100)
    for axes, (title, constant) in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        for number, (seed, losses) in enumerate(points.items()):
            above = [(size, loss - constant) for size, loss in losses.items() if loss > constant]
            axes.plot(*columns(above), "o", color=COLOURS[number % len(COLOURS)], alpha=0.7, label=f"seed {seed}")
        axes.plot(line, [law(size) - constant for size in line], color=GREY, label=label)
        axes.set(xlabel="parameters N, without embeddings", ylabel="cross-entropy, nats per token", xscale="log")
        log_ticks(axes)
        axes.grid(alpha=0.25)
        axes.set_title(title, loc="left")
        axes.legend(frameon=False, fontsize=8)
    return figure
