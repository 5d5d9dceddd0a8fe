"""A built model prepared to answer on a CPU. What it computes stays; with `int8`, approximately.

A decoder writes a token in a millisecond or two, and half of that is not arithmetic. So parts are replaced:

- linear maps by others whose weights lie in memory as the processor reads them (packed_linear.py), or in 8 bits
  (int8.py);
- self-attention by one with a single product for queries, keys and values, cross-attention by one in which the rows of
  a beam share a memory (attention.py).

Parts and parameters keep their names. The fast ways are taken only where they give the same: not while gradients are
computed, nor after somebody has changed, converted or replaced what they were made of. Two changes go unnoticed: of
weights in 8 bits, and any that torch itself is not told of (`weight.data`).
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import TypeGuard, TypeVar

import torch
from torch import Tensor, nn

from cutaway.errors import DataError
from cutaway.inference.fast.attention import FusedProduct, FusedSelfAttention, SharedMemoryAttention
from cutaway.inference.fast.int8 import Int8Product, has_outliers
from cutaway.inference.fast.packed_linear import LinearProduct, PackedLinear
from cutaway.models.parts import copy_module_state
from cutaway.models.samples import sample_inputs
from cutaway.nn.attention import MultiHeadAttention
from cutaway.nn.dropout import Dropout
from cutaway.nn.embedding import LanguageHead
from cutaway.nn.probe import is_hooked

Built = TypeVar("Built", bound=nn.Module)
LARGE = 2_000_000_000  # bytes of weights: from here on, no copy is kept beside them for the sake of speed
SAMPLE = 64  # tokens that are read to find outliers


class FastHead(LanguageHead):
    """A head often shares its matrix with the embedding, which looks up rows. This one multiplies with a copy."""

    def __init__(self, head: LanguageHead, product: Callable[..., Tensor]):
        copy_module_state(self, head)
        self.product = product

    def forward(self, x: Tensor) -> Tensor:
        return self.logits(self.product(x, self.weight, self.bias))


class Int8Head:
    """The product of a head in 8 bits, whatever weight it has."""

    def __init__(self, head: LanguageHead, outliers: bool):
        self.product = Int8Product(head.weight, head.bias, outliers)

    def __call__(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return self.product(x)


class IdleDropout(Dropout):
    """A part that does nothing should not cost a module's call."""

    def __call__(self, x: Tensor) -> Tensor:
        return super().__call__(x) if self.training or is_hooked(self) else x


# what is put in the place of what
REPLACED: dict[type, type] = {
    FusedSelfAttention: MultiHeadAttention,
    SharedMemoryAttention: MultiHeadAttention,
    FastHead: LanguageHead,
    IdleDropout: Dropout,
    PackedLinear: nn.Linear,
}


def share_memories(model: nn.Module) -> None:
    """On every device: the rows of a beam share one memory."""
    for part in list(model.modules()):
        child = getattr(part, "cross_attention", None)
        if type(child) is MultiHeadAttention:
            part.cross_attention = SharedMemoryAttention(child)


def prepare_model(model: nn.Module, int8: bool = False) -> None:
    """Once, after the weights were loaded. LoRA's thin matrices stay beside theirs, unless they were merged."""
    share_memories(model)
    may_pack = sum(parameter.nbytes for parameter in model.parameters()) <= LARGE
    replace_parts(model, int8, may_pack, parts_with_outliers(model) if int8 else set())
    for part in model.modules():  # to where Python looks first: nn.Module finds children and parameters more slowly
        vars(part).update(part._modules)
        vars(part).update({name: parameter for name, parameter in part._parameters.items() if parameter is not None})


def replace_parts(part: nn.Module, int8: bool, may_pack: bool, outliers: set[nn.Module]) -> None:
    for name, child in part.named_children():
        new = child
        if is_plain(child):
            new = Int8Product(child.weight, child.bias, child in outliers) if int8 else PackedLinear(child, may_pack)
        elif type(child) is MultiHeadAttention and all(map(is_plain, (child.query, child.key, child.value))):
            new = FusedSelfAttention(child, FusedProduct(child, int8, may_pack, child.query in outliers))
        elif type(child) is LanguageHead:
            new = FastHead(child, Int8Head(child, child in outliers) if int8 else LinearProduct(may_pack))
        elif type(child) is Dropout:
            new = IdleDropout(child.p).train(child.training)
        if new is not child:
            setattr(part, name, new)
        replace_parts(new, int8, may_pack, outliers)


def parts_with_outliers(model: nn.Module) -> set[nn.Module]:
    """The linear maps and heads that read outliers (inference/fast/int8.py), as a text shows that is drawn by chance.

    Outliers belong to a model more than to a text, and to look for them in each call costs as much as a small product.
    """
    parts: set[nn.Module] = {part for part in model.modules() if is_plain(part) or isinstance(part, LanguageHead)}
    free: set[nn.Module] = set()
    found: set[nn.Module] = set()

    def look(part: nn.Module, given: tuple[Tensor, ...]) -> None:
        (found if has_outliers(given[0]) else free).add(part)

    hooks, was_training = [part.register_forward_pre_hook(look) for part in parts], model.training
    model.eval()
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            model(*sample_inputs(model, SAMPLE))
    except DataError:  # it cannot read just any text: any part may read outliers
        return parts
    finally:
        model.train(was_training)
        for hook in hooks:
            hook.remove()
    return found | (parts - free)  # what the text did not reach, such as an expert, may read outliers too


def as_built(model: Built) -> Built:
    """A copy in which nothing is replaced, for those who draw a graph of a model."""
    copied = copy.deepcopy(model)
    for part in copied.modules():
        for name in (*part._modules, *part._parameters, "qkv", "product"):
            vars(part).pop(name, None)
        if isinstance(part, PackedLinear):
            weight = part.weight.detach().clone(memory_format=torch.contiguous_format)
            part.weight = nn.Parameter(weight, part.weight.requires_grad)
        part.__class__ = built_as(part)
    return copied


def built_as(part: nn.Module) -> type[nn.Module]:
    """The class of a part, or of what it replaces."""
    return REPLACED.get(type(part), type(part))


def is_plain(part: nn.Module) -> TypeGuard[nn.Linear]:
    return type(part) is nn.Linear
