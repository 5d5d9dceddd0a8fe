"""Checks that every table of a configuration uses: types, required values, settings that nothing reads."""

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
class Refusal:
    """Two settings that cannot go together: (field, values), (field, values), the reason, and the way out."""

    one: tuple[str, tuple[Any, ...]]
    other: tuple[str, tuple[Any, ...]]
    why: str
    remedy: str

    def check(self, config: Any) -> None:
        values = [getattr(config, name) for name, _ in (self.one, self.other)]
        if all(value in bad for value, (_, bad) in zip(values, (self.one, self.other), strict=True)):
            given = [
                f"{setting_name(config, name)} = {value!r}"
                for value, (name, _) in zip(values, (self.one, self.other), strict=True)
            ]
            raise ConfigError(f"{given[0]} and {given[1]} cannot go together: {self.why}. {self.remedy}.")


def check_types(config: Any) -> None:
    """Hold each field against its annotation: 8.0 heads or a misspelt choice is refused by name."""
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
    """What each field is if nobody says it."""
    fields = dataclasses.fields(cls)
    return {f.name: f.default_factory() if callable(f.default_factory) else f.default for f in fields}


def is_of_type(value: Any, hint: Any) -> bool:
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        return any(is_of_type(value, h) for h in get_args(hint))
    if origin is tuple:
        return isinstance(value, tuple) and all(is_of_type(v, get_args(hint)[0]) for v in value)
    if origin is dict:
        of_keys, of_values = get_args(hint)
        return isinstance(value, dict) and all(type(k) is of_keys and type(v) is of_values for k, v in value.items())
    return type(value) is hint  # not isinstance: True is no number of layers


def require(holds: bool, config: Any, name: str, what: str) -> None:
    if not holds:
        raise ConfigError(f"{setting_name(config, name)} = {getattr(config, name)!r} {what}.")


def refuse_unread(config: Any, names: Iterable[str], why: str) -> None:
    """A setting that nothing reads is a misunderstanding: say so rather than ignore it."""
    usual = defaults(type(config))  # type: ignore[arg-type]
    for name in names:
        if getattr(config, name) != usual[name]:
            raise ConfigError(
                f"{setting_name(config, name)} = {getattr(config, name)!r} would have no effect, because {why}. "
                "Remove it."
            )


def setting_name(config: Any, name: str) -> str:
    return f"{type(config).__name__.removesuffix('Config').lower()}.{name}"


def choices(cls: type, name: str) -> tuple[str, ...]:
    """The named values of one field: what the tests iterate."""
    return get_args(type_hints(cls)[name])


def divisors(n: int) -> list[int]:
    """In time that grows with the square root of n: it may be a number that nobody meant."""
    small = [d for d in range(1, math.isqrt(n) + 1) if n % d == 0]
    return sorted({*small, *(n // d for d in small)})
