"""Parts and operators that are called straight. `nn.Module` asks about a dozen sorts of hooks before each `forward`,
and a decoder has dozens of parts: together that is a twentieth of a token's time."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import nn
from torch.nn.modules import module as everywhere

from cutaway.nn.probe import is_hooked


class Quick(nn.Module):
    """Mixed into the class of a part: its `forward` at once, unless gradients are computed or somebody hooked it."""

    def __call__(self, *given: Any, **options: Any) -> Any:
        if torch.is_grad_enabled() or is_hooked(self) or is_hooked_everywhere():
            return super().__call__(*given, **options)
        return self.forward(*given, **options)


def is_hooked_everywhere() -> bool:
    """Whether somebody wants to know of the calls of all modules there are, as torch's counters of operations do."""
    return bool(everywhere._global_forward_hooks or everywhere._global_forward_pre_hooks)


def make_quick(part: nn.Module) -> None:
    kind: type = type(part)
    if kind.__call__ is nn.Module.__call__ and kind is not nn.Identity:
        part.__class__ = quick(kind)


def make_usual(part: nn.Module) -> None:
    part.__class__ = built_as(part)


def built_as(part: nn.Module) -> type[nn.Module]:
    """The class of a part, whether it was made quick or not."""
    kind = type(part)
    return kind.__bases__[1] if issubclass(kind, Quick) else kind


@cache
def quick(kind: type) -> type:
    return type(kind.__name__, (Quick, kind), {"__doc__": kind.__doc__, "__module__": kind.__module__})


def quick_call(operator: Any) -> Any:
    """Past what torch does in Python about each call of an operator: as long as a small product takes."""
    return getattr(operator, "_op", operator)
