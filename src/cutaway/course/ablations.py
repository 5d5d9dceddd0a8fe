"""Ablations: remove one component from a *built* model.

    model = build_model(config)
    apply_ablations(model, ["no-residual"])        # in place; the remaining weights do not change

An ablation replaces modules of the model, so `nn/` needs no flags for broken variants. A replacement keeps the names
of the submodules it takes over, so probe names do not change. An ablation that finds nothing to change raises an error.
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

Ablation = Callable[[nn.Module], None]


def apply_ablations(model: nn.Module, names: Iterable[str]) -> None:
    """Apply the named ablations to `model` in place, in order."""
    for name in names:
        find_ablation(name)(model)


def find_ablation(name: str) -> Ablation:
    if name not in ABLATIONS:
        raise ConfigError(f"unknown ablation {name!r}. {did_you_mean(name, ABLATIONS)}")
    return ABLATIONS[name]


def no_residual(model: nn.Module) -> None:
    """f(x) instead of x + f(x): neither activations nor gradients bypass a sub-layer."""
    replace_modules(model, (Residual,), remove_residual, "no-residual", "residual connection")


def no_norm(model: nn.Module) -> None:
    """Replace every norm with the identity, including the final norm of a stack."""
    replace_modules(model, (LayerNorm, RMSNorm), lambda part: nn.Identity(), "no-norm", "norm")


def no_scaling(model: nn.Module) -> None:
    """softmax(Q Kᵀ) V without 1/√E: multiply the queries by √E, which cancels the division in every kernel."""
    chosen = [part for part in model.modules() if isinstance(part, MultiHeadAttention)]
    chosen = [part for part in chosen if not isinstance(part, LinearAttention)]  # it has no scaling
    if not chosen:
        raise nothing_to_change_error("no-scaling", "attention with scores")
    for attention in chosen:
        attention.query_norm = nn.Sequential(attention.query_norm, Multiply(math.sqrt(attention.d_head)))


def no_mask(model: nn.Module) -> None:
    """Let the decoder attend to later target positions; padding stays masked."""
    decoder = getattr(model, "decoder", None)
    if not isinstance(decoder, Stack):
        raise nothing_to_change_error("no-mask", "decoder with a causal mask")
    if any(isinstance(part, LinearAttention) for part in decoder.modules()):
        raise ConfigError(
            "the ablation 'no-mask' does not work with linear attention, which is causal by construction. "
            'Set model.attention = "full".'
        )
    model.decoder = StackWithoutCausalMask(decoder)


def share_layers(model: nn.Module) -> None:
    """Share one set of weights among all layers of a stack (Universal Transformer, ALBERT)."""
    deep = [part for part in model.modules() if isinstance(part, Stack) and len(part.layers) > 1]
    if not deep:
        raise nothing_to_change_error("share-layers", "stack of several layers")
    for stack in deep:
        stack.layers = nn.ModuleList([stack.layers[0]] * len(stack.layers))


ABLATIONS: dict[str, Ablation] = {
    "no-residual": no_residual,
    "no-norm": no_norm,
    "no-scaling": no_scaling,
    "no-mask": no_mask,
    "share-layers": share_layers,
}


class WithoutResidual(nn.Module):
    """A residual connection without `x +`; norm, dropout and probes stay."""

    norm: nn.Module
    dropout: nn.Module
    update: nn.Module
    stream: nn.Module

    def __init__(self, whole: nn.Module):
        super().__init__()
        for name, part in whole.named_children():
            self.add_module(name, part)


class PostNormWithoutResidual(WithoutResidual):
    """norm(dropout(f(x)))"""

    def forward(self, x: Tensor, sublayer: SubLayer) -> Tensor:
        return self.stream(self.norm(self.dropout(self.update(sublayer(x)))))


class PreNormWithoutResidual(WithoutResidual):
    """dropout(f(norm(x)))"""

    def forward(self, x: Tensor, sublayer: SubLayer) -> Tensor:
        return self.stream(self.dropout(self.update(sublayer(self.norm(x)))))


class SandwichNormWithoutResidual(WithoutResidual):
    """dropout(norm₂(f(norm(x))))"""

    norm_after: nn.Module

    def forward(self, x: Tensor, sublayer: SubLayer) -> Tensor:
        return self.stream(self.dropout(self.update(self.norm_after(sublayer(self.norm(x))))))


WITHOUT_RESIDUAL: dict[type, type[WithoutResidual]] = {
    PostNorm: PostNormWithoutResidual,
    PreNorm: PreNormWithoutResidual,
    SandwichNorm: SandwichNormWithoutResidual,
}


def remove_residual(residual: nn.Module) -> WithoutResidual:
    return WITHOUT_RESIDUAL[type(residual)](residual)


class Multiply(nn.Module):
    """x · factor"""

    def __init__(self, factor: float):
        super().__init__()
        self.factor = factor

    def forward(self, x: Tensor) -> Tensor:
        return x * self.factor


class StackWithoutCausalMask(Stack):
    """A stack that removes the `Causal` rule from its mask and keeps all other rules."""

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


def replace_modules(
    model: nn.Module, kinds: tuple[type, ...], make: Callable[[nn.Module], nn.Module], ablation: str, what: str
) -> None:
    """Replace every submodule of these types with `make(submodule)`."""
    found = [
        (parent, name, part)
        for parent in model.modules()
        for name, part in parent.named_children()
        if isinstance(part, kinds)
    ]
    if not found:
        raise nothing_to_change_error(ablation, what)
    for parent, name, part in found:
        setattr(parent, name, make(part))


def nothing_to_change_error(ablation: str, what: str) -> ConfigError:
    return ConfigError(
        f"the ablation {ablation!r} has nothing to change: this model has no {what}. "
        "Remove the ablation, or choose a model with one."
    )
