"""Checks shared by all tables of a configuration: types, ranges, conflicts, settings that have no effect."""

from __future__ import annotations

import dataclasses
import math
import types
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from cutaway.errors import ConfigError, did_you_mean


@dataclass(frozen=True)
class Conflict:
    """Two settings that cannot be combined: (field, values), (field, values), the reason, and the remedy."""

    first: tuple[str, tuple[Any, ...]]
    second: tuple[str, tuple[Any, ...]]
    why: str
    remedy: str

    def check(self, config: Any) -> None:
        sides = (self.first, self.second)
        if all(getattr(config, name) in excluded for name, excluded in sides):
            given = [f"{setting_name(config, name)} = {getattr(config, name)!r}" for name, _ in sides]
            raise ConfigError(f"{given[0]} and {given[1]} cannot be combined: {self.why}. {self.remedy}.")


def check_types(config: Any) -> None:
    """Compare each field with its annotation: 8.0 heads or a misspelt choice raises an error."""
    for name, hint in type_hints(type(config)).items():  # type: ignore[arg-type]
        value = getattr(config, name)
        if type(value) is hint:
            continue
        if get_origin(hint) is Literal:
            if value not in get_args(hint):
                raise ConfigError(
                    f"{setting_name(config, name)} = {value!r} is not a choice. "
                    f"{did_you_mean(str(value), get_args(hint))}"
                )
        elif hint is float and type(value) is int:
            object.__setattr__(config, name, float(value))  # `lr = 1` in TOML means 1.0
        elif not is_of_type(value, hint):
            raise ConfigError(
                f"{setting_name(config, name)} = {value!r} is of type {type(value).__name__}; "
                f"expected {getattr(hint, '__name__', hint)}."
            )


@cache
def type_hints(cls: Any) -> dict[str, Any]:
    """The annotation of each field."""
    hints = get_type_hints(cls)
    return {f.name: hints[f.name] for f in dataclasses.fields(cls)}


@cache
def defaults(cls: Any) -> dict[str, Any]:
    """The default of each field."""
    fields = dataclasses.fields(cls)
    return {f.name: f.default_factory() if callable(f.default_factory) else f.default for f in fields}


def is_of_type(value: Any, hint: Any) -> bool:
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        return any(is_of_type(value, h) for h in get_args(hint))
    if origin is tuple:
        return isinstance(value, tuple) and all(is_of_type(v, get_args(hint)[0]) for v in value)
    if origin is dict:
        key_type, value_type = get_args(hint)
        return isinstance(value, dict) and all(type(k) is key_type and type(v) is value_type for k, v in value.items())
    return type(value) is hint  # not isinstance, which takes True as a number


def require(holds: bool, config: Any, name: str, what: str) -> None:
    if not holds:
        raise ConfigError(f"{setting_name(config, name)} = {getattr(config, name)!r} {what}.")


def refuse_unread(config: Any, names: Iterable[str], why: str) -> None:
    """Raise an error if one of the settings `names` was given, because nothing would read it."""
    default = defaults(type(config))  # type: ignore[arg-type]
    for name in names:
        if getattr(config, name) != default[name]:
            raise ConfigError(
                f"{setting_name(config, name)} = {getattr(config, name)!r} would have no effect, because {why}. "
                "Remove it."
            )


def setting_name(config: Any, name: str) -> str:
    return f"{type(config).__name__.removesuffix('Config').lower()}.{name}"


def choices(cls: type, name: str) -> tuple[str, ...]:
    """The named values of one field, for tests to iterate."""
    return get_args(type_hints(cls)[name])


def divisors(n: int) -> list[int]:
    """All divisors of n, in O(sqrt(n)): a mistyped n may be huge."""
    small = [d for d in range(1, math.isqrt(n) + 1) if n % d == 0]
    return sorted({*small, *(n // d for d in small)})
