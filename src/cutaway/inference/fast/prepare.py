"""Prepare a built model for fast inference on a CPU. Its results stay the same; with `int8`, approximately.

A decoder generates a token in a millisecond or two, and half of that time is overhead. So modules are replaced:

- linear layers: weights in a memory layout for CPUs (packed_linear.py), or in 8 bits (int8.py);
- self-attention: one product for queries, keys and values (attention.py);
- cross-attention: the rows of a beam share one memory (attention.py).

Modules and parameters keep their names. While gradients are computed, and after weights were changed, converted or
replaced, the model falls back to the original computation. Two changes are not detected: changes of 8-bit weights, and
changes that bypass torch's version counter (`weight.data`).
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

ModuleType = TypeVar("ModuleType", bound=nn.Module)
MAX_PACKED_BYTES = 2_000_000_000  # larger models keep no packed copies of their weights
SAMPLE_TOKENS = 64  # length of the random text that is used to find outliers


class FastHead(LanguageHead):
    """A head that multiplies with a copy of its matrix, because the embedding often shares the original."""

    def __init__(self, head: LanguageHead, product: Callable[..., Tensor]):
        copy_module_state(self, head)
        self.product = product

    def forward(self, x: Tensor) -> Tensor:
        return self.logits(self.product(x, self.weight, self.bias))


class Int8Head:
    """The product of a head in 8 bits. It ignores the weight argument."""

    def __init__(self, head: LanguageHead, outliers: bool):
        self.product = Int8Product(head.weight, head.bias, outliers)

    def __call__(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return self.product(x)


class IdleDropout(Dropout):
    """A dropout without the overhead of a module call during inference."""

    def __call__(self, x: Tensor) -> Tensor:
        return super().__call__(x) if self.training or is_hooked(self) else x


# replacement -> the class that it replaces
REPLACED: dict[type, type] = {
    FusedSelfAttention: MultiHeadAttention,
    SharedMemoryAttention: MultiHeadAttention,
    FastHead: LanguageHead,
    IdleDropout: Dropout,
    PackedLinear: nn.Linear,
}


def share_memories(model: nn.Module) -> None:
    """Replace cross-attention, so that the rows of a beam share one memory. For every device."""
    for module in list(model.modules()):
        child = getattr(module, "cross_attention", None)
        if type(child) is MultiHeadAttention:
            module.cross_attention = SharedMemoryAttention(child)


def prepare_model(model: nn.Module, int8: bool = False) -> None:
    """Replace modules by faster ones. Call it once, after loading the weights. Unmerged LoRA matrices stay separate."""
    share_memories(model)
    may_pack = sum(parameter.nbytes for parameter in model.parameters()) <= MAX_PACKED_BYTES
    replace_modules(model, int8, may_pack, modules_with_outliers(model) if int8 else set())
    # as plain attributes, because attribute access through nn.Module.__getattr__ is slower
    for module in model.modules():
        vars(module).update(module._modules)
        vars(module).update(
            {name: parameter for name, parameter in module._parameters.items() if parameter is not None}
        )


def replace_modules(module: nn.Module, int8: bool, may_pack: bool, outliers: set[nn.Module]) -> None:
    for name, child in module.named_children():
        new = child
        if is_plain_linear(child):
            new = Int8Product(child.weight, child.bias, child in outliers) if int8 else PackedLinear(child, may_pack)
        elif type(child) is MultiHeadAttention and all(map(is_plain_linear, (child.query, child.key, child.value))):
            new = FusedSelfAttention(child, FusedProduct(child, int8, may_pack, child.query in outliers))
        elif type(child) is LanguageHead:
            new = FastHead(child, Int8Head(child, child in outliers) if int8 else LinearProduct(may_pack))
        elif type(child) is Dropout:
            new = IdleDropout(child.p).train(child.training)
        if new is not child:
            setattr(module, name, new)
        replace_modules(new, int8, may_pack, outliers)


def modules_with_outliers(model: nn.Module) -> set[nn.Module]:
    """The linear layers and heads whose inputs have outliers (int8.py), found with a random text.

    Outliers depend on the model more than on the text, and checking for them in each call costs as much as a small
    product.
    """
    candidates: set[nn.Module] = {m for m in model.modules() if is_plain_linear(m) or isinstance(m, LanguageHead)}
    without: set[nn.Module] = set()
    found: set[nn.Module] = set()

    def check_input(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        (found if has_outliers(inputs[0]) else without).add(module)

    hooks, was_training = [m.register_forward_pre_hook(check_input) for m in candidates], model.training
    model.eval()
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            model(*sample_inputs(model, SAMPLE_TOKENS))
    except DataError:  # the model cannot read a random text, so assume outliers everywhere
        return candidates
    finally:
        model.train(was_training)
        for hook in hooks:
            hook.remove()
    return found | (candidates - without)  # a module that did not run, such as an expert, may have outliers too


def undo_replacements(model: ModuleType) -> ModuleType:
    """A copy of the model with its original modules, for example to export its graph."""
    copied = copy.deepcopy(model)
    for module in copied.modules():
        for name in (*module._modules, *module._parameters, "qkv", "product"):
            vars(module).pop(name, None)
        if isinstance(module, PackedLinear):
            weight = module.weight.detach().clone(memory_format=torch.contiguous_format)
            module.weight = nn.Parameter(weight, module.weight.requires_grad)
        module.__class__ = original_class(module)
    return copied


def original_class(module: nn.Module) -> type[nn.Module]:
    """The class of a module, or the class that it replaces."""
    return REPLACED.get(type(module), type(module))


def is_plain_linear(module: nn.Module) -> TypeGuard[nn.Linear]:
    return type(module) is nn.Linear
