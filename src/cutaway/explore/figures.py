"""Figures of traces and training curves. Each function returns a matplotlib Figure.

The colours are distinguishable for colour-blind readers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cutaway.errors import MissingExtra
from cutaway.explore.trace import Trace

BLUE, ORANGE, GREEN, GREY = "#0072B2", "#D55E00", "#009E73", "#777777"  # Okabe and Ito
# neighbours differ in brightness too; after the last colour, lines are dashed
COLOURS = (BLUE, ORANGE, GREEN, "#CC79A7", "#56B4E9", "#E69F00", "#000000", GREY)
# as in the explorer: a weight of 0 has the colour of the paper, a negative value is orange, a positive one blue
WEIGHTS, SIGNED = "Blues", "cutaway-signed"
MAX_LABEL = 14  # characters of a token on an axis

TITLES = {
    "encoder": "Encoder self-attention: from source tokens to source tokens",
    "decoder": "Decoder self-attention: from target tokens to earlier target tokens",
    "cross": "Cross-attention: from target tokens to source tokens",
}


def new_figure(width: float, height: float) -> Any:
    """A figure with the project's style. It opens no window."""
    try:
        import matplotlib
        from matplotlib.colors import LinearSegmentedColormap
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtra("matplotlib", "show") from None
    matplotlib.rcParams.update(
        {
            "font.size": 10,
            "axes.titlesize": 11,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.grid": False,
            "figure.dpi": 110,
            "savefig.dpi": 140,
            "font.family": ["DejaVu Sans"],
        }
    )
    if SIGNED not in matplotlib.colormaps:
        matplotlib.colormaps.register(LinearSegmentedColormap.from_list(SIGNED, [ORANGE, "white", BLUE]))
    return Figure(figsize=(width, height), layout="constrained")


def save(figure: Any, path: str | Path) -> Path:
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
    return path


def attention_heatmap(
    trace: Trace, kind: str = "cross", layer: int = 0, head: int = 0, gold: Sequence[tuple[int, int]] = ()
) -> Any:
    """The weights of one head: rows are queries, columns are keys. `gold` cells (row, column) get a frame."""
    rows, columns = trace.axes(kind)
    figure = new_figure(1.8 + min(12.0, 0.46 * len(columns)), 1.5 + min(10.0, 0.36 * len(rows)))
    axes = figure.add_subplot()
    image = draw_weights(axes, trace.weights(kind, layer)[head], rows, columns, max_labels=50)
    for row, column in gold:
        _frame(axes, row, column)
    axes.set_title(f"{TITLES[kind].split(':')[0]}, layer {layer}, head {head}", loc="left")
    figure.colorbar(image, ax=axes, label="weight", fraction=0.04, pad=0.02)
    return figure


def attention_grid(trace: Trace, kind: str = "cross") -> Any:
    """Every head of every layer: one row per layer, one column per head."""
    layers, heads = trace.n_layers(kind), trace.weights(kind, 0).shape[0]
    places = [[(layer, head) for head in range(heads)] for layer in range(layers)]
    return _grid(trace, kind, places, title_of(trace, kind))


def layer_grid(trace: Trace, kind: str = "cross", layer: int = 0) -> Any:
    """The heads of one layer, at most four in a row."""
    heads = trace.weights(kind, layer).shape[0]
    across = min(4, heads)
    places = [[(layer, head) for head in range(start, start + across)] for start in range(0, heads, across)]
    return _grid(trace, kind, places, f"{title_of(trace, kind)}; layer {layer}", scale=1.35)


