"""A built model made ready to answer on a CPU. What it computes stays; with `int8`, approximately.

A decoder writes a token in a millisecond or two, and half of that is not arithmetic. So

- weights are laid in memory as the processor reads them (nn/laid.py), or are kept in 8 bits (nn/int8.py);
- the matrices of queries, keys and values lie side by side, and are multiplied with in one go;
- what a part is made of is put where Python looks first: `nn.Module` finds its children by a slower way;
- a part is called straight (nn/quick.py).

The forward is the one of nn/ and models/; parts and parameters keep their names. The quick ways are taken only where
they give the same: not while gradients are computed, nor after somebody has changed, converted or replaced what they
were made of. Two changes go unnoticed: of weights in 8 bits, and any that torch itself is not told of (`weight.data`).
"""

from __future__ import annotations

import copy
from functools import partial
from typing import Any, TypeGuard, TypeVar

import torch
from torch import Tensor, nn

from cutaway.nn.attention import MultiHeadAttention
from cutaway.nn.heads import LanguageHead
from cutaway.nn.int8 import Int8Product
from cutaway.nn.laid import LaidLinear, Product, laid, make_plain
from cutaway.nn.probe import is_hooked
from cutaway.nn.quick import make_quick, make_usual

Built = TypeVar("Built", bound=nn.Module)
LARGE = 2_000_000_000  # bytes of weights: from here on, no copy is kept beside them for the sake of speed


def make_ready(model: nn.Module, int8: bool = False) -> None:
    """Once, after the weights were loaded. LoRA's thin matrices stay beside theirs, unless they were merged."""
    may_pack = sum(parameter.nbytes for parameter in model.parameters()) <= LARGE
    for part in list(model.modules()):
        for name, child in part.named_children():
            if name == "self_attention" and looks_around_plainly(child):
                child.side_by_side = SideBySide(child, int8, may_pack)
            if is_plain(child):
                setattr(part, name, Int8Product(child.weight, child.bias) if int8 else LaidLinear(child, may_pack))
        if isinstance(part, LanguageHead):
            # it often shares its matrix with the embedding, which looks up rows: it gets a copy of its own to read
            part.project = Int8Head(part) if int8 else Product(may_pack)
    for part in model.modules():
        make_quick(part)
        vars(part).update(part._modules)
        vars(part).update({name: parameter for name, parameter in part._parameters.items() if parameter is not None})


def as_built(model: Built) -> Built:
    """A copy in which nothing is made ready, for those who draw a graph of a model."""
    copied = copy.deepcopy(model)
    for part in copied.modules():
        make_usual(part)
        for name in (*part._modules, *part._parameters):
            vars(part).pop(name, None)
        if isinstance(part, MultiHeadAttention):
            part.side_by_side = None
        if isinstance(part, LanguageHead):
            part.project = None
        if isinstance(part, LaidLinear):
            make_plain(part)
    return copied


def is_plain(part: nn.Module) -> TypeGuard[nn.Linear]:
    return type(part) is nn.Linear


def looks_around_plainly(part: nn.Module) -> TypeGuard[MultiHeadAttention]:
    """Whether it is an attention that asks for queries, keys and values together, all of them linear maps."""
    if not isinstance(part, MultiHeadAttention) or type(part).look_around is not MultiHeadAttention.look_around:
        return False
    return all(map(is_plain, (part.query, part.key, part.value)))


class SideBySide:
    """One matrix for queries, keys and values. What each has of it stays its parameter, and takes no more room."""

    def __init__(self, attention: MultiHeadAttention, int8: bool, may_pack: bool):
        linears = attention.query, attention.key, attention.value
        weight = laid(torch.cat([linear.weight for linear in linears]))
        biases = [linear.bias.detach() for linear in linears if linear.bias is not None]
        bias = torch.cat(biases) if biases else None
        if int8:
            self.product: Any = Int8Product(weight, bias)
            return
        self.product = partial(Product(may_pack), weight=weight, bias=bias)
        self.starts = (0, linears[0].out_features, linears[0].out_features + linears[1].out_features)
        for linear, start in zip(linears, self.starts, strict=True):
            own = slice(start, start + linear.out_features)
            linear.weight = nn.Parameter(weight[own], linear.weight.requires_grad)
            if bias is not None:
                linear.bias = nn.Parameter(bias[own], linear.bias.requires_grad)

    def fits(self, attention: MultiHeadAttention) -> bool:
        """Whether the three are still what it was made of, and nobody wants to know of them one by one."""
        query, key, value = attention.query, attention.key, attention.value
        if torch.is_grad_enabled() or is_hooked(query) or is_hooked(key) or is_hooked(value):
            return False
        if isinstance(self.product, Int8Product):
            return type(query) is type(key) is type(value) is Int8Product
        if not (type(query) is type(key) is type(value) is LaidLinear):
            return False
        weight, bias = self.product.keywords["weight"], self.product.keywords["bias"]
        return all(
            lies_at(part.weight, weight, start) and lies_at(part.bias, bias, start)
            for part, start in zip((query, key, value), self.starts, strict=True)
        )

    def __call__(self, x: Tensor) -> Tensor:
        y: Tensor = self.product(x)
        return y


def lies_at(part: Tensor | None, whole: Tensor | None, row: int) -> bool:
    """Whether `part` is that part of `whole` which begins at this row (of a laid matrix, or of a bias)."""
    if part is None or whole is None:
        return part is whole
    return part.data_ptr() == whole.data_ptr() + row * whole.element_size()


class Int8Head:
    """The product of a head in 8 bits, whatever weight it has."""

    def __init__(self, head: LanguageHead):
        self.product = Int8Product(head.weight, head.bias)

    def __call__(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return self.product(x)
