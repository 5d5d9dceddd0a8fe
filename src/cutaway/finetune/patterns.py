"""Select modules and weights of a model by patterns of their names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

from torch import nn

from cutaway.errors import ConfigError, did_you_mean


def match_names(patterns: Sequence[str], names: Iterable[str], setting: str) -> list[str]:
    """The names that match at least one pattern, in order. A pattern without a match is an error."""
    names = list(names)
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in names):
            general = dict.fromkeys(re.sub(r"\.\d+\.", ".*.", name) for name in names)  # the same for all layers
            raise ConfigError(f"{setting}: {pattern!r} matches nothing. {did_you_mean(pattern, general)}")
    return [name for name in names if any(fnmatchcase(name, pattern) for pattern in patterns)]


def find_modules(model: nn.Module, kind: type[nn.Module]) -> list[str]:
    """The names of all modules of a type."""
    return [name for name, module in model.named_modules() if isinstance(module, kind)]


def replace_module(model: nn.Module, name: str, new: nn.Module) -> None:
    """Replace the module with that name."""
    owner, _, last = name.rpartition(".")
    setattr(model.get_submodule(owner), last, new)