def _grid(trace: Trace, kind: str, places: Sequence[Sequence[tuple[int, int]]], title: str, scale: float = 1.0) -> Any:
    """One heat map for each (layer, head)."""
    rows, columns = trace.axes(kind)
    width = scale * min(4.6, max(2.2, 0.21 * len(columns)))
    height = scale * min(4.2, max(1.9, 0.2 * len(rows)))
    figure = new_figure(1.2 + width * len(places[0]), 1.0 + height * len(places))
    grid = figure.subplots(len(places), len(places[0]), squeeze=False, sharex=True, sharey=True)
    for axes, (layer, head) in zip(grid.flat, (place for line in places for place in line), strict=True):
        weights_HQK = trace.weights(kind, layer)
        if head >= len(weights_HQK):
            axes.set_visible(False)
            continue
        image = draw_weights(axes, weights_HQK[head], rows, columns, size=7, max_labels=int(6.5 * min(width, height)))
        axes.set_title(f"layer {layer}, head {head}", loc="left", fontsize=8)
        axes.label_outer()
    figure.suptitle(title, x=0.01, ha="left", fontsize=11)
    figure.colorbar(image, ax=grid, label="weight", fraction=0.015, pad=0.01)
    return figure


def title_of(trace: Trace, kind: str) -> str:
    """The title for an encoder-decoder, or for a model with one stack, which has no source and target."""
    if trace.n_layers("cross"):
        return TITLES[kind]
    return "Self-attention: from each token to " + ("earlier tokens" if kind == "decoder" else "all tokens")


def loss_curve(metrics: Sequence[dict[str, Any]]) -> Any:
    """Training and validation loss over the steps of a run, from its metrics.jsonl."""
    figure = new_figure(7, 3.6)
    from matplotlib.ticker import LogLocator

    axes = figure.add_subplot()
    train = [(row["step"], row["nll"]) for row in metrics if "nll" in row]
    valid = [(row["step"], row["valid_loss"]) for row in metrics if "valid_loss" in row]
    if train:
        axes.plot(*zip(*train, strict=True), color=BLUE, label="training")
    if valid:
        axes.plot(*zip(*valid, strict=True), color=ORANGE, marker="o", label="validation")
    axes.set(xlabel="step", ylabel="cross-entropy, nats per token", yscale="log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter("{x:g}")
    axes.minorticks_off()
    axes.grid(alpha=0.25)
    axes.set_title("Loss, without label smoothing", loc="left")
    if train or valid:
        axes.legend(frameon=False)
    return figure


def validation_curves(runs: Mapping[str, Sequence[tuple[int, float]]]) -> Any:
    """The validation losses of several runs: name -> (step, loss)."""
    figure = new_figure(8, 4)
    axes = figure.add_subplot()
    for number, (name, curve) in enumerate(runs.items()):
        label = name.replace("$", r"\$")  # else matplotlib would parse it as a formula
        axes.plot(*zip(*curve, strict=True), label=label, marker="o", markersize=3, **style(number))
    axes.set(xlabel="step", ylabel="cross-entropy, nats per token")
    log_ticks(axes)
    axes.grid(alpha=0.25)
    axes.set_title("Validation loss", loc="left")
    axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


def style(number: int) -> dict[str, str]:
    """Colour and line style of the n-th line."""
    return {"color": COLOURS[number % len(COLOURS)], "linestyle": ("-", "--", ":")[number // len(COLOURS) % 3]}


def log_ticks(axes: Any) -> None:
    """Make the y axis logarithmic, with plain numbers as ticks even for a short range."""
    from matplotlib.ticker import LogLocator, MaxNLocator

    axes.set_yscale("log")
    low, high = axes.get_ylim()
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5), numticks=20) if high / low > 5 else MaxNLocator(6))
    axes.yaxis.set_major_formatter("{x:g}")
    axes.minorticks_off()


def schedule_curve(schedule: Callable[[int, float], float], steps: int) -> Any:
    """The learning rate over the steps of a run."""
    figure = new_figure(7, 2.8)
    axes = figure.add_subplot()
    at = np.unique(np.linspace(1, steps, 500).astype(int))
    rates = [schedule(int(step), step / steps) for step in at]
    axes.plot(at, rates, color=GREEN)
    peak = int(np.argmax(rates))
    axes.annotate(
        f"peak {rates[peak]:.2g} at step {at[peak]:,}",
        (at[peak], rates[peak]),
        xytext=(8, -4),
        textcoords="offset points",
        color=GREY,
    )
    axes.set(xlabel="step", ylabel="learning rate", ylim=(0, None))
    axes.grid(alpha=0.25)
    axes.set_title("Learning rate: warm-up, then decay", loc="left")
    return figure


