"""Masks: who may attend to whom.

One meaning everywhere: **True = may attend**. Masks are joined with `&`.

A matrix for a text of 16,000 tokens would have 256 million entries, so a `Mask` keeps *rules* and spells out only
the rows that are asked for. A rule looks at positions alone (sparse_masks.py has others):

    Causal()    a ■ · · ·
                b ■ ■ · ·
                c ■ ■ ■ ·
                d ■ ■ ■ ■

Rows are queries, columns are keys. Explicit positions make a cached step right by construction: when d is written
with the keys of a to c in a cache, its mask is the last row.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor

from cutaway.errors import ConfigError


@dataclass(frozen=True)
class Span:
    """Positions that follow each other: start, ..., stop - 1.

    A `range`, but for the sizes of a model that is exported: they are not known yet, and no numbers (torch.SymInt).
    """

    start: int
    stop: int

    @property
    def size(self) -> int:
        return self.stop - self.start

    def tensor(self, device: torch.device) -> Tensor:
        return torch.arange(self.start, self.stop, device=device)


def as_span(positions: Span | range) -> Span:
    """A range is easier to write by hand."""
    if isinstance(positions, Span):
        return positions
    if positions.step != 1:
        raise ConfigError(f"the positions of a mask must follow each other; {positions} has steps of {positions.step}.")
    return Span(positions.start, positions.stop)


def is_statically_true(condition: bool | torch.SymBool) -> bool:
    """Whether it holds: for sizes that are not known yet, whether it holds for all of them."""
    if isinstance(condition, bool):
        return condition
    from torch.fx.experimental.symbolic_shapes import statically_known_true

    return statically_known_true(condition)


class MaskRule(Protocol):
    """What may be seen, by position alone."""

    def allows(self, query: Tensor, key: Tensor) -> Tensor:
        """Positions [Q,1] and [1,K] -> [Q,K] of bool."""

    def reaches(self, first: int, last: int, key: Tensor) -> Tensor:
        """Which keys [K] some query from `first` to `last` may attend to: all others need not be looked at."""

    def allows_all(self, queries: Span, keys: Span) -> bool:
        """Whether the rule makes no difference here, as causality makes none to the last query alone."""


@dataclass(frozen=True)
class Causal:
    """A query may attend to itself and to what came before it: key ≤ query."""

    def allows(self, query: Tensor, key: Tensor) -> Tensor:
        return key <= query

    def reaches(self, first: int, last: int, key: Tensor) -> Tensor:
        return key <= last

    def allows_all(self, queries: Span, keys: Span) -> bool:
        return is_statically_true(keys.stop - 1 <= queries.start)


@dataclass(frozen=True)
class Mask:
    """Queries and keys by their positions, the rules that must all allow a pair, and which keys are tokens.

    is_token [B,K] is False at padding, which nobody may attend to; None: no padding. Positions may also be ranges.
    """

    queries: Span
    keys: Span
    rules: tuple[MaskRule, ...] = ()
    is_token: Tensor | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "queries", as_span(self.queries))
        object.__setattr__(self, "keys", as_span(self.keys))

    def __and__(self, rule: MaskRule) -> Mask:
        return replace(self, rules=(*self.rules, rule))

    def __str__(self) -> str:
        """A row a query, ■ where it may attend; of a batch, the first text."""
        allowed = self.dense(torch.device("cpu"))
        matrix = torch.ones(self.queries.size, self.keys.size, dtype=torch.bool)
        if allowed is not None:
            matrix = matrix & (allowed[0, 0] if allowed.dim() == 4 else allowed)
        return "\n".join(" ".join("■" if may else "·" for may in row) for row in matrix.tolist())

    def _repr_html_(self) -> str:
        """How a notebook shows it."""
        return f"<pre>{self}</pre>"

    @property
    def active_rules(self) -> tuple[MaskRule, ...]:
        """The rules that make a difference, or that may make one where sizes are not known yet."""
        return tuple(rule for rule in self.rules if not rule.allows_all(self.queries, self.keys))

    def dense(self, device: torch.device, chosen: Tensor | None = None) -> Tensor | None:
        """Spelled out: broadcastable to [B, H, Q, K]; only the `chosen` keys, if given. None: all is allowed."""
        matrix: Tensor | None = None
        if rules := self.active_rules:  # of a cached step there are none, and then positions need not be made
            query, key = self.queries.tensor(device)[:, None], self.keys.tensor(device)[None, :]
            key = key if chosen is None else key[:, chosen]
            for rule in rules:
                matrix = rule.allows(query, key) if matrix is None else matrix & rule.allows(query, key)
        if self.is_token is not None:
            tokens = padding_mask(self.is_token if chosen is None else self.is_token[:, chosen])
            matrix = tokens if matrix is None else matrix & tokens
        return matrix


def padding_mask(is_token: Tensor) -> Tensor:
    """Every query may attend to every key that is a token and not padding. [B, K] -> [B, 1, 1, K]."""
    return is_token[:, None, None, :]


def causal_mask(length: int) -> Tensor:
    """Causality spelled out for a whole text. -> [length, length]"""
    position = torch.arange(length)
    return Causal().allows(position[:, None], position[None, :])
