"""Attribution: which input tokens a margin depends on. Each method gives a number for every token of the input.

    occlusion               margin(x) - margin(x without the token)
    gradient_x_input        gradient(x) · (x - x₀)                      the same to first order
    integrated_gradients    ∫ gradient(x₀ + a (x - x₀)) da · (x - x₀)   Sundararajan et al. 2017; sums to the difference
    attention               the mean attention weights of the layer that reads the input
    rollout                 attention through all layers, with residual connections (Abnar & Zuidema 2020)

x are the embedded tokens, and x₀ the same positions without tokens: zeros in place of each token's vector, or a black
image. The first three are in nats: positive numbers favour the token, negative ones its rival. The last two are shares:
they say where the model looks, not for what.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from cutaway.errors import DataError
from cutaway.explore.causes.margin import Margin
from cutaway.explore.traced_example import TracedExample
from cutaway.explore.variants import batch_size, predictions, replace_row, run_variants
from cutaway.nn.embedding import InputEmbedding
from cutaway.nn.heads import FirstPool, FirstTanhPool
from cutaway.nn.recording import edit_activations, record_activations

TOLERANCE = 1e-3  # nats; the largest error of the sum of integrated gradients
LARGE_GAP = 0.01  # nats
SMALLEST = -24  # power of ten; the first point after 0 if x₀ is 0
LARGEST_SUM = 100  # times the tolerance; for the errors of all parts of the way, without their signs
POINTS, MAX_PARTS = 3, 640  # points of each part of the way; parts that are measured
GRADIENT = 3  # a gradient takes as long as this many passes


@dataclass(frozen=True)
class Attribution:
    """One number for each source token and each target token. A model with one input has only one of the two.

    `total` is what a complete method sums to: the margin minus the margin without any token.
    """

    method: str
    source: list[float]
    target: list[float]
    total: float | None = None

    @property
    def gap(self) -> float | None:
        """By how much the sum misses the total. More than `LARGE_GAP` means that the numbers are wrong."""
        return None if self.total is None else abs(sum(self.source) + sum(self.target) - self.total)


class Input(NamedTuple):
    """An embedded input: its probe, its value x [T,D], and the value without tokens x₀ [T,D]."""

    side: str  # "source" or "target"
    probe: str
    x: Tensor
    without: Tensor


def embedded_inputs(model: Any, example: TracedExample) -> list[Input]:
    """The inputs of the model, as the layers read them."""
    with torch.no_grad():
        if hasattr(model, "source_embedding"):
            sides = {"source": "source_embedding", "target": "target_embedding"}
        else:
            sides = {"target" if example.target_in else "source": "embedding"}
        found = []
        for (side, name), ids in zip(sides.items(), example.inputs, strict=True):
            embedding = getattr(model, name)
            found.append(Input(side, f"{name}.embedded", embedding(ids)[0], without_tokens(embedding, ids)[0]))
        return found


def without_tokens(embedding: Any, ids: Tensor) -> Tensor:
    """The embedding of the same positions without tokens: [1,T,D]."""
    if not isinstance(embedding, InputEmbedding):
        return embedding(torch.zeros_like(ids))  # an image of zeros
    x = embedding.tokens.weight.new_zeros(1, ids.size(1), embedding.tokens.weight.size(1))
    if embedding.segments is not None:
        x = x + embedding.segments(torch.zeros_like(ids))
    return embedding.norm(embedding.position.embed(x, torch.arange(ids.size(1), device=ids.device)))


def occlusion(model: Any, example: TracedExample, margin: Margin) -> Attribution:
    """The margin minus the margin without each token."""
    inputs = embedded_inputs(model, example)
    edits = [{each.probe: replace_row(t, each.without[t])} for each in inputs for t in range(len(each.x))]
    before, *after = run_variants(model, example, [{}, *edits], margin.of).tolist()
    changes = iter(before - value for value in after)
    return by_side("occlusion", {each.side: [next(changes) for _ in each.x] for each in inputs})


def gradient_x_input(model: Any, example: TracedExample, margin: Margin) -> Attribution:
    inputs = embedded_inputs(model, example)
    gradients = gradients_at(model, example, margin, inputs, torch.ones(1))
    found = {
        each.side: (gradient_1TD[0] * (each.x - each.without)).sum(-1).tolist()
        for each, gradient_1TD in zip(inputs, gradients, strict=True)
    }
    return by_side("gradient_x_input", found)


def integrated_gradients(
    model: Any, example: TracedExample, margin: Margin, tolerance: float = TOLERANCE
) -> Attribution:
    """All inputs move from x₀ to x together, so the sum is the margin minus the margin without any token.

    This holds for every part of the way too, so the error of each part is known. The eighth of the parts with the
    largest errors is halved until the errors add up to `tolerance`: evenly spaced points miss the kinks of ReLU.
    """
    inputs = embedded_inputs(model, example)
    edges = first_edges(inputs)
    parts = torch.stack([edges[:-1], edges[1:]], dim=1)
    shares, errors = integrate(model, example, margin, inputs, parts)
    count = len(parts)
    while abs(errors.sum()) > tolerance or errors.abs().sum() > LARGEST_SUM * tolerance:
        if count > MAX_PARTS - 2:
            break
        worst = errors.abs().topk(min(-(-len(errors) // 8), (MAX_PARTS - count) // 2)).indices
        kept = torch.ones(len(errors), dtype=torch.bool).index_fill(0, worst, False)
        start, end = parts[worst].unbind(1)
        middle = (start + end) / 2
        halves = torch.cat([torch.stack([start, middle], 1), torch.stack([middle, end], 1)])
        new_shares, new_errors = integrate(model, example, margin, inputs, halves)
        parts, errors = torch.cat([parts[kept], halves]), torch.cat([errors[kept], new_errors])
        shares = [torch.cat([old[kept], new]) for old, new in zip(shares, new_shares, strict=True)]
        count += len(halves)
    empty, full = margins_at(model, example, margin, inputs, edges[[0, -1]]).tolist()
    found = {each.side: share.sum(0).tolist() for each, share in zip(inputs, shares, strict=True)}
    return by_side("integrated_gradients", found, full - empty)


def first_edges(inputs: list[Input]) -> Tensor:
    """The ends of the first parts, from 0 to 1.

    Without position vectors x₀ is 0. Each norm then makes tiny vectors large, so the margin changes most very close to
    0: the ends are spaced by logarithm there.
    """
    even = torch.linspace(0, 1, 9, dtype=torch.float64)
    if any(each.without.any() for each in inputs):
        return even
    return torch.cat([even[:1], torch.logspace(SMALLEST, -1, 4 * (-1 - SMALLEST) + 1, dtype=torch.float64), even[1:]])


def integrate(
    model: Any, example: TracedExample, margin: Margin, inputs: list[Input], parts: Tensor
) -> tuple[list[Tensor], Tensor]:
    """The integral over each part [a, b] of the way: by input and token [P,T], and the error of the sum [P]."""
    points, weights = gauss_legendre()
    width_P1 = parts[:, 1:] - parts[:, :1]
    at = (parts[:, :1] + width_P1 * points).flatten()
    shares = []
    for each, gradient_ATD in zip(inputs, gradients_at(model, example, margin, inputs, at), strict=True):
        by_point = (gradient_ATD * (each.x - each.without)).sum(-1).unflatten(0, (len(parts), len(points)))
        shares.append((by_point * (width_P1 * weights)[:, :, None].to(by_point)).sum(1))
    change_P = margins_at(model, example, margin, inputs, parts.flatten()).view(-1, 2).diff()[:, 0]
    return shares, (torch.stack([share.sum(1) for share in shares]).sum(0) - change_P).cpu()


def gradients_at(
    model: Any, example: TracedExample, margin: Margin, inputs: list[Input], points: Tensor
) -> list[Tensor]:
    """The gradients [A,T,D] of the margin with respect to each input, at x₀ + a (x - x₀) for each a in `points`."""
    found = []
    for some in points.split(batch_size(example)):
        values = [between(each, some).requires_grad_() for each in inputs]
        with torch.enable_grad():
            found.append(torch.autograd.grad(margins_of(model, example, margin, inputs, values).sum(), values))
    return [torch.cat(gradients) for gradients in zip(*found, strict=True)]


@torch.no_grad()
def margins_at(model: Any, example: TracedExample, margin: Margin, inputs: list[Input], points: Tensor) -> Tensor:
    """The margin at x₀ + a (x - x₀) for each a in `points`."""
    chunks = points.split(batch_size(example))
    return torch.cat(
        [margins_of(model, example, margin, inputs, [between(each, some) for each in inputs]) for some in chunks]
    )


def margins_of(model: Any, example: TracedExample, margin: Margin, inputs: list[Input], values: list[Tensor]) -> Tensor:
    """The margin for each row of these embedded inputs [A,T,D]."""
    repeated = (ids.expand(len(values[0]), *ids.shape[1:]) for ids in example.inputs)
    with edit_activations(model, {each.probe: value for each, value in zip(inputs, values, strict=True)}):
        return margin.of(predictions(example, model(*repeated)))


def between(each: Input, points: Tensor) -> Tensor:
    return each.without + points.to(each.x)[:, None, None] * (each.x - each.without)


def gauss_legendre() -> tuple[Tensor, Tensor]:
    """Points and weights of an integral from 0 to 1."""
    points, weights = np.polynomial.legendre.leggauss(POINTS)
    return torch.from_numpy((points + 1) / 2), torch.from_numpy(weights / 2)


def attention(model: Any, example: TracedExample, margin: Margin) -> Attribution:
    """The mean weights of the last stack, over layers and heads. A translator has them for source and target."""
    row = query_rows(model, example, margin)
    weights = recorded_weights(model, example)
    if "cross" in weights:
        sides = {"source": weights["cross"], "target": weights["decoder"]}
    else:
        sides = {"target" if example.target_in else "source": weights.get("decoder") or weights["encoder"]}
    return by_side("attention", {side: row(torch.stack(layers).mean(0)).tolist() for side, layers in sides.items()})


def rollout(model: Any, example: TracedExample, margin: Margin) -> Attribution:
    """Attention multiplied through all layers. A residual connection counts as much as the attention.

    Each row of `seen` says how much each input token is in the vector of that position; its sum is 1.
    """
    row, weights = query_rows(model, example, margin), recorded_weights(model, example)
    memory_SS = roll(weights["encoder"]) if "encoder" in weights else None
    if "decoder" not in weights:
        assert memory_SS is not None
        return by_side("rollout", {"source": row(memory_SS).tolist()})
    if memory_SS is None:
        return by_side("rollout", {"target": row(roll(weights["decoder"])).tolist()})
    T, S = weights["cross"][0].shape
    source_TS, target_TT = memory_SS.new_zeros(T, S), torch.eye(T).to(memory_SS)
    for self_TT, cross_TS in zip(weights["decoder"], weights["cross"], strict=True):
        mix_TT = (self_TT + torch.eye(T).to(self_TT)) / 2
        source_TS, target_TT = mix_TT @ source_TS, mix_TT @ target_TT
        source_TS, target_TT = (source_TS + cross_TS @ memory_SS) / 2, target_TT / 2
    return by_side("rollout", {"source": row(source_TS).tolist(), "target": row(target_TT).tolist()})


def roll(layers: list[Tensor]) -> Tensor:
    """The product of (weights + 1) / 2 over the layers."""
    seen_TT = torch.eye(len(layers[0])).to(layers[0])
    for weights_TT in layers:
        seen_TT = (weights_TT @ seen_TT + seen_TT) / 2
    return seen_TT


@torch.no_grad()
def recorded_weights(model: Any, example: TracedExample) -> dict[str, list[Tensor]]:
    """The attention weights of each layer, averaged over heads: "encoder", "decoder", "cross" -> [Q,K] by layer."""
    with record_activations(model, "*_attention.weights") as seen:
        model(*example.inputs)
    found: dict[str, list[Tensor]] = {}
    for name, weights_BHQK in seen.items():
        stack = name.split(".")[0]
        kind = "cross" if "cross_attention" in name else stack
        found.setdefault(kind, []).append(weights_BHQK[0].double().mean(0))
    return found


def query_rows(model: Any, example: TracedExample, margin: Margin) -> Callable[[Tensor], Tensor]:
    """A function that selects the row [K] of the predicting position from weights [Q,K]; a mean for several terms."""
    pool = getattr(model.head, "pool", None)
    if pool is not None:
        only_first = isinstance(pool, FirstPool | FirstTanhPool)
        return lambda weights_QK: weights_QK[0] if only_first else weights_QK.mean(0)
    places = [term.step if example.places is None else example.places[term.step] for term in margin.terms]
    return lambda weights_QK: weights_QK[places].mean(0)


def by_side(method: str, found: dict[str, list[float]], total: float | None = None) -> Attribution:
    return Attribution(method, found.get("source", []), found.get("target", []), total)


# How the methods are called, best first (docs/why.md has the measurement).
Method = Callable[[Any, TracedExample, Margin], Attribution]
METHODS: dict[str, Method] = {
    "occlusion": occlusion,
    "integrated_gradients": integrated_gradients,
    "gradient_x_input": gradient_x_input,
    "attention": attention,
    "rollout": rollout,
}
SHORT_NAMES = {
    "occlusion": "occlusion",
    "integrated_gradients": "integr. grad.",
    "gradient_x_input": "grad. × input",
    "attention": "attention",
    "rollout": "rollout",
}
SHARES = ("attention", "rollout")  # these have no sign


def attribute(model: Any, example: TracedExample, margin: Margin, method: str = "occlusion") -> Attribution:
    """One method by name."""
    if method not in METHODS:
        raise DataError(f"there is no attribution method {method!r}. Choose one of: {', '.join(METHODS)}.")
    return METHODS[method](model, example, margin)