def positional_encodings(table: NDArray[np.floating], shown: int = 64) -> Any:
    """The table of positions [T, D], and the cosine similarity of each pair of positions."""
    table = table[:shown]
    figure = new_figure(10, 3.8)
    left, right = figure.subplots(1, 2, width_ratios=(1.45, 1))
    limit = float(np.abs(table).max()) or 1.0
    image = left.imshow(table, cmap=SIGNED, vmin=-limit, vmax=limit, aspect="auto", interpolation="nearest")
    left.set(xlabel="dimension", ylabel="position")
    left.set_title("Positional encodings", loc="left")
    figure.colorbar(image, ax=left, fraction=0.04, pad=0.02)
    norms = np.linalg.norm(table, axis=1, keepdims=True)
    unit = table / np.where(norms == 0, 1, norms)
    image = right.imshow(unit @ unit.T, cmap=WEIGHTS, interpolation="nearest")
    right.set(xlabel="position", ylabel="position")
    right.set_title("Cosine similarity of two positions", loc="left")
    figure.colorbar(image, ax=right, fraction=0.046, pad=0.02)
    return figure


def draw_weights(
    axes: Any,
    weights_QK: NDArray[np.floating],
    rows: Sequence[str],
    columns: Sequence[str],
    size: int = 9,
    max_labels: int = 50,
) -> Any:
    """A heat map: rows are queries, columns are keys. An axis with more than `max_labels` tokens skips labels."""
    image = axes.imshow(weights_QK, cmap=WEIGHTS, vmin=0, vmax=1, aspect="auto", interpolation="nearest")
    label_cells(axes, rows, columns, size, max_labels)
    for spine in axes.spines.values():
        spine.set(visible=True, color="lightgrey")
    return image


def confusion_matrix(labels: Sequence[str], shares: NDArray[np.floating]) -> Any:
    """The confusion matrix as shares of each row: rows are true classes, columns are predicted classes."""
    side = min(14.0, 2.5 + 0.3 * len(labels))
    figure = new_figure(side + 0.8, side)
    axes = figure.add_subplot()
    image = draw_weights(axes, shares, labels, labels)
    axes.set(ylabel="true class", xlabel="predicted class")
    axes.set_title("Confusion matrix: share of each row", loc="left")
    figure.colorbar(image, ax=axes, fraction=0.046, pad=0.02)
    return figure


def label_cells(axes: Any, rows: Sequence[str], columns: Sequence[str], size: int = 9, max_labels: int = 50) -> None:
    style = {"fontsize": size, "parse_math": False}  # matplotlib would parse a dollar sign as a formula
    places, names = select_labels(columns, max_labels)
    axes.set_xticks(places, names, rotation=60, ha="right", rotation_mode="anchor", **style)
    axes.set_yticks(*select_labels(rows, max_labels), **style)
    axes.tick_params(length=0)


def select_labels(names: Sequence[str], max_labels: int) -> tuple[list[int], list[str]]:
    """Positions and names of at most `max_labels` labels at equal distances. A long name is cut."""
    step = -(-len(names) // max(1, max_labels))
    places = list(range(0, len(names), step))
    return places, [names[i] if len(names[i]) <= MAX_LABEL else names[i][: MAX_LABEL - 1] + "…" for i in places]


def _frame(axes: Any, row: int, column: int) -> None:
    from matplotlib.patches import Rectangle

    axes.add_patch(Rectangle((column - 0.5, row - 0.5), 1, 1, fill=False, edgecolor=ORANGE, linewidth=1.8))
