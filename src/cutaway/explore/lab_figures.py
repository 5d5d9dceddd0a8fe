"""Figures of the lab: arms of an experiment side by side. One function each, a matplotlib Figure in return."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np

from cutaway.explore.figures import COLOURS, GREY, TITLES, draw_weights, log_ticks, new_figure, style
from cutaway.explore.trace import Trace

Curve = Sequence[tuple[float, float]]  # (step, value)
Range = tuple[float, float]


def learning_curves(arms: Mapping[str, Sequence[Curve]], ylabel: str, logarithmic: bool = True) -> Any:
    """A thin line a seed, and a bold one for the mean of each arm, as far as all of its seeds go."""
    figure = new_figure(8, 4)
    axes = figure.add_subplot()
    for number, (name, curves) in enumerate(arms.items()):
        for curve in curves:
            axes.plot(*columns(curve), **style(number), linewidth=0.8, alpha=0.5)
        axes.plot(*columns(mean_curve(curves)), **style(number), linewidth=2.4, label=name)
    axes.set(xlabel="step", ylabel=ylabel)
    if logarithmic:
        log_ticks(axes)
    axes.grid(alpha=0.25)
    axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    axes.set_title("A thin line a seed, a bold one for their mean", loc="left")
    return figure


def columns(curve: Curve) -> tuple[list[float], list[float]]:
    return [x for x, _ in curve], [y for _, y in curve]


def mean_curve(curves: Sequence[Curve]) -> Curve:
    """At the steps that all curves have: one that diverged ends early, and the mean with it."""
    tables = [dict(curve) for curve in curves]
    common = sorted(set.intersection(*(set(table) for table in tables))) if tables else []
    return [(step, float(np.mean([table[step] for table in tables]))) for step in common]


def final_values(
    arms: Mapping[str, Sequence[float]],
    differences: Mapping[str, Range],
    name: str,
    in_per_cent: bool = False,
) -> Any:
    """Left: each seed's value and the mean of each arm. Right: the interval of the difference from the first arm."""
    figure = new_figure(9, 1.7 + 0.38 * len(arms))
    scale = 100 if in_per_cent else 1
    left, right = figure.subplots(1, 2, sharey=True)
    for number, arm in enumerate(arms):
        colour = style(number)["color"]
        values = [scale * value for value in arms[arm]]
        left.plot(values, [number] * len(values), "o", color=colour, alpha=0.6, markersize=5)
        if not values:
            left.annotate("no result", (0.02, number), xycoords=("axes fraction", "data"), va="center", color=colour)
        else:
            left.plot([float(np.mean(values))], [number], "|", color=colour, markersize=17, markeredgewidth=2.6)
        if arm in differences:
            reach = [scale * end for end in differences[arm]]
            right.plot(reach, [number, number], color=colour, linewidth=3, solid_capstyle="butt")
            right.plot([sum(reach) / 2], [number], "o", color=colour)
    right.axvline(0, color=GREY, linewidth=1)
    left.set_yticks(range(len(arms)), list(arms), parse_math=False)
    left.set_ylim(len(arms) - 0.5, -0.5)
    left.set_title(f"{name}, each seed and the mean", loc="left")
    right.set_title(f"difference from {next(iter(arms))}, 95 % interval", loc="left", parse_math=False)
    for axes, unit in ((left, "per cent"), (right, "points")):
        axes.set(xlabel=unit if in_per_cent else "")
        axes.xaxis.set_major_formatter("{x:g}")
        axes.xaxis.set_major_locator(few_ticks())
        axes.grid(alpha=0.25, axis="x")
    return figure


def few_ticks() -> Any:
    from matplotlib.ticker import MaxNLocator

    return MaxNLocator(5)


def attention_side_by_side(traces: Mapping[str, Trace], kind: str, layer: int = -1) -> Any:
    """The same sentence in every arm: a row an arm, a column a head of one layer; or, of one head, a column an arm."""
    chosen = {arm: layer % trace.n_layers(kind) for arm, trace in traces.items()}
    weights = {arm: trace.weights(kind, chosen[arm]) for arm, trace in traces.items()}
    heads = max(len(of_arm) for of_arm in weights.values())
    rows, columns = next(iter(traces.values())).axes(kind)
    down, across = (len(traces), heads) if heads > 1 else (1, len(traces))
    cell = max(2.2, 0.24 * len(columns)), max(1.9, 0.24 * len(rows))
    figure = new_figure(1.4 + cell[0] * across, 1.0 + cell[1] * down)
    grid = figure.subplots(down, across, squeeze=False, sharex=True, sharey=True)
    for axes, (arm, head) in zip(grid.flat, product(traces, range(heads)), strict=True):
        if head >= len(weights[arm]):
            axes.set_visible(False)
            continue
        image = draw_weights(axes, weights[arm][head], rows, columns, size=8)
        axes.set_title(f"{arm}: layer {chosen[arm]}, head {head}", loc="left", fontsize=8, parse_math=False)
    figure.suptitle(TITLES[kind].partition(":")[0], x=0.01, ha="left", fontsize=11)
    figure.colorbar(image, ax=grid, label="weight", fraction=0.015, pad=0.01)
    return figure


def scaling_law(
    points: Mapping[int, Mapping[float, float]], law: Callable[[float], float], floor: float, said: str
) -> Any:
    """Loss over size on logarithmic axes: a dot a model, and the law through the means.

    If the law has a floor, there is a second panel with the floor taken off: there a power of N is a straight line.
    """
    panels = [("Loss over size", 0.0)] + ([(f"The same less the floor of {floor:.3g}", floor)] if floor else [])
    figure = new_figure(5.5 * len(panels) + 1, 4)
    sizes = sorted({size for of_seed in points.values() for size in of_seed})
    line = np.geomspace(sizes[0] / 1.3, sizes[-1] * 1.3, 100)
    for axes, (title, less) in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        for number, (seed, of_seed) in enumerate(points.items()):
            above = [(size, loss - less) for size, loss in of_seed.items() if loss > less]
            axes.plot(*columns(above), "o", color=COLOURS[number % len(COLOURS)], alpha=0.7, label=f"seed {seed}")
        axes.plot(line, [law(size) - less for size in line], color=GREY, label=said)
        axes.set(xlabel="parameters N, embeddings left out", ylabel="cross-entropy, nats a token", xscale="log")
        log_ticks(axes)
        axes.grid(alpha=0.25)
        axes.set_title(title, loc="left")
        axes.legend(frameon=False, fontsize=8)
    return figure
