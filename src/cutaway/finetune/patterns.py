"""Parts of a model, chosen by patterns of their names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

from torch import nn

from cutaway.errors import ConfigError, did_you_mean


def match_names(patterns: Sequence[str], names: Iterable[str], setting: str) -> list[str]:
    """The names that match one of the patterns, in their order. A pattern that matches none is a mistake."""
    names = list(names)
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in names):
            alike = dict.fromkeys(re.sub(r"\.\d+\.", ".*.", name) for name in names)  # layers do not differ
            raise ConfigError(f"{setting}: {pattern!r} matches nothing. {did_you_mean(pattern, alike)}")
    return [name for name in names if any(fnmatchcase(name, pattern) for pattern in patterns)]


def find_modules(model: nn.Module, kind: type[nn.Module]) -> list[str]:
    """The names of all parts of a kind."""
    return [name for name, part in model.named_modules() if isinstance(part, kind)]


def replace_module(model: nn.Module, name: str, part: nn.Module) -> None:
    """Let `part` stand where the part of that name does."""
    owner, _, last = name.rpartition(".")
    setattr(model.get_submodule(owner), last, part)
