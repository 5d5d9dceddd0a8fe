"""Surgery: take one thing out of a *built* model and see what it was good for.

    model = build_model(config)
    operate(model, ["no-residual"])        # in place; the weights that stay are the ones it was built with

Each surgery puts another part in the place of a part. The parts in `nn/` know nothing of it: there is no flag for a
broken variant anywhere. A part that is put in takes over what it replaces, under the same names, so probes keep
their places. A surgery that finds nothing to change is an error.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import replace

from torch import Tensor, nn
from torch.nn import LayerNorm, RMSNorm

from cutaway.errors import ConfigError, did_you_mean
from cutaway.nn.attention import MultiHeadAttention
from cutaway.nn.cache import KVCache
from cutaway.nn.layers import Stack
from cutaway.nn.linear_attention import LinearAttention
from cutaway.nn.masks import Causal, Mask
from cutaway.nn.residual import PostNorm, PreNorm, Residual, SubLayer
from cutaway.nn.sandwich_norm import SandwichNorm

Surgery = Callable[[nn.Module], None]


def operate(model: nn.Module, names: Iterable[str]) -> None:
    """Change `model` in place, one surgery after the other."""
    for name in names:
        find_surgery(name)(model)


def find_surgery(name: str) -> Surgery:
    if name not in SURGERIES:
        raise ConfigError(f"there is no surgery {name!r}. {did_you_mean(name, SURGERIES)}")
    return SURGERIES[name]


def no_residual(model: nn.Module) -> None:
    """f(x) instead of x + f(x): nothing goes around a sub-layer, neither values nor gradients."""
    replace_parts(model, (Residual,), alone, "no-residual", "residual connection")


def no_norm(model: nn.Module) -> None:
    """Every norm becomes the identity, the one at the end of a stack included."""
    replace_parts(model, (LayerNorm, RMSNorm), lambda part: nn.Identity(), "no-norm", "norm")


def no_scaling(model: nn.Module) -> None:
    """softmax(Q Kᵀ) V without 1/√E: queries are made √E times longer, which every kernel then divides away."""
    chosen = [part for part in model.modules() if isinstance(part, MultiHeadAttention)]
    chosen = [part for part in chosen if not isinstance(part, LinearAttention)]  # which scales nothing
    if not chosen:
        raise nothing_to_change("no-scaling", "attention with scores")
    for attention in chosen:
        attention.query_norm = nn.Sequential(attention.query_norm, Times(math.sqrt(attention.d_head)))


def no_mask(model: nn.Module) -> None:
    """The decoder sees what is still to be written; padding stays invisible."""
    decoder = getattr(model, "decoder", None)
    if not isinstance(decoder, Stack):
        raise nothing_to_change("no-mask", "decoder with a causal mask")
    if any(isinstance(part, LinearAttention) for part in decoder.modules()):
        raise ConfigError(
            "the surgery 'no-mask' cannot be done to linear attention, which writes token by token because it adds up "
            'the past alone. Choose model.attention = "full".'
        )
    model.decoder = StackWithoutCausality(decoder)


def share_layers(model: nn.Module) -> None:
    """All layers of a stack are one and the same (Universal Transformer, ALBERT): depth without parameters."""
    deep = [part for part in model.modules() if isinstance(part, Stack) and len(part.layers) > 1]
    if not deep:
        raise nothing_to_change("share-layers", "stack of several layers")
    for stack in deep:
        stack.layers = nn.ModuleList([stack.layers[0]] * len(stack.layers))


SURGERIES: dict[str, Surgery] = {
    "no-residual": no_residual,
    "no-norm": no_norm,
    "no-scaling": no_scaling,
    "no-mask": no_mask,
    "share-layers": share_layers,
}


class Alone(nn.Module):
    """A residual connection that has lost its `x +`; it keeps the norm, the dropout and the probes."""

    norm: nn.Module
    dropout: nn.Module
    update: nn.Module
    stream: nn.Module

    def __init__(self, whole: nn.Module):
        super().__init__()
        for name, part in whole.named_children():
            self.add_module(name, part)


class PostNormAlone(Alone):
    """norm(dropout(f(x)))"""

    def forward(self, x: Tensor, sublayer: SubLayer) -> Tensor:
        return self.stream(self.norm(self.dropout(self.update(sublayer(x)))))


class PreNormAlone(Alone):
    """dropout(f(norm(x)))"""

    def forward(self, x: Tensor, sublayer: SubLayer) -> Tensor:
        return self.stream(self.dropout(self.update(sublayer(self.norm(x)))))


class SandwichNormAlone(Alone):
    """dropout(norm₂(f(norm(x))))"""

    norm_after: nn.Module

    def forward(self, x: Tensor, sublayer: SubLayer) -> Tensor:
        return self.stream(self.dropout(self.update(self.norm_after(sublayer(self.norm(x))))))


ALONE: dict[type, type[Alone]] = {PostNorm: PostNormAlone, PreNorm: PreNormAlone, SandwichNorm: SandwichNormAlone}


def alone(residual: nn.Module) -> Alone:
    return ALONE[type(residual)](residual)


class Times(nn.Module):
    """x · factor"""

    def __init__(self, factor: float):
        super().__init__()
        self.factor = factor

    def forward(self, x: Tensor) -> Tensor:
        return x * self.factor


class StackWithoutCausality(Stack):
    """The same layers, told a mask without `Causal`; whatever other rules there are stay."""

    def __init__(self, whole: Stack):
        super().__init__(list(whole.layers), whole.norm)

    def forward(
        self,
        x: Tensor,
        mask: Mask | None = None,
        memory: Tensor | None = None,
        memory_mask: Mask | None = None,
        cache: KVCache | None = None,
    ) -> Tensor:
        if mask is not None:
            mask = replace(mask, rules=tuple(rule for rule in mask.rules if not isinstance(rule, Causal)))
        return super().forward(x, mask, memory, memory_mask, cache)


def replace_parts(
    model: nn.Module, kinds: tuple[type, ...], make: Callable[[nn.Module], nn.Module], surgery: str, what: str
) -> None:
    """Put `make(part)` in the place of every part of these kinds."""
    found = [
        (parent, name, part)
        for parent in model.modules()
        for name, part in parent.named_children()
        if isinstance(part, kinds)
    ]
    if not found:
        raise nothing_to_change(surgery, what)
    for parent, name, part in found:
        setattr(parent, name, make(part))


def nothing_to_change(surgery: str, what: str) -> ConfigError:
    return ConfigError(
        f"the surgery {surgery!r} finds nothing to change: this model has no {what}. "
        "Leave it out, or choose a model that has one."
    )
