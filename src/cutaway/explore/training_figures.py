"""Figures of learning-rate schedules and label smoothing. Each function returns a matplotlib Figure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cutaway.explore.figures import BLUE, GREY, ORANGE, new_figure, style

Schedule = Callable[[int, float], float]  # (step, share of the training done) -> learning rate
Loss = Callable[[Tensor, Tensor, float], tuple[Tensor, Tensor]]  # logits [N,V], target [N], ε -> smoothed, plain


def schedules(named: Mapping[str, Schedule], steps: int, chosen: str = "") -> Any:
    """Several learning-rate schedules in one figure; the chosen one is bold."""
    figure = new_figure(8, 3.6)
    axes = figure.add_subplot()
    at = np.unique(np.linspace(1, steps, 500).astype(int))
    for number, (name, schedule) in enumerate(named.items()):
        rates = [schedule(int(step), step / steps) for step in at]
        label = f"{name} (this run)" if name == chosen else name
        axes.plot(at, rates, label=label, linewidth=3.0 if name == chosen else 1.5, **style(number))
    axes.set(xlabel="step", ylabel="learning rate", ylim=(0, None))
    axes.grid(alpha=0.25)
    axes.set_title("Learning-rate schedules", loc="left")
    axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


def smoothing_targets(loss: Loss, vocabulary: Sequence[str], right: int, epsilon: float) -> Any:
    """Label smoothing. Left: the smoothed target and the one-hot target. Right: the loss over p of the correct token.

    Both are computed from the loss: its gradient with respect to the logits is p - q, so q = p - gradient.
    """
    figure = new_figure(10, 3.6)
    left, over_p = figure.subplots(1, 2, width_ratios=(1.3, 1))
    for epsilon_here, bars in (
        (0.0, {"fill": False, "edgecolor": GREY, "width": 0.8}),
        (epsilon, {"color": BLUE, "width": 0.55}),
    ):
        q_V = target_of(loss, len(vocabulary), right, epsilon_here)
        left.bar(range(len(q_V)), q_V, label="one-hot" if not epsilon_here else f"smoothed, ε = {epsilon:g}", **bars)
    for place, q in enumerate(q_V):
        left.annotate(f"{q:.3f}", (place, q), xytext=(0, 3), textcoords="offset points", ha="center", fontsize=8)
    left.set_xticks(
        range(len(vocabulary)), vocabulary, rotation=35, ha="right", rotation_mode="anchor", parse_math=False
    )
    left.set(ylabel="target probability", ylim=(0, 1.1))
    left.set_title(
        f"Target over {len(vocabulary)} tokens; “{vocabulary[right]}” is correct", loc="left", parse_math=False
    )
    left.legend(frameon=False)
    draw_losses(over_p, loss, len(vocabulary), right, epsilon)
    return figure


def draw_losses(axes: Any, loss: Loss, size: int, right: int, epsilon: float) -> None:
    p = np.linspace(0.02, 0.999, 200)
    for epsilon_here, colour, line in ((0.0, GREY, "--"), (epsilon, BLUE, "-")):
        axes.plot(p, losses_over(loss, p, size, right, epsilon_here), line, color=colour)
    values = losses_over(loss, p, size, right, epsilon)
    best = int(np.argmin(values))
    axes.plot(p[best], values[best], "o", color=ORANGE)
    axes.annotate(
        f"minimum at p = {p[best]:.2f}",
        (p[best], values[best]),
        xytext=(-4, 26),
        textcoords="offset points",
        ha="right",
        color=ORANGE,
        arrowprops={"arrowstyle": "-", "color": ORANGE},
    )
    axes.set(xlabel="p of the correct token (the others share the rest)", ylabel="loss, nats", ylim=(0, 4))
    axes.set_title("The smoothed loss has its minimum below p = 1", loc="left")
    axes.grid(alpha=0.25)


def target_of(loss: Loss, size: int, right: int, epsilon: float) -> NDArray[np.float64]:
    """The target distribution of a loss. -> [V]"""
    logits = torch.zeros(1, size, dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(loss(logits, torch.tensor([right]), epsilon)[0], logits)
    return (logits.softmax(dim=-1) - gradient)[0].detach().numpy()


def losses_over(loss: Loss, p: NDArray[np.float64], size: int, right: int, epsilon: float) -> list[float]:
    """The loss if the correct token has probability p and the others share the rest equally."""
    found = []
    for value in p:
        p_V = torch.full((1, size), (1 - value) / (size - 1), dtype=torch.float64)
        p_V[0, right] = value
        found.append(float(loss(p_V.log(), torch.tensor([right]), epsilon)[0]))
    return found
