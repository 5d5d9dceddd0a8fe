"""Figures of a model: masks, positions, heads, parameters and time. Each function returns a matplotlib Figure."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from cutaway.errors import DataError
from cutaway.explore.budget import Budget, PartCost
from cutaway.explore.figures import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    SIGNED,
    label_cells,
    new_figure,
    positional_encodings,
    style,
)
from cutaway.explore.heads import ROLES, HeadStatistics, format_statistic
from cutaway.explore.masks import TITLES, MaskView
from cutaway.nn.learned_positions import LearnedPosition
from cutaway.nn.positions import Position, SinusoidalPosition
from cutaway.nn.relative_positions import AlibiPosition, RelativeBiasPosition, RelativePosition
from cutaway.nn.rotary import RotaryPosition

MAX_SYMBOLS = 60  # tokens of a mask that is drawn with symbols; a larger one is drawn as an image


def mask_figure(allowed_QK: NDArray[np.bool_], rows: Sequence[str], columns: Sequence[str], title: str = "") -> Any:
    """A mask: rows are queries, columns are keys. A square is an allowed pair, a dot a masked one."""
    figure = new_figure(*size_of(allowed_QK))
    draw_mask(figure.add_subplot(), allowed_QK, rows, columns, title)
    return figure


def mask_panel(views: Sequence[MaskView]) -> Any:
    """The masks of all kinds of attention in a model, side by side."""
    sizes = [size_of(view.allowed) for view in views]
    figure = new_figure(sum(width for width, _ in sizes), max(height for _, height in sizes))
    ratios = [width for width, _ in sizes]
    for axes, view in zip(figure.subplots(1, len(views), squeeze=False, width_ratios=ratios)[0], views, strict=True):
        draw_mask(axes, view.allowed, view.rows, view.columns, f"{TITLES[view.kind].split(',')[0]}. {view.words}")
    return figure


def size_of(allowed_QK: NDArray[np.bool_]) -> tuple[float, float]:
    queries, keys = allowed_QK.shape
    cell = 0.3 if max(queries, keys) <= MAX_SYMBOLS else 6.0 / max(queries, keys)
    return 1.6 + max(2.4, cell * keys), 2.0 + max(1.2, cell * queries)


def draw_mask(
    axes: Any, allowed_QK: NDArray[np.bool_], rows: Sequence[str], columns: Sequence[str], title: str
) -> None:
    queries, keys = allowed_QK.shape
    is_large = max(queries, keys) > MAX_SYMBOLS
    if is_large:
        axes.imshow(~allowed_QK, cmap="gray", vmin=-0.5, vmax=1.1, aspect="auto", interpolation="nearest")
    else:
        axes.scatter(*np.nonzero(allowed_QK.T), marker="s", s=130, color=BLUE)
        axes.scatter(*np.nonzero(~allowed_QK.T), marker=".", s=14, color=GREY)
    axes.set(xlim=(-0.6, keys - 0.4), ylim=(queries - 0.4, -0.6))
    label_cells(axes, rows, columns)
    for spine in axes.spines.values():
        spine.set_visible(False)
    axes.set_title("\n".join(textwrap.wrap(title, max(30, int(3.6 * keys)))), loc="left", fontsize=10, parse_math=False)
    axes.set_xlabel("{}  allowed    {}  masked".format(*(("dark", "light") if is_large else ("■", "·"))), color=GREY)


# ---- Positions -------------------------------------------------------------------------------------------------------


def position_figure(position: Position, shown: int = 64) -> Any:
    """A position scheme: its added vectors, its rotations, or its biases on the scores."""
    for kind, draw in SCHEMES.items():
        if isinstance(position, kind):
            return draw(position, min(shown, position.max_length))
    raise DataError("this model has no position scheme, so there is nothing to draw.")


def added_vectors(position: Any, shown: int) -> Any:
    zeros = torch.zeros(1, shown, position.table.size(1), dtype=position.table.dtype, device=position.table.device)
    with torch.no_grad():
        table = position.embed(zeros, torch.arange(shown, device=zeros.device))[0]
    return positional_encodings(table.cpu().double().numpy(), shown)


def rotated_vectors(position: Any, shown: int) -> Any:
    """Left: the pair (1, 0), rotated to each position. Right: cosine similarity of a vector at two positions."""
    pairs_TE = rotate_vector(position, shown, first_only=True)
    unit_TE = rotate_vector(position, shown, first_only=False)
    figure = new_figure(10, 3.8)
    left, right = figure.subplots(1, 2, width_ratios=(1.2, 1))
    image = left.imshow(pairs_TE[:, 0::2], cmap=SIGNED, vmin=-1, vmax=1, aspect="auto", interpolation="nearest")
    left.set(xlabel="pair of dimensions of a query or key", ylabel="position")
    left.set_title("First number of (1, 0) after rotation", loc="left")
    figure.colorbar(image, ax=left, fraction=0.04, pad=0.02)
    right.plot(unit_TE @ unit_TE[0], color=BLUE)
    right.axhline(0, color=GREY, linewidth=0.8)
    right.set(xlabel="distance", ylabel="cosine", ylim=(-1.05, 1.05))
    right.set_title("Similarity of one vector at two positions", loc="left")
    right.grid(alpha=0.25)
    return figure


def rotate_vector(position: Any, length: int, first_only: bool) -> NDArray[np.float64]:
    """One unit vector, rotated to each position. -> [T, E]. first_only: (1, 0) in each pair instead"""
    width = 2 * position.cos.size(1)
    vector = torch.ones(width, dtype=torch.float64)
    if first_only:
        vector[1::2] = 0
    else:
        vector /= vector.norm()
    x_1HTE = vector.to(position.cos).expand(1, 1, length, width)
    return position.rotate(x_1HTE, torch.arange(length, device=x_1HTE.device))[0, 0].cpu().double().numpy()


def biases(position: Any, shown: int) -> Any:
    """The bias that is added to the score of a key at each distance: one line per head."""
    is_causal = getattr(position, "causal", False)
    device = next(iter([*position.parameters(), *position.buffers()])).device
    keys = torch.arange(shown if is_causal else 2 * shown - 1, device=device)
    query = torch.tensor([shown - 1], device=device)
    with torch.no_grad():
        bias_HK = position.bias(torch.zeros(0), query, keys)[:, 0].cpu().double().numpy()
    figure = new_figure(8, 3.6)
    axes = figure.add_subplot()
    for head, line in enumerate(bias_HK):
        axes.plot(keys.cpu().numpy() - (shown - 1), line, label=f"head {head}", **style(head))
    axes.set(xlabel="distance of the key: before (−), after (+)", ylabel="bias")
    axes.set_title("Bias on the scores by distance", loc="left")
    axes.grid(alpha=0.25)
    axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5), ncols=-(-len(bias_HK) // 10))
    return figure


def distance_vectors(position: Any, shown: int) -> Any:
    """The vectors of Shaw et al. for keys and for values, one for each distance."""
    figure = new_figure(10, 3.8)
    for axes, name in zip(figure.subplots(1, 2), ("keys", "values"), strict=True):
        table: NDArray[np.float64] = getattr(position, f"for_{name}").detach().cpu().double().numpy()
        limit = float(np.abs(table).max()) or 1.0
        extent = (0, table.shape[1], position.clip + 0.5, -position.clip - 0.5)
        image = axes.imshow(
            table, cmap=SIGNED, vmin=-limit, vmax=limit, aspect="auto", interpolation="nearest", extent=extent
        )
        axes.set(xlabel="dimension", ylabel="distance of the key: before (−), after (+)")
        axes.set_title(f"Added to {name}", loc="left")
        figure.colorbar(image, ax=axes, fraction=0.04, pad=0.02)
    return figure


SCHEMES: dict[type[Position], Callable[[Any, int], Any]] = {
    SinusoidalPosition: added_vectors,
    LearnedPosition: added_vectors,
    RotaryPosition: rotated_vectors,
    AlibiPosition: biases,
    RelativeBiasPosition: biases,
    RelativePosition: distance_vectors,
}


# ---- Heads -----------------------------------------------------------------------------------------------------------

KIND_NAMES = {"encoder": "encoder self-attention", "decoder": "decoder self-attention", "cross": "cross-attention"}


def head_roles(heads: Sequence[HeadStatistics]) -> Any:
    """The role of each head: a panel per kind of attention, a row per layer, a column per head.

    A stronger colour means farther from chance. Heads without a role stay white.
    """
    kinds = list(dict.fromkeys(head.kind for head in heads))
    layers, across = 1 + max(head.layer for head in heads), 1 + max(head.head for head in heads)
    figure = new_figure(max(4.5, 0.9 + 1.6 * across), len(kinds) * (0.8 + 0.7 * layers))
    for axes, kind in zip(figure.subplots(len(kinds), 1, squeeze=False)[:, 0], kinds, strict=True):
        for head in heads:
            if head.kind == kind:
                draw_role(axes, head)
        axes.set(xlim=(-0.5, across - 0.5), ylim=(layers - 0.5, -0.5))
        axes.set_xticks(range(across), [f"head {head}" for head in range(across)])
        axes.set_yticks(range(layers), [f"layer {layer}" for layer in range(layers)])
        axes.tick_params(length=0)
        axes.set_title(KIND_NAMES[kind], loc="left")
        for spine in axes.spines.values():
            spine.set_visible(False)
    return figure


def draw_role(axes: Any, head: HeadStatistics) -> None:
    from matplotlib.patches import Rectangle

    best = head.best if head.best and ROLES[head.best][0] == head.role else None
    strength = max(0.0, head.statistics[best].gain) if best else 0.0
    corner = (head.head - 0.47, head.layer - 0.45)
    axes.add_patch(Rectangle(corner, 0.94, 0.9, facecolor=BLUE, alpha=0.6 * strength, edgecolor="none"))
    axes.add_patch(Rectangle(corner, 0.94, 0.9, fill=False, edgecolor=GREY, linewidth=0.6))
    text = f"{head.role}\n{head.share:.0%} (chance {head.statistics[best].chance:.0%})" if best else head.role
    axes.text(head.head, head.layer, text, ha="center", va="center", fontsize=8, color="black" if best else GREY)


def head_statistics_figure(heads: Sequence[HeadStatistics]) -> Any:
    """All statistics: one row per head, one column per statistic. Blue is above chance, orange below.

    Entropy (nats) and distance (tokens) are not shares, so they stay white.
    """
    from matplotlib.colors import LinearSegmentedColormap

    names = [name for name in ("entropy", "distance", *ROLES) if any(name in head.statistics for head in heads)]
    figure = new_figure(1.8 + 0.85 * len(names), 1.4 + 0.25 * len(heads))
    axes = figure.add_subplot()
    colours = LinearSegmentedColormap.from_list("gain", [ORANGE, "white", BLUE])
    table = np.array([[gain_of(head, name) for name in names] for head in heads])
    image = axes.imshow(table, cmap=colours, vmin=-1, vmax=1, aspect="auto", alpha=0.7, interpolation="nearest")
    for row, head in enumerate(heads):
        for column, name in enumerate(names):
            if name in head.statistics:
                text = format_statistic(name, head.statistics[name].value)
                axes.text(column, row, text, ha="center", va="center", fontsize=7)
    axes.set_xticks(range(len(names)), names, rotation=35, ha="left", rotation_mode="anchor")
    axes.xaxis.tick_top()
    axes.set_yticks(range(len(heads)), [f"{h.kind} {h.layer}.{h.head}" for h in heads], fontsize=8)
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)
    figure.colorbar(image, ax=axes, label="never (−1), chance (0), always (1)", fraction=0.02, pad=0.01)
    return figure


def gain_of(head: HeadStatistics, name: str) -> float:
    """-1: never, 0: chance, 1: always; NaN if the statistic is not a share."""
    measure = head.statistics.get(name)
    if measure is None or name not in ROLES:
        return float("nan")
    return measure.gain if measure.gain > 0 else measure.value / measure.chance - 1


# ---- Costs -----------------------------------------------------------------------------------------------------------


def parameter_budget(budget: Budget) -> Any:
    """The parameters of each part."""
    title = f"{budget.parameters:,} parameters; a shared matrix counts once"
    return _bars(budget, lambda share: share.parameters, lambda value: f"{value:,.0f}", title, GREEN)


def time_budget(budget: Budget) -> Any:
    """The time of each part in a forward pass."""
    tokens = f" over {budget.tokens:,} tokens" if budget.tokens else ""
    title = f"{1000 * budget.seconds:.1f} ms for a forward pass{tokens}"
    return _bars(budget, lambda share: 1000 * share.seconds, lambda value: f"{value:.1f} ms", title, BLUE)


def _bars(
    budget: Budget, value_of: Callable[[PartCost], float], format: Callable[[float], str], title: str, colour: str
) -> Any:
    shares = [share for share in budget.shares if value_of(share)]
    values = [value_of(share) for share in shares]
    figure = new_figure(7.5, 1.0 + 0.36 * len(shares))
    axes = figure.add_subplot()
    axes.barh(range(len(shares)), values, color=colour)
    for place, value in enumerate(values):
        axes.annotate(
            f"{format(value)}  {value / sum(values):.1%}",
            (value, place),
            xytext=(4, 0),
            textcoords="offset points",
            va="center",
        )
    axes.set_yticks(range(len(shares)), [share.part for share in shares])
    axes.set(xlim=(0, 1.3 * max(values)), ylim=(len(shares) - 0.4, -0.6))
    axes.set_xticks([])
    axes.spines["bottom"].set_visible(False)
    axes.tick_params(length=0)
    axes.set_title(title, loc="left")
    return figure
