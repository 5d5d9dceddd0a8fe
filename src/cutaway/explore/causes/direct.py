"""Direct contributions: a margin as a sum over embedding, heads and feed-forward networks.

The head of a model reads the residual stream, and the stream is a sum: embedding + update + update + ... A norm divides
the sum by its standard deviation. With all norms frozen at the values of this text, every step to the logits is linear,
so the margin is exactly the sum of what each part adds to it:

    pre-norm     the final norm is frozen
    post-norm    every norm after the part is frozen, because each layer norms the whole stream

A contribution is direct: what later parts make of it counts as theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from cutaway.errors import ConfigError
from cutaway.explore.causes.margin import Margin
from cutaway.explore.lens import stack_of, stream_probes
from cutaway.explore.traced_example import TracedExample
from cutaway.nn.attention import MultiHeadAttention
from cutaway.nn.embedding import LanguageHead
from cutaway.nn.heads import ClassHead, FirstPool, MeanPool, TagHead
from cutaway.nn.recording import record_activations
from cutaway.nn.residual import Residual
from cutaway.nn.sandwich_norm import SandwichNorm

EMBEDDING, BIASES = "embedding", "biases"  # the other parts have the ids of ablation_targets()
Linear = Callable[[Tensor], Tensor]
Norm = nn.LayerNorm | nn.RMSNorm


@dataclass(frozen=True)
class FrozenNorm:
    """A norm with its divisor of one text: linear, up to its bias. x [T,D]"""

    scale: Tensor  # [T,D]: gain / divisor
    bias: Tensor  # [D]
    is_centred: bool

    def __call__(self, x: Tensor) -> Tensor:
        return (x - x.mean(-1, keepdim=True) if self.is_centred else x) * self.scale


def direct_contributions(model: Any, example: TracedExample, margin: Margin) -> dict[str, float]:
    """Part -> what it adds to the margin directly. The sum is the margin.

    "biases" has everything that does not depend on the text: the biases of norms, attention outputs and the head.
    """
    if any(term.rival is None for term in margin.terms):
        raise ConfigError("a log-probability is not a sum over parts. Give a rival: its logit is subtracted.")
    stack = stack_of(model)
    layers = getattr(model, stack).layers
    if len(set(map(id, layers))) < len(layers):
        raise ConfigError("these layers share their weights, so a part has no contribution of its own.")
    read = reader(model, example, margin)
    with torch.no_grad(), norm_inputs(model) as normed, record_activations(model, *watched(model)) as seen:
        model(*example.inputs)
        freeze = {id(module): freeze_norm(module, x_BTD[0]) for module, x_BTD in normed.items()}
        parts = {EMBEDDING: seen[stream_probes(model)["embedding"]][0]}
        parts[BIASES] = torch.zeros_like(parts[EMBEDDING])
        for i, layer in enumerate(layers):
            for residual, name in residuals_of(layer):
                updates = dict(sublayer_parts(layer, residual, name, f"{stack}.layers.{i}.", seen, normed))
                if isinstance(residual, SandwichNorm):
                    updates = through(freeze, residual.norm_after, updates)
                for part, value in updates.items():
                    parts[part] = parts[part] + value if part == BIASES else value
                if residual.has_normed_output:
                    parts = through(freeze, residual.norm, parts)
        parts = through(freeze, getattr(model, stack).norm, parts)
        found = {name: read(value).item() for name, value in parts.items()}
    found[BIASES] += bias_of(model, margin)
    return found


def watched(model: nn.Module) -> list[str]:
    stack = stack_of(model)
    names = [f"{stack}.layers.*_attention.heads", f"{stack}.layers.*residual.update"]
    return [*names, stream_probes(model)["embedding"]]


@contextmanager
def norm_inputs(model: nn.Module) -> Iterator[dict[Norm, Tensor]]:
    """The input of every norm, while the model runs."""
    found: dict[Norm, Tensor] = {}
    hooks = [
        module.register_forward_pre_hook(lambda module, inputs: found.update({module: inputs[0]}))
        for module in model.modules()
        if isinstance(module, Norm)
    ]
    try:
        yield found
    finally:
        for hook in hooks:
            hook.remove()


def freeze_norm(norm: Norm, x_TD: Tensor) -> FrozenNorm:
    is_centred = isinstance(norm, nn.LayerNorm)
    centred = x_TD - x_TD.mean(-1, keepdim=True) if is_centred else x_TD
    epsilon = torch.finfo(x_TD.dtype).eps if norm.eps is None else norm.eps
    divisor = (centred.square().mean(-1, keepdim=True) + epsilon).sqrt()
    bias = norm.bias if isinstance(norm, nn.LayerNorm) and norm.bias is not None else torch.zeros_like(x_TD[0])
    return FrozenNorm(norm.weight / divisor, bias, is_centred)


def through(freeze: dict[int, FrozenNorm], norm: nn.Module, parts: dict[str, Tensor]) -> dict[str, Tensor]:
    """Send each part through a frozen norm. Its bias goes to the biases."""
    if isinstance(norm, nn.Identity):
        return parts
    frozen = freeze.get(id(norm))
    if frozen is None:
        raise ConfigError(f"a norm of type {type(norm).__name__} cannot be frozen. Known: LayerNorm, RMSNorm.")
    found = {name: frozen(value) for name, value in parts.items()}
    found[BIASES] = found.get(BIASES, 0) + frozen.bias
    return found


def residuals_of(layer: nn.Module) -> list[tuple[Residual, str]]:
    """The residual connections of a layer in order, with the name of their sub-layer; "block" for parallel layers."""
    found = []
    for name, child in layer.named_children():
        if isinstance(child, Residual):
            found.append((child, name.removesuffix("residual").removesuffix("_") or "block"))
    order = ("block", "self_attention", "cross_attention", "feed_forward")
    return sorted(found, key=lambda each: order.index(each[1]))


def sublayer_parts(
    layer: nn.Module, residual: Residual, name: str, path: str, seen: dict[str, Tensor], normed: dict[Any, Tensor]
) -> Iterator[tuple[str, Tensor]]:
    """What one residual connection adds, by head or as a whole; before the norm of a sandwich."""
    update = seen[f"{path}{'' if name == 'block' else name + '_'}residual.update"][0]
    rest = normed[residual.norm_after][0] if isinstance(residual, SandwichNorm) else update
    biases = torch.zeros_like(rest)
    attentions = ("self_attention", "cross_attention") if name == "block" else (name,)
    for attention_name in attentions:
        attention = getattr(layer, attention_name, None)
        if not isinstance(attention, MultiHeadAttention):
            continue
        heads_BHTE = seen[f"{path}{attention_name}.heads"]
        nothing = attention.output(attention.merge(torch.zeros_like(heads_BHTE)))[0]
        biases, rest = biases + nothing, rest - nothing
        for h in range(heads_BHTE.size(1)):
            only = torch.zeros_like(heads_BHTE)
            only[:, h] = heads_BHTE[:, h]
            value = attention.output(attention.merge(only))[0] - nothing
            rest = rest - value
            yield f"{path}{attention_name}.heads.{h}", value
    if name in ("feed_forward", "block"):
        yield f"{path}feed_forward", rest
    yield BIASES, biases


def reader(model: Any, example: TracedExample, margin: Margin) -> Linear:
    """The linear part of the margin, as a function of the residual stream [T,D]."""
    weight, _ = readout(model)
    direction_VD = torch.stack([weight[term.token] - weight[term.rival] for term in margin.terms])

    def read(x_TD: Tensor) -> Tensor:
        if isinstance(model.head, ClassHead):
            rows = (x_TD[0] if isinstance(model.head.pool, FirstPool) else x_TD.mean(0)).expand(len(margin.terms), -1)
        else:
            rows = x_TD[[term.step if example.places is None else example.places[term.step] for term in margin.terms]]
        return (rows * direction_VD).sum()

    return read


def bias_of(model: Any, margin: Margin) -> float:
    _, bias = readout(model)
    return 0.0 if bias is None else sum((bias[term.token] - bias[term.rival]).item() for term in margin.terms)


def readout(model: Any) -> tuple[Tensor, Tensor | None]:
    """Weight [V,D] and bias [V] of a linear head."""
    head = model.head
    if isinstance(head, LanguageHead):
        return head.weight, head.bias
    if isinstance(head, TagHead) or (isinstance(head, ClassHead) and isinstance(head.pool, FirstPool | MeanPool)):
        return head.classify.weight, head.classify.bias
    pool = f" with {type(head.pool).__name__}" if isinstance(head, ClassHead) else ""
    raise ConfigError(f"the head of this model ({type(head).__name__}{pool}) is not linear, so no exact sum exists.")
